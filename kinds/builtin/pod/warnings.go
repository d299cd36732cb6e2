package pod

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// warnings tells what is allowed and probably not meant, in a new pod: those that change are written
// by programs.
func warnings(obj, old kinds.Object) []string {
	if old != nil {
		return nil
	}
	var w []string
	if msgs := validation.IsDNS1123Label(tree.Str(obj, "metadata", "name")); len(msgs) > 0 {
		w = append(w,
			fmt.Sprintf("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v", msgs))
	}
	return append(w, Warnings(check.Root(obj))...)
}

// Warnings tells the same of a pod's template, at a place such as spec.template.
func Warnings(template check.At) []string {
	w := warner{}
	spec := template.Child("spec")
	for _, key := range deprecatedAnnotations {
		if tree.Has(template.Map, "metadata", "annotations", key.name) {
			w.add(template.Child("metadata").At("annotations").Key(key.name), key.text)
		}
	}
	for _, c := range spec.Each("topologySpreadConstraints") {
		w.nullSelector(c)
	}
	w.affinity(spec)
	if spec.Int("terminationGracePeriodSeconds") < 0 {
		w.add(spec.At("terminationGracePeriodSeconds"),
			"must be >= 0; negative values are invalid and will be treated as 1")
	}
	names, ports := map[string]check.Path{}, map[string]check.At{}
	for c := range eachContainer(spec) {
		w.fractions(c)
		w.hiddenEnv(c)
		w.ports(c, names, ports)
	}
	return w.list
}

var deprecatedAnnotations = []struct{ name, text string }{
	{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
	{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
}

type warner struct{ list []string }

func (w *warner) add(path check.Path, text string) {
	w.list = append(w.list, path.String()+": "+text)
}

func (w *warner) nullSelector(a check.At) {
	if a.Exists() && !a.Has("labelSelector") {
		w.add(a.At("labelSelector"), "a null labelSelector results in matching no pod")
	}
}

func (w *warner) affinity(spec check.At) {
	for _, name := range []string{"podAffinity", "podAntiAffinity"} {
		a := spec.Child("affinity").Child(name)
		for _, term := range a.Each(required) {
			w.nullSelector(term)
		}
		for _, p := range a.Each(preferred) {
			w.nullSelector(p.Child("podAffinityTerm"))
		}
	}
}

// fractions tells of memory and storage that is not a whole number of bytes, such as "500m".
func (w *warner) fractions(c check.At) {
	for _, resource := range []string{"memory", "ephemeral-storage"} {
		for _, kind := range []string{"limits", "requests"} {
			r := c.Child("resources").Child(kind)
			if q := Quantity(r.Get(resource)); q.MilliValue()%1000 != 0 {
				w.add(r.Path.Key(resource),
					fmt.Sprintf("fractional byte value %q is invalid, must be an integer", q.String()))
			}
		}
	}
}

// hiddenEnv tells of a variable that is set twice, unless the second is made of the first.
func (w *warner) hiddenEnv(c check.At) {
	if c.Len("env") < 2 {
		return
	}
	seen := map[string]bool{}
	for _, v := range c.Each("env") {
		name, value := v.Str("name"), v.Str("value")
		ref := "$(" + name + ")"
		if seen[name] && (v.Has("valueFrom") || value == ref || !strings.Contains(value, ref)) {
			w.add(v.Path,
				fmt.Sprintf("hides previous definition of %q, which may be dropped when using apply", name))
		}
		seen[name] = true
	}
}

// ports tells of ports that several containers, or one several times, say they listen on.
func (w *warner) ports(c check.At, names map[string]check.Path, ports map[string]check.At) {
	for _, p := range c.Each("ports") {
		key := fmt.Sprintf("%d/%s", p.Int("containerPort"), p.Str("protocol"))
		if other, ok := ports[key]; ok {
			switch {
			case p.Int("hostPort") == other.Int("hostPort") && p.Str("hostIP") == other.Str("hostIP"):
				w.add(p.Path, "duplicate port definition with "+other.Path.String())
			case p.Int("hostPort") == 0 || other.Int("hostPort") == 0:
				w.add(p.Path, "overlapping port definition with "+other.Path.String())
			}
		} else {
			ports[key] = p
		}
		name := p.Str("name")
		if name == "" {
			continue
		}
		if other, ok := names[name]; ok {
			w.add(p.Path,
				fmt.Sprintf("duplicate port name %q with %s, services and probes that select ports by name will use %s", name, other, other))
		} else {
			names[name] = p.Path
		}
	}
}
