package wire_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	json "github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/cache/wire"
)

const owned = `{"kind":"Pod","metadata":{"labels":{"app":"w\"eb","empty":""},"name":"a","namespace":"default",
	"annotations":{"name":"not this"},"uid":"u-1","resourceVersion":"7","deletionTimestamp":null,
	"ownerReferences":[{"uid":"o-1","name":"x"},{"controller":true,"uid":"o-2"},{"uid":"o-3","controller":false}]},
	"spec":{"metadata":{"name":"nor this"}}}`

func TestHead(t *testing.T) {
	head, err := wire.ReadHead([]byte(owned))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(head.Namespace, head.Name, head.UID, head.Version, head.Controller, head.Owners(), head.Deleting)
	if want := "default a u-1 7 o-2 [o-1 o-2 o-3] false\n"; got != want {
		t.Errorf("read %q, want %q", got, want)
	}
	labels := wire.Labels{Head: &head}
	for name, want := range map[string]string{"app": `w"eb`, "empty": "", "name": "", "w": ""} {
		value, ok := labels.Lookup(name)
		if value != want || ok != (name == "app" || name == "empty") || labels.Has(name) != ok || labels.Get(name) != want {
			t.Errorf("label %q is %q, %v", name, value, ok)
		}
	}
	deleting, err := wire.ReadHead([]byte(strings.Replace(owned, "null", `"2026-01-02T03:04:05Z"`, 1)))
	if err != nil || !deleting.Deleting {
		t.Errorf("what is being deleted: %v, %v", deleting.Deleting, err)
	}
}

// A watch reads each event into the place of the one before.
func TestEventsShareABuffer(t *testing.T) {
	const events = 1000
	one := `{"type":"MODIFIED","object":` + owned + "}\n"
	read := wire.NewEvents(io.NopCloser(iotest.OneByteReader(strings.NewReader(strings.Repeat(one, events)))))
	allocated := testing.AllocsPerRun(1, func() {
		for range events / 2 {
			if event, err := read.Next(); err != nil || string(event.Object) != owned {
				t.Fatalf("read %s, %v", event.Object, err)
			}
		}
	})
	if allocated > 10 {
		t.Errorf("%v allocations for %d events, want none for each", allocated, events/2)
	}
}

// FuzzHead compares with a full decoding of what a server could send: with metadata, no member given
// twice, no name written with escapes, and owners that have a uid.
func FuzzHead(f *testing.F) {
	for _, text := range append(texts, owned, `{"":[{"metadata":{}}]}`) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		head, err := wire.ReadHead([]byte(text))
		var object struct {
			Metadata *struct {
				Name              string             `json:"name"`
				UID               string             `json:"uid"`
				Version           string             `json:"resourceVersion"`
				DeletionTimestamp *string            `json:"deletionTimestamp"`
				Labels            map[string]*string `json:"labels"`
				Owners            []struct {
					UID *string `json:"uid"`
				} `json:"ownerReferences"`
			} `json:"metadata"`
		}
		if strings.Contains(text, `\`) || json.Unmarshal([]byte(text), &object) != nil || object.Metadata == nil {
			return
		}
		full := object.Metadata
		for _, owner := range full.Owners {
			if owner.UID == nil {
				return
			}
		}
		if err != nil || head.Name != full.Name || head.UID != full.UID || head.Version != full.Version ||
			head.Deleting != (full.DeletionTimestamp != nil) || len(head.Owners()) != len(full.Owners) {
			t.Errorf("%s: read %+v, %v", text, head, err)
		}
	})
}

// Items of a list are found whatever comes first, and however the text is cut.
func TestItems(t *testing.T) {
	for _, text := range []string{
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"a":"]"},{"b":[1]}]}`,
		` { "items" : [ {"a":"]"} , {"b":[1]} ] , "n" : 12 , "metadata" : {"resourceVersion":"9"} } `,
	} {
		for name, cut := range map[string]func(io.Reader) io.Reader{
			"Whole": func(r io.Reader) io.Reader { return r }, "Bytes": iotest.OneByteReader, "DataErr": iotest.DataErrReader,
		} {
			var items []string
			meta, err := wire.Items(io.NopCloser(cut(strings.NewReader(text))), func(item []byte) error {
				items = append(items, string(item))
				return nil
			})
			if diff := cmp.Diff([]string{`{"a":"]"}`, `{"b":[1]}`}, items); err != nil || diff != "" || meta.ResourceVersion != "9" {
				t.Errorf("%s: revision %q, %v, items %s", name, meta.ResourceVersion, err, diff)
			}
			for n := range len(strings.TrimSpace(text)) - 1 {
				if _, err := wire.Items(io.NopCloser(strings.NewReader(text[:n])), func([]byte) error { return nil }); err == nil {
					t.Errorf("%q was taken for a list", text[:n])
				}
			}
		}
	}
	if _, err := wire.Items(io.NopCloser(strings.NewReader(`{"items":null,"metadata":{}}`)), nil); err != nil {
		t.Errorf("a list of nothing: %v", err)
	}
}

func TestEvents(t *testing.T) {
	events := wire.NewEvents(io.NopCloser(strings.NewReader(
		`{"type":"ADDED","object":{"a":1}}` + "\n" + `{ "object": {"b":2}, "type": "DELETED" }`)))
	for _, want := range []string{`ADDED {"a":1}`, `DELETED {"b":2}`} {
		e, err := events.Next()
		if got := fmt.Sprintf("%s %s", e.Type, e.Object); err != nil || got != want {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	}
	if _, err := events.Next(); err != io.EOF {
		t.Errorf("ended with %v", err)
	}
}

// Whole numbers stay whole in a tree, and a failed fast decoding leaves nothing behind.
func TestDecode(t *testing.T) {
	var tree unstructured.Unstructured
	if err := wire.Decode([]byte(`{"kind":"Pod","spec":{"priority":7}}`), &tree); err != nil {
		t.Fatal(err)
	}
	if n, _, err := unstructured.NestedInt64(tree.Object, "spec", "priority"); n != 7 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	var pod corev1.Pod
	if err := wire.Decode([]byte(`{"metadata":{"name":"a","name":"b"}}`), &pod); err != nil || pod.Name != "b" {
		t.Errorf("read %q, %v", pod.Name, err)
	}
}
