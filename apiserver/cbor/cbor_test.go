package cbor_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/setpoint-dev/setpoint/apiserver/cbor"
)

func encode(text string) []byte { return cbor.AppendJSON(cbor.Begin(nil), []byte(text)) }

// What is written reads, by the library that clients use, as the JSON that it was.
func TestAppendJSON_ReadsAsTheSame(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"a":[]}`, `{"a":[1,-1,23,24,255,256,65535,65536,4294967296,-9223372036854775808]}`,
		`{"a":{"b":[{"c":null},true,false,1.5,-0.25,1e300]}}`, `{"":"","é":"\u003c\n\"\\ü\/\b\f\r\t\ud83d\ude00\ud83dx"}`,
		`{"long":"` + strings.Repeat("x", 70000) + `"}`, ` { "a" : [ 1 , 2 ] } `,
	} {
		var want, got any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		back, err := cbor.ToJSON(encode(text))
		if err != nil {
			t.Errorf("%.80s: %v", text, err)
			continue
		}
		if err := json.Unmarshal(back, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.80s: %s", text, diff)
		}
	}
}

func TestAppendJSON_OfNumbersBeyondDoubles(t *testing.T) {
	back, err := cbor.ToJSON(encode(`{"a":1E700,"b":-1e700,"c":18446744073709551616}`))
	const want = `{"a":1.7976931348623157e+308,"b":-1.7976931348623157e+308,"c":18446744073709552000}`
	if err != nil || string(back) != want {
		t.Errorf("%s, %v", back, err)
	}
}

func TestToJSON_Refuses(t *testing.T) {
	for name, data := range map[string][]byte{
		"nothing":         nil,
		"half a map":      {0xa1, 0x41, 'a'},
		"two documents":   {0xa0, 0xa0},
		"a list":          {0x80},
		"a key twice":     {0xa2, 0x41, 'a', 0x01, 0x41, 'a', 0x02},
		"a number as key": {0xa1, 0x01, 0x01},
		"not a number":    {0xa1, 0x41, 'a', 0xf9, 0x7e, 0x00},
		"a huge number":   {0xa1, 0x41, 'a', 0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"promised much":   {0xa1, 0x41, 'a', 0x5b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"deep":            append(bytes.Repeat([]byte{0xa1, 0x41, 'a'}, 20000), 0xf6),
	} {
		if text, err := cbor.ToJSON(data); err == nil {
			t.Errorf("%s: got %.80s", name, text)
		}
	}
}

func FuzzToJSON(f *testing.F) {
	for _, text := range []string{`{}`, `{"a":[1,-1,1.5,true,null,{"b":"c"}]}`, `{"metadata":{"name":"a"}}`} {
		f.Add(encode(text))
	}
	f.Add([]byte{0xa1, 0x61, 'a', 0xd6, 0x42, 1, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := cbor.ToJSON(data)
		if err != nil || bytes.Contains(text, []byte(`\ufffd`)) { // JSON cannot tell bytes apart that are no text
			return
		}
		again, err := cbor.ToJSON(encode(string(text)))
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if !bytes.Equal(text, again) {
			t.Fatal(cmp.Diff(string(text), string(again)))
		}
	})
}

// Whatever it is given, AppendJSON ends, and of JSON it makes CBOR.
func FuzzAppendJSON(f *testing.F) {
	for _, text := range []string{`{"a":1}`, `"\u00`, `[1,`, `tr`, `-`, `{"a":"\ud83d\ude00"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		out := cbor.AppendJSON(nil, text)
		var tree any
		if !json.Valid(text) || deep(text) {
			return
		}
		if err := direct.Unmarshal(out, &tree); err != nil && !strings.Contains(err.Error(), "UTF-8") &&
			!strings.Contains(err.Error(), "duplicate map key") {
			t.Fatalf("%v: %s", err, text)
		}
	})
}

// deep says that the text may be nested beyond what CBOR is read to.
func deep(text []byte) bool {
	return bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > 9000
}
