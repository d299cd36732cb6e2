package pod

import (
	"fmt"
	"maps"
	"slices"
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
	spec, annotations := template.Child("spec"), template.Child("metadata").Child("annotations")
	w.labels(spec)
	for _, key := range deprecatedAnnotations {
		if annotations.Has(key.name) {
			w.add(annotations.Path.Key(key.name), key.text)
		}
	}
	for _, v := range spec.Each("volumes") {
		w.volume(v)
	}
	for _, v := range spec.Each("volumes") {
		w.overlaps(v)
	}
	w.repeated(spec, "hostAliases", "ip")
	w.repeated(spec, "imagePullSecrets", "name")
	for _, s := range spec.Each("imagePullSecrets") {
		if s.Str("name") == "" {
			w.add(s.At("name"), `invalid empty name ""`)
		}
	}
	w.fraction(spec.Child("overhead"), "memory")
	w.fraction(spec.Child("overhead"), "ephemeral-storage")
	w.profile(annotations, spec.Child("securityContext"), "seccompProfile", "seccomp.security.alpha.kubernetes.io/pod", seccompText)
	for c := range eachContainer(spec) {
		w.profiles(annotations, spec, c, template.Has("kind"))
		w.fractions(c)
		w.hiddenEnv(c)
	}
	w.ports(spec)
	w.portNames(spec)
	if spec.Int("terminationGracePeriodSeconds") < 0 {
		w.add(spec.At("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	w.affinity(spec)
	w.addresses(spec)
	return w.list
}

const (
	seccompText  = `non-functional in v1.27+; use the "seccompProfile" field instead`
	appArmorText = `deprecated since v1.30; use the "appArmorProfile" field instead`
)

var deprecatedAnnotations = []struct{ name, text string }{
	{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
	{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
}

type warner struct{ list []string }

func (w *warner) add(path check.Path, text string) {
	w.list = append(w.list, path.String()+": "+text)
}

// labels tells of nodes that are chosen by labels that have been replaced.
func (w *warner) labels(spec check.At) {
	selector := spec.StringMap("nodeSelector")
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if text := OldLabels[key]; text != "" {
			w.add(spec.At("nodeSelector").Key(key), text)
		}
	}
	node := spec.Child("affinity").Child("nodeAffinity")
	for _, term := range node.Child(required).Each("nodeSelectorTerms") {
		w.term(term, false)
	}
	for _, p := range node.Each(preferred) {
		w.term(p.Child("preference"), true)
	}
	for _, c := range spec.Each("topologySpreadConstraints") {
		w.label(c.At("topologyKey"), c.Str("topologyKey"))
		w.nullSelector(c)
	}
}

func (w *warner) label(path check.Path, key string) {
	if text := OldLabels[key]; text != "" {
		w.add(path, key+" is "+text)
	}
}

func (w *warner) term(term check.At, values bool) {
	for _, expr := range term.Each("matchExpressions") {
		w.label(expr.At("key"), expr.Str("key"))
		if !values {
			continue
		}
		for i, value := range expr.Strings("values") {
			for _, msg := range validation.IsValidLabelValue(value) {
				w.add(expr.At("values").Index(i), value+" is invalid, "+msg)
			}
		}
	}
}

// OldLabels are labels of nodes that have been replaced, and by what.
var OldLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
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
			w.fraction(c.Child("resources").Child(kind), resource)
		}
	}
}

func (w *warner) fraction(amounts check.At, resource string) {
	if q := Quantity(amounts.Get(resource)); q.MilliValue()%1000 != 0 {
		w.add(amounts.Path.Key(resource), fmt.Sprintf("fractional byte value %q is invalid, must be an integer", q.String()))
	}
}

// repeated tells of items of a list that are called the same.
func (w *warner) repeated(spec check.At, list, name string) {
	seen := map[string]bool{}
	for _, item := range spec.Each(list) {
		value := item.Str(name)
		if seen[value] {
			w.add(item.At(name), fmt.Sprintf("duplicate %s %q", name, value))
		}
		seen[value] = true
	}
}

// profiles tells of annotations that used to say what fields of a container's security context say now. Those
// of AppArmor are brought over from a pod of its own, so only templates are warned of them.
func (w *warner) profiles(annotations, spec, c check.At, isPod bool) {
	name, own := c.Str("name"), c.Child("securityContext")
	w.profile(annotations, own, "seccompProfile", "container.seccomp.security.alpha.kubernetes.io/"+name, seccompText)
	appArmor := appArmorAnnotation + name
	ofPod := spec.Child("securityContext").Child("appArmorProfile")
	if isPod || ofPod.Exists() && tree.Equal(ofPod.Map, appArmorProfile(annotations.Str(appArmor))) {
		return
	}
	w.profile(annotations, own, "appArmorProfile", appArmor, appArmorText)
}

func (w *warner) profile(annotations, context check.At, field, annotation, text string) {
	if annotations.Has(annotation) && !context.Has(field) {
		w.add(annotations.Path.Key(annotation), text)
	}
}

// addresses tells of addresses in spellings that not everybody reads the same way.
func (w *warner) addresses(spec check.At) {
	for i, text := range spec.Child("dnsConfig").Strings("nameservers") {
		w.list = append(w.list, validation.GetWarningsForIP(spec.At("dnsConfig").Child("nameservers").Index(i).Field(), text)...)
	}
	for _, alias := range spec.Each("hostAliases") {
		w.list = append(w.list, validation.GetWarningsForIP(alias.At("ip").Field(), alias.Str("ip"))...)
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
func (w *warner) ports(spec check.At) {
	ports := map[string][]check.At{}
	for c := range eachContainer(spec) {
		for _, p := range c.Each("ports") {
			if p.Str("hostIP") != "" && p.Int("hostPort") == 0 {
				w.add(p.Path, fmt.Sprintf("hostIP set without hostPort: {Name:%s HostPort:0 ContainerPort:%d Protocol:%s HostIP:%s}",
					p.Str("name"), p.Int("containerPort"), p.Str("protocol"), p.Str("hostIP")))
			}
			key := fmt.Sprintf("%d/%s", p.Int("containerPort"), p.Str("protocol"))
			for _, other := range ports[key] {
				if how := overlap(p, other); how != "" {
					w.add(p.Path, how+" port definition with "+other.Path.String())
				}
			}
			ports[key] = append(ports[key], p)
		}
	}
}

// overlap says how two definitions of one port go together; "" if they do.
func overlap(p, other check.At) string {
	host, otherHost := p.Int("hostPort"), other.Int("hostPort")
	ip, otherIP := p.Str("hostIP"), other.Str("hostIP")
	switch {
	case host == otherHost && ip == otherIP:
		return "duplicate"
	case host == 0 || otherHost == 0:
		return "overlapping"
	case host == otherHost && (ip == "") != (otherIP == ""):
		return "dangerously ambiguous"
	}
	return ""
}

func (w *warner) portNames(spec check.At) {
	names := map[string]check.Path{}
	for c := range eachContainer(spec) {
		for _, p := range c.Each("ports") {
			name := p.Str("name")
			if name == "" {
				continue
			}
			if other, ok := names[name]; ok {
				w.add(p.Path, fmt.Sprintf("duplicate port name %q with %s, services and probes that select ports by name will use %s",
					name, other, other))
			} else {
				names[name] = p.Path
			}
		}
	}
}
