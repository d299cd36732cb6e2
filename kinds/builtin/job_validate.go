package builtin

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// managedByMax is how long the name of the controller that manages a Job may be.
const managedByMax = 63

func validateNewJob(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	if !spec.Bool("manualSelector") && spec.Has("selector") {
		madeSelector(&e, obj, spec)
	}
	jobSpec(&e, spec)
	jobSelector(&e, spec)
	hostnamesFit(&e, obj)
	return e.List()
}

// madeSelector checks that the labels that were there before the server made them were the same.
func madeSelector(e *check.Errors, obj kinds.Object, spec check.At) {
	meta := spec.Child("template").Child("metadata")
	uid, name := tree.Str(obj, "metadata", "uid"), tree.Str(obj, "metadata", "name")
	want := []struct{ key, value string }{
		{jobUIDLabels[0], uid}, {jobNameLabels[0], name}, {jobUIDLabels[1], uid}, {jobNameLabels[1], name},
	}
	expected, set := labels.Set{}, meta.StringMap("labels")
	for _, l := range want {
		expected[l.key] = l.value
		if set[l.key] != l.value {
			e.Invalid(meta.At("labels").Key(l.key), set, fmt.Sprintf("must be '%s'", l.value))
		}
	}
	selector := check.LabelSelector(spec.Child("selector").Map)
	if s, err := metav1.LabelSelectorAsSelector(selector); err == nil && !s.Matches(expected) {
		e.Invalid(spec.At("selector"), selector, "`selector` not auto-generated")
	}
}

// jobSelector checks that a Job finds the pods it makes.
func jobSelector(e *check.Errors, spec check.At) {
	selector := check.LabelSelector(spec.Child("selector").Map)
	if selector == nil {
		e.Required(spec.At("selector"), "")
	}
	e.LabelSelector(spec, "selector")
	meta := spec.Child("template").Child("metadata")
	set := meta.StringMap("labels")
	if s, err := metav1.LabelSelectorAsSelector(selector); err == nil && !s.Matches(labels.Set(set)) {
		e.Invalid(meta.At("labels"), set, "`selector` does not match template `labels`")
	}
}

// hostnamesFit checks that the last pod of an Indexed Job can have its index in its host name.
func hostnamesFit(e *check.Errors, obj kinds.Object) {
	n, name := tree.Int(obj, "spec", "completions"), tree.Str(obj, "metadata", "name")
	if tree.Str(obj, "spec", "completionMode") != "Indexed" || n <= 0 {
		return
	}
	if last := fmt.Sprintf("%s-%d", name, n-1); len(validation.IsDNS1123Label(last)) > 0 {
		e.Invalid(check.NewPath("metadata", "name"), name,
			"will not able to create pod with invalid DNS label: "+last)
	}
}

// jobSpec checks the spec of a Job, or of a CronJob's template, but for the selector.
func jobSpec(e *check.Errors, spec check.At) {
	for _, name := range []string{
		"parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
		"backoffLimitPerIndex", "maxFailedIndexes",
	} {
		e.NotNegative(spec, name)
	}
	if spec.Has("maxFailedIndexes") && !spec.Has("backoffLimitPerIndex") {
		e.Required(spec.At("backoffLimitPerIndex"), "when maxFailedIndexes is specified")
	}
	if by := spec.Str("managedBy"); spec.Has("managedBy") {
		e.Add(validation.IsDomainPrefixedPath(spec.At("managedBy").Field(), by)...)
		if len(by) > managedByMax {
			e.TooLong(spec.At("managedBy"), managedByMax)
		}
	}
	e.OptionalOneOf(spec, "completionMode", "NonIndexed", "Indexed")
	switch spec.Str("completionMode") {
	case "Indexed":
		indexedJob(e, spec)
	case "", "NonIndexed":
		for _, name := range []string{"backoffLimitPerIndex", "maxFailedIndexes"} {
			if spec.Has(name) {
				e.Invalid(spec.At(name), spec.Int(name), "requires indexed completion mode")
			}
		}
	}
	if spec.Has("podFailurePolicy") {
		podFailurePolicy(e, spec)
	}
	if policy := spec.Child("successPolicy"); policy.Exists() {
		if spec.Str("completionMode") != "Indexed" {
			e.Invalid(policy.Path, successPolicyValue(policy), "requires indexed completion mode")
		} else {
			successPolicy(e, policy, spec.Int("completions"))
		}
	}
	if allowed := []string{"Failed", "TerminatingOrFailed"}; spec.Has("podFailurePolicy") {
		e.OptionalOneOf(spec, "podReplacementPolicy", allowed[:1]...)
	} else {
		e.OptionalOneOf(spec, "podReplacementPolicy", allowed...)
	}
	pod.CheckTemplate(e, spec.Child("template"))
	jobRestarts(e, spec)
}

