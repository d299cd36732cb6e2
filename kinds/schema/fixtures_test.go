package schema_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// fixture is an object that upstream keeps in all encodings, every field set.
type fixture struct {
	name   string // "apps.v1.Deployment"
	schema *schema.Schema
	typed  runtime.Object
	json   []byte
	proto  []byte
}

// fixtures are upstream's round-trip data of the pinned k8s.io/api.
var fixtures = sync.OnceValues(func() ([]fixture, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "testdata", "HEAD", "*.json"))
	if err != nil {
		return nil, err
	}
	var all []fixture
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var head struct{ APIVersion, Kind string }
		if err := json.Unmarshal(body, &head); err != nil {
			return nil, err
		}
		typed, err := scheme.Scheme.New(gvk.FromAPIVersionAndKind(head.APIVersion, head.Kind))
		if err != nil {
			continue // internal kinds such as AdmissionReview
		}
		proto, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".pb")
		if err != nil {
			return nil, err
		}
		s := schemaOf(typed)
		all = append(all, fixture{name: name, schema: s, typed: typed, json: body, proto: proto})
	}
	return all, nil
})

func schemaOf(typed runtime.Object) *schema.Schema {
	return schema.Builtin(typed.(interface{ OpenAPIModelName() string }).OpenAPIModelName())
}

func loadFixtures(t testing.TB) []fixture {
	t.Helper()
	all, err := fixtures()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 150 {
		t.Fatalf("found only %d fixtures", len(all))
	}
	return all
}

func loadFixture(t testing.TB, name string) fixture {
	t.Helper()
	for _, f := range loadFixtures(t) {
		if f.name == name {
			return f
		}
	}
	t.Fatalf("no fixture %s", name)
	return fixture{}
}

// appendTyped is what upstream makes of a body: decoded into the Go type and encoded again.
func appendTyped(t *testing.T, into runtime.Object, body []byte) []byte {
	t.Helper()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, into); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(into)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// appendStamped encodes a tree with its own resourceVersion stamped in, if it has one, and without
// the field if not.
func appendStamped(s *schema.Schema, obj map[string]any) []byte {
	out, at := s.Append(nil, obj)
	if at < 0 {
		return out
	}
	meta, _ := obj["metadata"].(map[string]any)
	if version, _ := meta["resourceVersion"].(string); version != "" {
		quoted, _ := json.Marshal(version)
		return slices.Concat(out[:at-1], quoted, out[at+1:])
	}
	before := bytes.TrimSuffix(out[:at-1], []byte(`"resourceVersion":`))
	after := out[at+1:]
	if before[len(before)-1] == ',' {
		before = before[:len(before)-1]
	} else {
		after = bytes.TrimPrefix(after, []byte(","))
	}
	return slices.Concat(before, after)
}

func TestDecodeJSON_AgreesWithTypedRoundTrip(t *testing.T) {
	for _, f := range loadFixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			got, err := f.schema.DecodeJSON(f.json)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Findings) > 0 {
				t.Errorf("findings: %q", got.Findings)
			}
			want := appendTyped(t, f.typed.DeepCopyObject(), f.json)
			if diff := cmp.Diff(string(want), string(appendStamped(f.schema, got.Object))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An object of which only the kind is known shows what is always written.
func TestDecodeJSON_FillsWhatIsAlwaysWritten(t *testing.T) {
	for _, f := range loadFixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			got, err := f.schema.DecodeJSON([]byte(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			want := appendTyped(t, f.typed.DeepCopyObject(), []byte(`{}`))
			if diff := cmp.Diff(string(want), string(appendStamped(f.schema, got.Object))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeProto_AgreesWithJSON(t *testing.T) {
	for _, f := range loadFixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			apiVersion, kind, raw, err := schema.Envelope(f.proto)
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.schema.DecodeProto(raw)
			if err != nil {
				t.Fatal(err)
			}
			got.Object["apiVersion"], got.Object["kind"] = apiVersion, kind
			want, err := f.schema.DecodeJSON(f.json)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Object, got.Object); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What is canonical stays as it is: read again, made to conform, and defaulted with nothing.
func TestCanonicalFormIsAFixedPoint(t *testing.T) {
	for _, f := range loadFixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			first, err := f.schema.DecodeJSON(f.json)
			if err != nil {
				t.Fatal(err)
			}
			text := appendStamped(f.schema, first.Object)
			findings, err := f.schema.Conform(first.Object)
			if err != nil || len(findings) > 0 {
				t.Fatal(err, findings)
			}
			if again := appendStamped(f.schema, first.Object); !bytes.Equal(text, again) {
				t.Error(cmp.Diff(string(text), string(again)))
			}
		})
	}
}
