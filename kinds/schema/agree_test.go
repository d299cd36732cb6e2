package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// verdict is what a reader makes of a body.
type verdict struct {
	Err      string
	Findings []string
	JSON     string
}

func ours(f fixture, body []byte) verdict {
	got, err := f.schema.DecodeJSON(body)
	if err != nil {
		return verdict{Err: err.Error()}
	}
	return verdict{Findings: got.Findings, JSON: string(appendStamped(f.schema, got.Object))}
}

// upstreams reads a body as upstream's server does: its type first, then strictly into the Go type.
func upstreams(f fixture, body []byte) verdict {
	var head struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &head); err != nil {
		return verdict{Err: err.Error()}
	}
	typed := f.typed.DeepCopyObject()
	strict, err := kjson.UnmarshalStrict(body, typed)
	if err != nil {
		return verdict{Err: err.Error()}
	}
	var findings []string
	for _, s := range strict {
		findings = append(findings, s.Error())
	}
	out, err := json.Marshal(typed)
	if err != nil {
		return verdict{Err: "encoding: " + err.Error()}
	}
	return verdict{Findings: findings, JSON: string(out)}
}

// disagreement compares the two. What it lets pass are the differences that come with trees: inside
// raw JSON the order of keys and the spelling of numbers are not kept, a number beyond a float64 is
// refused there, and a pointer to the zero time is left out instead of being written as null.
func disagreement(f fixture, body []byte) string {
	got, want := ours(f, body), upstreams(f, body)
	if strings.HasSuffix(got.Err, "of type float64") || bytes.Contains(body, []byte(`"0001-01-01T`)) {
		return ""
	}
	if got.JSON != want.JSON && sameTree(got.JSON, want.JSON) {
		got.JSON = want.JSON
	}
	return cmp.Diff(want, got)
}

func sameTree(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

// Fixtures with values replaced, fields added, repeated and removed, and keys in any order.
func TestDecodeJSON_AgreesOnMutations(t *testing.T) {
	rounds, seed := mutationRounds(), newSeed(t)
	for _, f := range loadFixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			for round := range rounds {
				m := mutator{rand.New(rand.NewPCG(seed, uint64(round)))}
				body := m.body(f.json)
				if diff := disagreement(f, body); diff != "" {
					t.Fatalf("round %d: %s\n%s", round, diff, body)
				}
			}
		})
	}
}

// newSeed is another one each time, or SETPOINT_SEED, with which a failure can be had again.
func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SETPOINT_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SETPOINT_SEED: %v", err)
		}
	}
	t.Logf("SETPOINT_SEED=%d", seed)
	return seed
}

func mutationRounds() int {
	if raceEnabled {
		return 4
	}
	return 40
}

// mutator writes a tree as JSON with some mistakes in it.
type mutator struct{ *rand.Rand }

var surprises = []string{
	`null`, `0`, `-0`, `7`, `1.0`, `1.5`, `1e3`, `3000000000`, `99999999999999999999`, `true`, `false`,
	`""`, `"x"`, `"<&>\u2028\ud800é\t"`, `"2020-02-30T00:00:00Z"`, `"2020-02-29T01:02:03+01:00"`,
	`"2020-01-01T00:00:00.123456Z"`, `"0.1"`, `"1000000k"`, `" 5Gi "`, `"1024Mi"`, `"+5"`, `"1e3"`, `"50%"`, `"YQ=="`, `"YR=="`, `"a"`,
	`{}`, `[]`, `[null]`, `{"a":null}`, `{"a":"b"}`, `{"a":{}}`, `[1,2,300]`, `["a"]`, `[{}]`, `{"name":"x"}`,
}

func (m mutator) body(fixture []byte) []byte {
	var tree any
	if err := json.Unmarshal(fixture, &tree); err != nil {
		panic(err)
	}
	var out bytes.Buffer
	rate := []float64{0.001, 0.01, 0.1}[m.IntN(3)]
	m.write(&out, tree, rate)
	return out.Bytes()
}

func (m mutator) write(out *bytes.Buffer, v any, rate float64) {
	if m.Float64() < rate {
		out.WriteString(surprises[m.IntN(len(surprises))])
		return
	}
	switch v := v.(type) {
	case map[string]any:
		m.writeObject(out, v, rate)
	case []any:
		out.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				out.WriteByte(',')
			}
			m.write(out, e, rate)
		}
		out.WriteByte(']')
	default:
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		out.Write(text)
	}
}

func (m mutator) writeObject(out *bytes.Buffer, v map[string]any, rate float64) {
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(v)) {
		switch p := m.Float64(); {
		case p < rate/4: // leave it out
		case p < rate/2:
			keys = append(keys, k, k)
		case p < rate:
			keys = append(keys, k, strings.ToUpper(k[:1])+k[1:]+"X")
		default:
			keys = append(keys, k)
		}
	}
	m.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	out.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			out.WriteString(", ")
		}
		fmt.Fprintf(out, "%q: ", k)
		m.write(out, v[k], rate)
	}
	out.WriteByte('}')
}

func FuzzDecodeJSON(f *testing.F) {
	kinds := []string{"core.v1.Pod", "core.v1.ConfigMap", "apps.v1.Deployment", "core.v1.Event", "apps.v1.ControllerRevision"}
	f.Add(uint8(0), []byte(podBody))
	f.Add(uint8(3), []byte(`{"involvedObject":{"uid":"u"},"eventTime":"2020-01-01T00:00:00.000001Z","firstTimestamp":null,"count":1}`))
	f.Add(uint8(4), []byte(`{"revision":1,"data":{"spec":{"a":[1,2.5,null,true,{"b":"c"}]}}}`))
	f.Add(uint8(0), []byte(`{"metadata":{"name":"a","name":"b","labels":{"x":null,"x":"1"}},"spec":{"containers":[{"resources":{"limits":{"cpu":"0.1"}}}]}}`))
	f.Add(uint8(1), []byte(`{"data":{"a":"<&>\u2028\ud800"},"binaryData":{"b":"YR==","c":[1,2]},"immutable":null}`))
	f.Add(uint8(2), []byte(`{"spec":{"strategy":{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":1.5}}}} `))
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		fix := loadFixture(t, kinds[int(kind)%len(kinds)])
		if diff := disagreement(fix, body); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzDecodeProto(f *testing.F) {
	kinds := []string{"core.v1.Pod", "core.v1.ConfigMap", "apps.v1.Deployment", "core.v1.Event", "apps.v1.ControllerRevision"}
	for i, name := range kinds {
		_, _, raw, err := schema.Envelope(loadFixture(f, name).proto)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), raw)
	}
	f.Fuzz(func(t *testing.T, kind uint8, raw []byte) {
		s := loadFixture(t, kinds[int(kind)%len(kinds)]).schema
		got, err := s.DecodeProto(raw)
		if err != nil {
			var e *schema.Error
			if !errors.As(err, &e) {
				t.Fatalf("%T is no *Error", err)
			}
			return
		}
		text, _ := s.Append(nil, got.Object)
		again, err := s.DecodeJSON(text)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if same, _ := s.Append(nil, again.Object); !bytes.Equal(text, same) {
			t.Fatal(cmp.Diff(string(text), string(same)))
		}
		raw, err = s.AppendProto(nil, text)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		back, err := s.DecodeProto(raw)
		if err != nil {
			t.Fatalf("%v: %x", err, raw)
		}
		if same, _ := s.Append(nil, back.Object); !bytes.Equal(text, same) {
			t.Fatal(cmp.Diff(string(text), string(same)))
		}
	})
}