func indexedJob(e *check.Errors, spec check.At) {
	n, most, parallel := spec.Int("completions"), spec.Int("maxFailedIndexes"), spec.Int("parallelism")
	if !spec.Has("completions") {
		e.Required(spec.At("completions"), "when completion mode is Indexed")
	}
	if parallel > indexedParallelMax {
		e.Invalid(spec.At("parallelism"), parallel,
			fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", indexedParallelMax))
	}
	path := spec.At("maxFailedIndexes")
	if spec.Has("completions") && most > n {
		e.Invalid(path, most, "must be less than or equal to completions")
	}
	if most > failedIndexesMax {
		e.Invalid(path, most, fmt.Sprintf("must be less than or equal to %d", failedIndexesMax))
	}
	if n <= manyCompletions || !spec.Has("backoffLimitPerIndex") {
		return
	}
	if !spec.Has("maxFailedIndexes") {
		e.Required(path, fmt.Sprintf("must be specified when completions is above %d", manyCompletions))
	}
	for _, bound := range []struct {
		name string
		most int64
	}{{"parallelism", manyParallel}, {"maxFailedIndexes", manyFailedIndexes}} {
		if v := spec.Int(bound.name); v > bound.most {
			e.Invalid(spec.At(bound.name), v,
				fmt.Sprintf("must be less than or equal to %d when completions are above %d and used with backoff limit per index",
					bound.most, manyCompletions))
		}
	}
}

// jobRestarts checks that the pods of a Job are let end.
func jobRestarts(e *check.Errors, spec check.At) {
	inner := spec.Child("template").Child("spec")
	path := inner.At("restartPolicy")
	switch policy := inner.Str("restartPolicy"); {
	case policy == "Always" || policy == "":
		e.Required(path, `valid values: "OnFailure", "Never"`)
	case policy != "OnFailure" && policy != "Never":
		e.NotSupported(path, policy, "OnFailure", "Never")
	case policy != "Never" && spec.Has("podFailurePolicy"):
		e.Invalid(path, policy, `only "Never" is supported when podFailurePolicy is specified`)
	}
}

func validateJobUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	spec, was := check.Root(obj).Child("spec"), check.Root(old).Child("spec")
	jobSpec(&e, spec)
	jobSelector(&e, spec)
	completionsKept(&e, spec, was)
	e.Unchanged(spec, was, "selector")
	jobTemplateKept(&e, spec, old)
	for _, name := range []string{
		"completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy",
	} {
		e.Unchanged(spec, was, name)
	}
	hostnamesFit(&e, obj)
	return e.List()
}

// completionsKept checks that what a Job counts towards changes only with its indexes.
func completionsKept(e *check.Errors, spec, was check.At) {
	if spec.Str("completionMode") != "Indexed" {
		e.Unchanged(spec, was, "completions")
		return
	}
	n := spec.Get("completions")
	if n != nil && !tree.Equal(n, was.Get("completions")) && n != spec.Get("parallelism") {
		e.Invalid(spec.At("completions"), n, "can only be modified in tandem with spec.parallelism")
	}
}

// jobTemplateKept checks that a Job goes on making the same pods. One that is suspended and has none may
// change where they run and what they ask for.
func jobTemplateKept(e *check.Errors, spec check.At, old kinds.Object) {
	template, was := spec.Child("template"), tree.Map(old, "spec", "template")
	idle := tree.Bool(old, "spec", "suspend") && tree.Int(old, "status", "active") == 0 &&
		(!tree.Has(old, "status", "startTime") || hasCondition(old, "Suspended"))
	if !idle {
		e.Unchanged(spec, check.At{Map: tree.Map(old, "spec")}, "template")
		return
	}
	inner := template.Child("spec")
	allowed := maps.Clone(tree.Map(was, "spec"))
	if allowed == nil {
		allowed = map[string]any{}
	}
	for _, name := range []string{"nodeSelector", "tolerations", "schedulingGates"} {
		tree.Move(name, inner.Map, allowed)
	}
	allowed["affinity"] = withNodeAffinity(tree.Map(allowed, "affinity"), tree.Map(inner.Map, "affinity"))
	for _, list := range []string{"containers", "initContainers"} {
		allowed[list] = withResources(tree.List(allowed, list), tree.List(inner.Map, list))
	}
	if !tree.Equal(inner.Map, allowed) {
		e.Invalid(template.Path.Child("spec"), inner.Map, check.Immutable)
	}
}

// withNodeAffinity is an affinity with another's choice of nodes; nil if there is nothing else in either.
func withNodeAffinity(was, is map[string]any) any {
	out := maps.Clone(was)
	if out == nil {
		out = map[string]any{}
	}
	tree.Move("nodeAffinity", is, out)
	if len(out) == 0 && is == nil {
		return nil
	}
	return out
}

// withResources is a list of containers that ask for what their namesakes at the same place do.
func withResources(was, is []any) []any {
	out := slices.Clone(was)
	if len(was) != len(is) {
		return out
	}
	for i := range out {
		before, _ := was[i].(map[string]any)
		after, _ := is[i].(map[string]any)
		if before != nil && before["name"] == after["name"] {
			c := maps.Clone(before)
			tree.Move("resources", after, c)
			out[i] = c
		}
	}
	return out
}
