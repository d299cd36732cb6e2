package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/cache/wire"
)

// compareParts decodes a text with parts that are new, then known, then known from before.
func compareParts(t *testing.T, parts *wire.Parts, text string, empty func() runtime.Object) {
	t.Helper()
	want := empty()
	wantErr := wire.Decode([]byte(text), want)
	for range 3 {
		got := empty()
		err := parts.Decode([]byte(text), got)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("%s: %v, without parts %v", text, err, wantErr)
		}
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			t.Fatalf("%s: (-without +with parts)\n%s", text, diff)
		}
		parts.Sweep()
	}
}

func kindsToDecode() []func() runtime.Object {
	return []func() runtime.Object{
		func() runtime.Object { return &corev1.Pod{} },
		func() runtime.Object { return &corev1.ConfigMap{} },
		func() runtime.Object { return &corev1.PodList{} },
	}
}

// oddTexts have known parts in places where they are not to be found, or more than once.
var oddTexts = []string{
	`{"spec":{"nodeSelector":{"disk":"a-very-fast-one"}},"metadata":{"labels":{"disk":"a-very-fast-one"}}}`,
	`{"spec":{"nodeSelector":{"disk":"a-very-fast-one"},"nodeSelector":{"disk":"a-very-fast-one"}}}`,
	`{"spec":{"nodeSelector":{"disk":"a-very-fast-one"},"nodeSelector":{"disk":"another-that-is-slow"}}}`,
	`{"spec":{"nodeSelector":{"disk":"a-very-fast-one"},"node\u0053elector":{"disk":"another-one-still"}}}`,
	`{"spec":{"nodeSelector":{"disk":"a-very-fast-one"},,"nodeName":"n"}}`,
	`{"spec":{"nodeSelector":{"disk":"a-very-fast-one"}"nodeName":"n"}}`,
	`{"spec":{"nodeSelector":{"disk":"a-very-fast-one"}]}`,
	`{"spec":{"nodeSelector":[{"disk":"a-very-fast-one"}]}}`,
	`{"spec":{"containers":{"disk":"a-very-fast-one"}}}`,
	`{"spec":{"nodeSelector":{"disk":"a-very-fast-one"}}} trailing`,
	`{"spec" : { "containers" : [ { "name" : "a", "env" : [ ] } , null , {} ] } }`,
	`{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"100m","memory":"1Gi"}}},` +
		`{"name":"b","resources":{"requests":{"cpu":"100m","memory":"1Gi"}}}]}}`,
	`{"items":[{"spec":{"nodeSelector":{"disk":"a-very-fast-one"}}},{"spec":{"nodeSelector":{"disk":"a-very-fast-one"}}}]}`,
	`{"data":{"key":"a value that is not short"},"immutable":true}`,
	strings.Repeat(`{"spec":`, 50) + strings.Repeat("}", 50),
}

func TestPartsDecodeTheSame(t *testing.T) {
	for _, empty := range kindsToDecode() {
		parts := new(wire.Parts)
		for range 2 { // what one text has taught is there when the others come again
			for _, text := range append(oddTexts, texts...) {
				compareParts(t, parts, text, empty)
			}
		}
	}
}

func FuzzParts(f *testing.F) {
	for _, text := range append(oddTexts, texts...) {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		for _, empty := range kindsToDecode() {
			parts := new(wire.Parts)
			compareParts(t, parts, first, empty)
			compareParts(t, parts, second, empty)
		}
	})
}

func decodePod(t *testing.T, parts *wire.Parts, name, volume string) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	text := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"app":"web-that-is-shared"}},"spec":{"containers":[{"name":"c",`+
		`"env":[{"name":"A","value":"what all pods have"}],"volumeMounts":[{"name":%q,"mountPath":"/data"}]}]}}`, name, volume)
	if err := parts.Decode([]byte(text), &pod); err != nil {
		t.Fatal(err)
	}
	return &pod
}

func env(pod *corev1.Pod) *corev1.EnvVar { return &pod.Spec.Containers[0].Env[0] }

// What two objects have in common, they share, however deep it lies.
func TestPartsAreShared(t *testing.T) {
	var parts wire.Parts
	a, b := decodePod(t, &parts, "a", "x"), decodePod(t, &parts, "b", "x")
	if &a.Spec.Containers[0] != &b.Spec.Containers[0] {
		t.Error("equal containers are held twice")
	}
	c := decodePod(t, &parts, "c", "y")
	if &a.Spec.Containers[0] == &c.Spec.Containers[0] {
		t.Error("different containers are held once")
	}
	if env(a) != env(c) {
		t.Error("an equal environment of different containers is held twice")
	}
	if got := c.Spec.Containers[0].VolumeMounts[0].Name; got != "y" {
		t.Errorf("the mount is of %q, want y", got)
	}
}

// What has not come up between two sweeps is forgotten, and what has is not.
func TestPartsAreForgotten(t *testing.T) {
	var parts wire.Parts
	a := decodePod(t, &parts, "a", "x")
	for range 3 {
		parts.Sweep()
		if env(decodePod(t, &parts, "b", "x")) != env(a) {
			t.Fatal("forgotten, though it came up")
		}
	}
	parts.Sweep()
	parts.Sweep()
	if env(decodePod(t, &parts, "b", "x")) == env(a) {
		t.Error("remembered, though it did not come up")
	}
}

// Parts that come up once push out those that came up once, and not what all have.
func TestPartsAreBounded(t *testing.T) {
	var parts wire.Parts
	a := decodePod(t, &parts, "a", "unique")
	containers := &a.Spec.Containers[0]
	for i := range 10_000 {
		decodePod(t, &parts, fmt.Sprint("pod-", i), fmt.Sprint("volume-", i))
	}
	b := decodePod(t, &parts, "b", "unique")
	if env(b) != env(a) {
		t.Error("what all pods have was forgotten")
	}
	if &b.Spec.Containers[0] == containers {
		t.Error("what came up once was remembered for 10,000 others")
	}
}

// Kinds of the scheme that contain themselves, or any type, have shapes.
func TestPartsOfEveryKind(t *testing.T) {
	var parts wire.Parts
	for gvk := range scheme.Scheme.AllKnownTypes() {
		obj, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"kind":%q,"metadata":{"labels":{"name":"a value of some length"}}}`, gvk.Kind)
		compareParts(t, &parts, text, func() runtime.Object { return obj.DeepCopyObject() })
	}
}

// A type that reads its text itself gets all of it.
func TestPartsLeaveAloneWhatReadsItself(t *testing.T) {
	var parts wire.Parts
	text := `{"plain":{"a-key":"a value of some length"},"own":{"values":{"a-key":"a value of some length"}}}`
	compareParts(t, &parts, text, func() runtime.Object { return new(selfish) })
}

type selfish struct {
	metav1.TypeMeta `json:",inline"`
	Plain           map[string]string `json:"plain"`
	Own             own               `json:"own"`
}

func (s *selfish) DeepCopyObject() runtime.Object { c := *s; return &c }

type own struct {
	Values map[string]string `json:"values"`
}

func (o *own) UnmarshalJSON(text []byte) error {
	o.Values = map[string]string{"read": string(text)}
	return nil
}
