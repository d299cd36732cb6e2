package schema

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// canonicalQuantity spells a quantity as resource.Quantity does after reading it. The plain ones,
// which are nearly all, are recognised without reading them.
func canonicalQuantity(text string) (string, error) {
	if isPlainQuantity(text) {
		return text, nil
	}
	q, err := ParseQuantity(strings.TrimSpace(text))
	if err != nil {
		return "", err
	}
	return q.String(), nil
}

// What ParseQuantity reads. By its documentation a quantity is between 10⁻⁹ and 2⁶³, so that nothing
// of use is beyond these bounds; what is costs resource.Quantity time without limit, seconds for an
// exponent of -9999999 or for a third of a million digits, when it is read or first compared.
const (
	quantityBytesMax    = 256
	quantityExponentMax = 99
)

// ParseQuantity is resource.ParseQuantity for text that anybody may have written: it takes a time in
// proportion to the text, and refuses what could not be read or compared in as much.
func ParseQuantity(text string) (resource.Quantity, error) {
	if len(text) > quantityBytesMax {
		return resource.Quantity{}, fmt.Errorf("quantities may have %d characters at most, and this one has %d",
			quantityBytesMax, len(text))
	}
	if e := strings.LastIndexAny(text, "eE"); e >= 0 {
		exponent, err := strconv.Atoi(text[e+1:])
		tooFar := exponent < -quantityExponentMax || exponent > quantityExponentMax
		if tooFar && (err == nil || errors.Is(err, strconv.ErrRange)) {
			return resource.Quantity{}, fmt.Errorf("quantities may have exponents from %d to %d, and this one has %s",
				-quantityExponentMax, quantityExponentMax, text[e+1:])
		}
	}
	return resource.ParseQuantity(text)
}

// plainDigits is how many digits surely fit into an int64 together with any plain suffix.
const plainDigits = 3

// isPlainQuantity says that the text is canonical for sure: one to three digits of which the first
// is not 0, and one of the usual suffixes.
func isPlainQuantity(text string) bool {
	n := 0
	for n < len(text) && n < plainDigits && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	if n == 0 || text[0] == '0' {
		return text == "0"
	}
	switch text[n:] {
	case "", "m", "k", "M", "G":
		return true
	case "Ki", "Mi", "Gi":
		// A multiple of 1024 would be spelled with the next suffix; three digits are none.
		return true
	}
	return false
}

// canonicalTime spells a time as metav1.Time or metav1.MicroTime does after reading it: nil for the
// zero time.
func canonicalTime(kind Kind, text string) (any, error) {
	if isPlainTime(kind, text) {
		return text, nil
	}
	layout := time.RFC3339
	if kind == MicroTime {
		layout = metav1.RFC3339Micro
	}
	t, err := time.Parse(layout, text)
	if err != nil {
		return nil, err
	}
	return formatTime(kind, t), nil
}

func formatTime(kind Kind, t time.Time) any {
	switch {
	case t.IsZero():
		return nil
	case kind == MicroTime:
		return t.UTC().Format(metav1.RFC3339Micro)
	}
	return t.UTC().Format(time.RFC3339)
}

// isPlainTime says that the text is canonical for sure: "2006-01-02T15:04:05Z", with the fraction that
// a MicroTime has, and a day that every month has.
func isPlainTime(kind Kind, text string) bool {
	shape := "0000-00-00T00:00:00Z"
	if kind == MicroTime {
		shape = "0000-00-00T00:00:00.000000Z"
	}
	if len(text) != len(shape) {
		return false
	}
	for i := range len(shape) {
		c := text[i]
		if shape[i] == '0' {
			if c < '0' || '9' < c {
				return false
			}
		} else if c != shape[i] {
			return false
		}
	}
	month, day := text[5:7], text[8:10]
	return text[:4] >= "1000" && "01" <= month && month <= "12" && "01" <= day && day <= "28" &&
		text[11:13] <= "23" && text[14:16] <= "59" && text[17:19] <= "59"
}

// canonicalBase64 spells base64 as encoding it again does. It works in scratch, which it returns
// for the next call.
func canonicalBase64(text string, scratch []byte) (string, []byte, error) {
	rawMax := base64.StdEncoding.DecodedLen(len(text))
	need := len(text) + rawMax + base64.StdEncoding.EncodedLen(rawMax)
	if cap(scratch) < need {
		scratch = make([]byte, need)
	}
	scratch = scratch[:need]
	in, raw, out := scratch[:len(text)], scratch[len(text):len(text)+rawMax], scratch[len(text)+rawMax:]
	copy(in, text)
	n, err := base64.StdEncoding.Decode(raw, in)
	if err != nil {
		return "", scratch, err
	}
	out = out[:base64.StdEncoding.EncodedLen(n)]
	base64.StdEncoding.Encode(out, raw[:n])
	if string(out) == text {
		return text, scratch, nil
	}
	return string(out), scratch, nil
}

func encodeBase64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
