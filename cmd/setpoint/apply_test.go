package main

import (
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint"
)

// applying runs a control plane, and returns what runs apply on a file's text.
func applying(t *testing.T) func(text string, flags ...string) (string, error) {
	p := newPlane(t, setpoint.Options{})
	return func(text string, flags ...string) (string, error) {
		return p.run(text, append([]string{"apply", "-f", "-"}, flags...)...)
	}
}

const (
	shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {a: b}}
---
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: a, namespace: shop, labels: {a: b}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b, labels: {a: b}}}
`
	broken = `---
apiVersion: v1
kind: ConfigMap
metadata: {name: NOT_A_NAME}
`
)

func TestApplyAtomic(t *testing.T) {
	apply := applying(t)
	out, err := apply(shop+broken, "--atomic")
	if err == nil || !strings.Contains(err.Error(), "operations[3] (apply ConfigMap NOT_A_NAME)") {
		t.Errorf("%v %s, want an error that names the object", err, out)
	}
	out, err = apply(shop, "--atomic", "--dry-run")
	if want := "Namespace shop applied (dry run)\n"; err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("%v %q, want it to begin with %q", err, out, want)
	}
	out, err = apply(shop, "--atomic")
	want := "Namespace shop applied\nConfigMap shop/a applied\nConfigMap default/b applied\nall at revision "
	if err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("%v %q, want it to begin with %q", err, out, want)
	}
	again, err := apply(shop, "--atomic")
	if err != nil || again != out {
		t.Errorf("again: %v %q, want the same: %q", err, again, out)
	}
}

func TestApplyOneByOne(t *testing.T) {
	apply := applying(t)
	out, err := apply(shop + broken)
	want := "Namespace shop applied\nConfigMap shop/a applied\nConfigMap default/b applied\n"
	if err == nil || !strings.HasPrefix(out, want) {
		t.Errorf("%v %q, want an error after %q", err, out, want)
	}
	for text, want := range map[string]string{"": "no object", "{": "-: ", "a: [": "-: "} {
		if _, err := apply(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
