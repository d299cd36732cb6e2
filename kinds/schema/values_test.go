package schema_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// The quantities that are recognised without being read are canonical.
func TestQuantities_AreSpelledAsUpstreamSpellsThem(t *testing.T) {
	quota := schema.Builtin("io.k8s.api.core.v1.ResourceQuota")
	numbers := []string{"0", "00", "01", "1", "2", "7", "8", "10", "64", "99", "100", "500", "512", "999", "1000", "1024", "1500", "123456789",
		"0.1", "1.5", "1.0", ".5", "5.", "-1", "+1", "-0", "9223372036854775807", "9223372036854775808", "0.0000000001"}
	suffixes := []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "e-3", "E2", "K", "i", "x", "mi"}
	for _, number := range numbers {
		for _, suffix := range suffixes {
			text := number + suffix
			got, err := quota.DecodeJSON(fmt.Appendf(nil, `{"spec":{"hard":{"q":%q}}}`, text))
			want, wantErr := resource.ParseQuantity(text)
			switch {
			case (err == nil) != (wantErr == nil):
				t.Errorf("%s: got %v, want %v", text, err, wantErr)
			case err != nil:
				if err.Error() != wantErr.Error() {
					t.Errorf("%s: got %v, want %v", text, err, wantErr)
				}
			default:
				if q := got.Object["spec"].(object)["hard"].(object)["q"]; q != want.String() {
					t.Errorf("%s: got %v, want %s", text, q, want.String())
				}
			}
		}
	}
}

func TestTimes_AreSpelledAsUpstreamSpellsThem(t *testing.T) {
	event := schema.Builtin("io.k8s.api.core.v1.Event")
	var texts []string
	for _, text := range []string{
		"2026-01-02T03:04:05Z", "2026-12-28T23:59:59Z", "2026-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
		"2026-01-00T00:00:00Z", "2026-01-32T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z",
		"2026-01-01t00:00:00z", "2026-01-01T00:00:00+02:00", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00,5Z", "2026-01-01 00:00:00Z",
		"0001-01-01T00:00:00Z", "0999-01-01T00:00:00Z", "9999-12-31T23:59:59-01:00", "2026-01-01", "",
		"2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00.1234567Z",
	} {
		texts = append(texts, text, strings.TrimSuffix(text, "Z")+".250000Z", strings.TrimSuffix(text, "Z")+".25000:Z")
	}
	for _, text := range texts {
		body, err := json.Marshal(object{"firstTimestamp": text})
		if err != nil {
			t.Fatal(err)
		}
		var want struct{ FirstTimestamp metav1.Time }
		wantErr := json.Unmarshal(body, &want)
		compareTime(t, event, "firstTimestamp", text, want.FirstTimestamp, wantErr)

		var micro metav1.MicroTime
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		compareTime(t, event, "eventTime", text, &micro, micro.UnmarshalJSON(quoted))
	}
}

func compareTime(t *testing.T, s *schema.Schema, field, text string, want json.Marshaler, wantErr error) {
	t.Helper()
	body, err := json.Marshal(object{field: text})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.DecodeJSON(body)
	if (err == nil) != (wantErr == nil) {
		t.Errorf("%s %s: got %v, want %v", field, text, err, wantErr)
	}
	if err != nil {
		return
	}
	gotJSON, _ := json.Marshal(got.Object[field])
	wantJSON, err := want.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if string(gotJSON) != string(wantJSON) {
		t.Errorf("%s %s: got %s, want %s", field, text, gotJSON, wantJSON)
	}
}

// Strings and numbers are written as encoding/json writes them.
func TestAppend_SpellsValuesAsEncodingJSON(t *testing.T) {
	s := schema.Untyped("test")
	rnd := rand.New(rand.NewPCG(1, 2))
	letters := []string{"a", "ü", "漢", "😀", "<", ">", "&", `"`, `\`, "/", "\b", "\f", "\n", "\r", "\t", "\x00", "\x1f", "\x7f", "\u2028", "\u2029", "\xff", "\xe6\xbc", "\ufffd"}
	floats := []float64{0, 1, -1, 0.1, 1e-6, 9e-7, 1e-9, 1e20, 1e21, 1.5e300, math.MaxFloat64, math.SmallestNonzeroFloat64, 1 << 53}
	for range 2000 {
		var text string
		for range rnd.IntN(8) {
			text += letters[rnd.IntN(len(letters))]
		}
		tree := object{"metadata": object{}, "v": []any{text, floats[rnd.IntN(len(floats))], rnd.Int64() - math.MaxInt64/2, nil, true, object{text: false}}}
		want, err := json.Marshal(tree["v"])
		if err != nil {
			t.Fatal(err)
		}
		got, _ := s.Append(nil, tree)
		if string(got) != `{"metadata":{"resourceVersion":""},"v":`+string(want)+"}" {
			t.Fatalf("got %s\nwant %s", got, want)
		}
	}
}

// A repeated read of one large map is not quadratic: it would take minutes.
func TestDecodeJSON_ManyKeys(t *testing.T) {
	const keys = 200_000
	body := []byte(`{"kind":"x"`)
	for i := range keys {
		body = fmt.Appendf(body, `,"k%d":{}`, i)
	}
	body = append(body, '}')
	start := time.Now()
	got, err := schema.Untyped("test").DecodeJSON(body)
	if err != nil || len(got.Object) != keys+2 {
		t.Fatalf("got %d keys, %v", len(got.Object), err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
}
