package changes_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/cmd/setpoint/internal/changes"
)

func tree(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{`null`, `a: 1`, "created"},
		{`a: 1`, `null`, "deleted"},
		{`a: 1`, `a: 1`, "nothing that is shown"},
		{`spec: {replicas: 1}`, `spec: {replicas: 3}`, "spec.replicas 1→3"},
		{`a: two words`, `a: ""`, `a "two words"→""`},
		{`metadata: {labels: {b: c}}`, `metadata: {labels: {x.y/z: a}}`, "-metadata.labels.b, +metadata.labels[x.y/z]=a"},
		{`c: [{name: x, image: a}, {name: z}]`, `c: [{name: z}, {name: x, image: b}]`, "c[x].image a→b"},
		{`c: []`, `c: [{type: Ready, status: "True"}]`, "+c[Ready]"},
		{`l: [1, 2]`, `l: [1, 3]`, "l[1] 2→3"},
		{`l: [1, 2]`, `l: [1]`, "l [1,2]→[1]"},
		{`l: [{name: a}, {name: a}]`, `l: [{name: a}, {name: b}]`, "l[1].name a→b"},
		{`v: {a: 1}`, `v: 1`, `v {"a":1}→1`},
		{
			`c: [{type: C, lastTime: a, message: a, status: a}]`, `c: [{type: C, lastTime: b, message: b, status: b}]`,
			"c[C].status a→b, c[C].message a→b, c[C].lastTime a→b",
		},
		{`{a: 1, b: 1, c: 1, d: 1, e: 1}`, `{a: 2, b: 2, c: 2, d: 2, e: 2}`, "a 1→2, b 1→2, c 1→2, d 1→2, e 1→2"},
		{`{a: 1, b: 1, c: 1, d: 1, e: 1, f: 1}`, `{a: 2, b: 2, c: 2, d: 2, e: 2, f: 2}`, "a 1→2, b 1→2, c 1→2, d 1→2, and 2 more"},
		{
			`metadata: {generation: 1, resourceVersion: "1", managedFields: [], annotations: {kubectl.kubernetes.io/last-applied-configuration: x}}`,
			`metadata: {generation: 2, resourceVersion: "2"}`, "nothing that is shown",
		},
		{`null`, `{apiVersion: v1, kind: Secret, data: {a: c2VjcmV0}}`, "created"},
		{`a: b`, `a: ` + strings.Repeat("ü", 41), "a b→" + strings.Repeat("ü", 39) + "…"},
		{
			`{apiVersion: v1, kind: Secret, data: {same: c2VjcmV0, other: c2VjcmV0, gone: c2VjcmV0}}`,
			`{apiVersion: v1, kind: Secret, data: {same: c2VjcmV0, other: c2VjcmV1, new: c2VjcmV0}}`,
			`-data.gone, +data.new=(hidden), data.other (old)→(new)`,
		},
	} {
		if got := changes.Words(tree(t, c.before), tree(t, c.after)); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

func TestUnified(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{`{a: 1, b: 1}`, `{a: 1, b: 2}`, "--- old\n+++ new\n@@ -1,2 +1,2 @@\n a: 1\n-b: 1\n+b: 2\n"},
		{`null`, `a: 1`, "--- /dev/null\n+++ new\n@@ -0,0 +1 @@\n+a: 1\n"},
		{`a: 1`, `null`, "--- old\n+++ /dev/null\n@@ -1 +0,0 @@\n-a: 1\n"},
		{
			`null`, `{apiVersion: v1, kind: Secret, data: {a: c2VjcmV0}}`,
			"--- /dev/null\n+++ new\n@@ -0,0 +1,4 @@\n+apiVersion: v1\n+data:\n+  a: (hidden)\n+kind: Secret\n",
		},
		{`metadata: {generation: 1, name: a}`, `metadata: {generation: 2, name: a}`, ""},
		{
			`{apiVersion: v1, kind: Secret, data: {a: c2VjcmV0, b: x}}`,
			`{apiVersion: v1, kind: Secret, data: {a: c2VjcmV1, b: x}}`,
			"--- old\n+++ new\n@@ -1,5 +1,5 @@\n apiVersion: v1\n data:\n-  a: (old)\n+  a: (new)\n" +
				"   b: (hidden)\n kind: Secret\n",
		},
	} {
		got, err := changes.Unified("old", "new", tree(t, c.before), tree(t, c.after))
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s to %s: %v %s", c.before, c.after, err, diff)
		}
	}
}
