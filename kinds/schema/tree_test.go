package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// DecodeTree takes exactly what upstream's strict reader finds nothing wrong with, and makes the same
// of it.
func TestDecodeTreeAgrees(t *testing.T) {
	for _, text := range []string{
		`{}`, ` { "a" : {"b":[1,2.5,-3,1e3,9223372036854775807,9223372036854775808,true,false,null,"x\u00e9\n"]} } `,
		`{"a":1,"A":2}`, `{"a":{"b":1},"c":{"b":1}}`, `{"a":[{"b":1},{"b":2}]}`, "{\"a\":\"\xff\"}",
		`{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`, `{"a":[{"b":1,"b":2}]}`,
		``, `null`, `[]`, `"a"`, `1`, `{`, `{"a":}`, `{"a":1}}`, `{"a":1} x`, `{"a":01}`, `{"a":1e999}`, `{'a':1}`,
	} {
		var want map[string]any
		findings, err := kjson.UnmarshalStrict([]byte(text), &want)
		fine := err == nil && len(findings) == 0 && want != nil
		got, ok := schema.DecodeTree([]byte(text))
		if ok != fine {
			t.Errorf("%q: ok is %v, upstream finds %v, %v", text, ok, findings, err)
		}
		if diff := cmp.Diff(want, got); fine && diff != "" {
			t.Errorf("%q (-upstream +ours):\n%s", text, diff)
		}
	}
}
