package apiserver

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/setpoint-dev/setpoint/store"
)

// The functions here find their way in canonical JSON, as the store keeps it: valid, without white
// space, and metadata with its names in plain letters. They look at no more than they need.

// member returns the value of an object's member, and its offset; nil and -1 if it has none.
func member(object []byte, name string) (value []byte, at int) {
	i := 1
	for i < len(object) && object[i] == '"' {
		end := skipString(object, i)
		key := object[i+1 : end-1]
		start := end + 1 // behind the colon
		stop := skipValue(object, start)
		if string(key) == name {
			return object[start:stop], start
		}
		i = stop + 1 // behind the comma
	}
	return nil, -1
}

// skipString returns the offset behind the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}

// skipValue returns the offset behind the value that begins at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // of a number, true, false or null
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// metadataOf returns an object's metadata as JSON.
func metadataOf(value []byte) []byte {
	metadata, _ := member(value, "metadata")
	if metadata == nil {
		return []byte("{}")
	}
	return metadata
}

// labelsOf returns an object's labels, nil if it has none.
func labelsOf(value []byte) map[string]string {
	text, _ := member(metadataOf(value), "labels")
	if text == nil {
		return nil
	}
	var labels map[string]string
	if err := json.Unmarshal(text, &labels); err != nil {
		return nil
	}
	return labels
}

// restamped returns a copy of an object with another resourceVersion.
func restamped(value []byte, at store.Revision) []byte {
	metadata, start := member(value, "metadata")
	if metadata == nil {
		return value
	}
	old, offset := member(metadata, "resourceVersion")
	if old == nil {
		return value
	}
	start += offset + 1
	end := start + len(old) - 2
	out := make([]byte, 0, len(value)+20)
	out = append(out, value[:start]...)
	out = strconv.AppendInt(out, int64(at), 10)
	return append(out, value[end:]...)
}
