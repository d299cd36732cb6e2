package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/setpoint-dev/setpoint"
)

// settings is a ConfigMap with a value.
func settings(name, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {k: %q}}", name, value)
}

// change applies objects in one revision, and returns it.
func (p *plane) change(objects string, flags ...string) string {
	p.Helper()
	out := strings.TrimSpace(p.must(objects, append([]string{"apply", "--atomic", "-f", "-"}, flags...)...))
	_, revision, ok := strings.Cut(out, "all at revision ")
	if !ok {
		p.Fatal(out)
	}
	return revision
}

func TestHistory(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := newPlane(t, setpoint.Options{Clock: testclock.NewFakeClock(began)})
	first := p.change(settings("a", "one"))
	p.change(settings("ab", "other"))
	second := p.change(settings("a", "two"), "--field-manager", "me", "--force-conflicts")
	table := [][]string{
		{"REVISION", "TIME", "WHO", "VERB", "CHANGE"},
		{first, "2026-01-02T03:04:05Z", "admin (setpoint)", "patch", "created"},
		{second, "2026-01-02T03:04:05Z", "admin (me)", "patch", "data.k one→two"},
	}
	gap := regexp.MustCompile(` {2,}`)
	for _, name := range []string{"cm/a", "configmap/a", "configmaps/a", "ConfigMap/a", "configmaps.v1./a"} {
		var got [][]string
		for line := range strings.Lines(p.must("", "history", name)) {
			got = append(got, gap.Split(strings.TrimSpace(line), -1))
		}
		if diff := cmp.Diff(table, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if out := p.must("", "history", "ns/default", "-n", "elsewhere"); !strings.Contains(out, "created") {
		t.Errorf("of a namespace: %s", out)
	}
}

func TestHistoryErrors(t *testing.T) {
	p := newPlane(t, setpoint.Options{})
	for want, args := range map[string][]string{
		`"cm": want KIND/NAME`:                               {"history", "cm"},
		`"/a": want KIND/NAME`:                               {"history", "/a"},
		`the server has no kind "nonsense"`:                  {"history", "nonsense/a"},
		`configmaps "none" not found`:                        {"history", "cm/none"},
		`"none" not found`:                                   {"diff", "--from", "1", "cm/none"},
		`required flag(s) "from" not set`:                    {"diff", "cm/a"},
		`from is "x", want a revision`:                       {"diff", "--from", "x", "cm/a"},
		`from is 9, want a revision that is not after to, 8`: {"diff", "--from", "9", "--to", "8", "cm/a"},
		`Too large resource version: 1000000, current: `:     {"diff", "--from", "1", "--to", "1000000", "cm/a"},
		`"ns/kube-system/x": want KIND/NAME`:                 {"history", "ns/kube-system/x"},
	} {
		if out, err := p.run("", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v %s, want an error with %q", args, err, out, want)
		}
	}
}

func TestDiff(t *testing.T) {
	p := newPlane(t, setpoint.Options{})
	first := p.change(settings("a", "one"))
	p.change(settings("a", "two"), "--field-manager", "me", "--force-conflicts")
	last := p.change(settings("b", "new")+"\n---\n"+settings("a", "three")+"\n---\n"+
		"{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", "--force-conflicts")
	wantA := strings.NewReplacer("FROM", first, "TO", last).Replace(`# default/configmaps/a, written by admin (me), admin (setpoint)
--- default/configmaps/a@FROM
+++ default/configmaps/a@TO
@@ -1,6 +1,6 @@
 apiVersion: v1
 data:
-  k: one
+  k: three
 kind: ConfigMap
 metadata:
`)
	got := p.must("", "diff", "--from", first, "--to", last, "cm/a")
	if !strings.HasPrefix(got, wantA) {
		t.Error(cmp.Diff(wantA, got))
	}
	heads := regexp.MustCompile(`(?m)^# [^ ,]+`)
	for _, c := range []struct{ args, want string }{
		{"", "# default/configmaps/a # default/configmaps/b # namespaces/shop"},
		{"-n default", "# default/configmaps/a # default/configmaps/b"},
		{"-n shop", ""},
		{"cm/b ns/shop cm/a", "# default/configmaps/b # namespaces/shop # default/configmaps/a"},
		{"ns/default", ""},
	} {
		args := append([]string{"diff", "--from", first}, strings.Fields(c.args)...)
		out := p.must("", args...)
		if got := strings.Join(heads.FindAllString(out, -1), " "); got != c.want {
			t.Errorf("%v: %s, want %s", args, got, c.want)
		}
		if nothing := strings.Contains(out, "nothing is different between revision "+first); nothing != (c.want == "") {
			t.Errorf("%v: %s", args, out)
		}
	}
}

func TestDiffOfWhatIsForgotten(t *testing.T) {
	p := newPlane(t, setpoint.Options{HistoryBytes: 8 << 10})
	first := p.change(settings("a", "one"))
	for i := range 20 {
		p.change(settings("a", strings.Repeat(fmt.Sprint(i), 1<<10)))
	}
	_, err := p.run("", "diff", "--from", first, "cm/a")
	want := regexp.MustCompile(`^revision ` + first + ` is forgotten: the server remembers what happened after revision [1-9]\d*; .*--history`)
	if err == nil || !want.MatchString(err.Error()) {
		t.Errorf("%v, want %s", err, want)
	}
	if out := p.must("", "history", "cm/a"); !strings.Contains(out, "data.k ") || strings.Contains(out, "created") {
		t.Errorf("want what is remembered: %s", out)
	}
	for i := range 20 {
		p.change(settings("b", strings.Repeat(fmt.Sprint(i), 1<<10)))
	}
	if out := p.must("", "history", "cm/a"); !strings.Contains(out, "nothing happened to default/configmaps/a since revision ") {
		t.Errorf("want that nothing is remembered: %s", out)
	}
}

// TestDiffShowsEventsOnce has an object that is served by two groups.
func TestDiffShowsEventsOnce(t *testing.T) {
	p := newPlane(t, setpoint.Options{})
	first := p.change(settings("a", "one"))
	p.change("{apiVersion: v1, kind: Event, metadata: {name: e}, involvedObject: {namespace: default}}")
	out := p.must("", "diff", "--from", first)
	if n := strings.Count(out, "\n+++ "); n != 1 || !strings.Contains(out, "default/events") {
		t.Errorf("%d objects, want the event alone: %s", n, out)
	}
}

// TestDiffReadsAllPages changes more objects than an answer of the server has room for.
func TestDiffReadsAllPages(t *testing.T) {
	p := newPlane(t, setpoint.Options{})
	first := p.change(settings("a", "one"))
	const batches, each = 6, 100
	for b := range batches {
		var objects strings.Builder
		for i := range each {
			fmt.Fprintf(&objects, "---\n%s\n", settings(fmt.Sprintf("c-%d-%d", b, i), "one"))
		}
		p.change(objects.String())
	}
	out := p.must("", "diff", "--from", first, "-n", "default")
	if n := strings.Count(out, "\n+++ default/configmaps/c-"); n != batches*each {
		t.Errorf("there are %d objects, want %d", n, batches*each)
	}
}
