package builtin

import (
	"fmt"
	"math"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Bounds on how requests are sorted and queued.
const (
	precedenceMax = 10000
	queuesMax     = 10_000_000
	// handBitsMax is how many bits of a hash there are to deal a hand of queues by.
	handBitsMax = 60
)

// exempt names the flow schema and the priority level of requests that never wait.
const exempt = "exempt"

// flowVerbs are what a rule can be about, sorted.
var flowVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func validateFlowSchema(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	n, path := spec.Int("matchingPrecedence"), spec.At("matchingPrecedence")
	if n <= 0 {
		e.Invalid(path, n, "must be a positive value")
	}
	if n > precedenceMax {
		e.Invalid(path, n, fmt.Sprintf("must not be greater than %d", precedenceMax))
	}
	if n == 1 && tree.Str(obj, "metadata", "name") != exempt {
		e.Invalid(path, n, "only the schema named 'exempt' may have matchingPrecedence 1")
	}
	if method := spec.Child("distinguisherMethod"); method.Exists() {
		if kind := method.Str("type"); kind != "ByNamespace" && kind != "ByUser" {
			e.NotSupported(method.At("type"), struct{ Type string }{kind}, "ByNamespace", "ByUser")
		}
	}
	level := tree.Str(spec.Map, "priorityLevelConfiguration", "name")
	at := check.NewPath("spec", "priorityLevelConfiguration", "name")
	if level == "" {
		e.Required(at, "must reference a priority level")
	} else {
		e.Messages(at, level, apivalidation.NameIsDNSSubdomain(level, false))
	}
	for _, rule := range spec.Each("rules") {
		flowRule(&e, rule)
	}
	return e.List()
}

func flowRule(e *check.Errors, rule check.At) {
	if rule.Len("subjects") == 0 {
		e.Required(rule.At("subjects"), "subjects must contain at least one value")
	}
	for _, s := range rule.Each("subjects") {
		flowSubject(e, s)
	}
	if rule.Len("resourceRules") == 0 && rule.Len("nonResourceRules") == 0 {
		e.Required(rule.Path, "at least one of resourceRules and nonResourceRules has to be non-empty")
	}
	for _, r := range rule.Each("resourceRules") {
		flowResources(e, r)
	}
	for _, r := range rule.Each("nonResourceRules") {
		flowVerb(e, r)
		flowURLs(e, r)
	}
}

// subjectKinds are the kinds of subjects, each with the field that says which, in the order in which
// others are complained about.
var subjectKinds = []struct{ kind, field string }{
	{"ServiceAccount", "serviceAccount"}, {"User", "user"}, {"Group", "group"},
}

func flowSubject(e *check.Errors, s check.At) {
	kind := s.Str("kind")
	at := slices.IndexFunc(subjectKinds, func(k struct{ kind, field string }) bool { return k.kind == kind })
	if at < 0 {
		e.NotSupported(s.At("kind"), kind, "Group", "ServiceAccount", "User")
		return
	}
	name := subjectKinds[at].field
	switch subject := s.Child(name); {
	case !subject.Exists():
		e.Required(subject.Path, fmt.Sprintf("%s is required when subject kind is '%s'", name, kind))
	case subject.Str("name") == "":
		e.Required(subject.At("name"), "")
		fallthrough
	default:
		if kind == "ServiceAccount" {
			flowAccount(e, subject)
		}
	}
	for _, k := range subjectKinds {
		if k.kind != kind && s.Has(k.field) {
			e.Forbidden(s.At(k.field), fmt.Sprintf("%s is forbidden when subject kind is not '%s'", k.field, k.kind))
		}
	}
}

func flowAccount(e *check.Errors, account check.At) {
	if name := account.Str("name"); name != "" && name != "*" {
		e.Messages(account.At("name"), name, apivalidation.ValidateServiceAccountName(name, false))
	}
	if namespace := account.Str("namespace"); namespace == "" {
		e.Required(account.At("namespace"), "must specify namespace for service account")
	} else {
		e.Messages(account.At("namespace"), namespace, apivalidation.ValidateNamespaceName(namespace, false))
	}
}

func flowVerb(e *check.Errors, r check.At) {
	verbs, path := r.Strings("verbs"), r.At("verbs")
	unknown := func(verb string) bool { return !slices.Contains(flowVerbs, verb) }
	switch {
	case len(verbs) == 0:
		e.Required(path, "verbs must contain at least one value")
	case slices.Contains(verbs, "*"):
		if len(verbs) > 1 {
			e.Invalid(path, verbs, "if '*' is present, must not specify other verbs")
		}
	case slices.ContainsFunc(verbs, unknown):
		e.NotSupported(path, verbs, flowVerbs...)
	}
}

func flowResources(e *check.Errors, r check.At) {
	flowVerb(e, r)
	for _, f := range []struct{ field, one, others string }{
		{"apiGroups", "api group", "api groups"}, {"resources", "resource", "resources"},
	} {
		if list := r.Strings(f.field); len(list) == 0 {
			e.Required(r.At(f.field), "resource rules must supply at least one "+f.one)
		} else if len(list) > 1 && slices.Contains(list, "*") {
			e.Invalid(r.At(f.field), list, "if '*' is present, must not specify other "+f.others)
		}
	}
	namespaces, path := r.Strings("namespaces"), r.At("namespaces")
	switch {
	case len(namespaces) == 0:
		if !r.Bool("clusterScope") {
			e.Required(path, "resource rules that are not cluster scoped must supply at least one namespace")
		}
	case slices.Contains(namespaces, "*"):
		if len(namespaces) > 1 {
			e.Invalid(path, namespaces, "if '*' is present, must not specify other namespaces")
		}
	default:
		for i, name := range namespaces {
			for _, msg := range apivalidation.ValidateNamespaceName(name, false) {
				e.Invalid(path.Index(i), name, "each member of this list must be '*' or a DNS-1123 label; "+msg)
			}
		}
	}
}

func flowURLs(e *check.Errors, r check.At) {
	urls, path := r.Strings("nonResourceURLs"), r.At("nonResourceURLs")
	switch {
	case len(urls) == 0:
		e.Required(path, "nonResourceURLs must contain at least one value")
	case slices.Contains(urls, "*"):
		if len(urls) > 1 {
			e.Invalid(path, urls, "if '*' is present, must not specify other non-resource URLs")
		}
	default:
		for i, url := range urls {
			if why := badPattern(url); why != "" {
				e.Invalid(path.Index(i), url, why)
			}
		}
	}
}

// badPattern says why a path cannot be matched by, or "".
func badPattern(url string) string {
	switch {
	case url == "":
		return "must not be empty"
	case url == "/":
		return ""
	case !strings.HasPrefix(url, "/"):
		return "must start with slash"
	case strings.Contains(url, " "):
		return "must not contain white-space"
	case strings.Contains(url, "//"):
		return "must not contain double slash"
	case strings.Contains(strings.TrimSuffix(url, "/*"), "*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}

func validatePriorityLevel(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	kind := spec.Str("type")
	if (tree.Str(obj, "metadata", "name") == exempt) != (kind == "Exempt") {
		e.Invalid(check.NewPath("spec", "type"), kind, "must be 'Exempt' if and only if `name` is 'exempt'")
	}
	limited, free := spec.Child("limited"), spec.Child("exempt")
	switch kind {
	case "Exempt":
		concurrency(&e, free)
	case "Limited":
		concurrency(&e, limited)
	case "":
	default:
		e.NotSupported(spec.At("type"), kind, "Exempt", "Limited")
	}
	if free.Exists() && kind != "Exempt" {
		e.Later().Forbidden(free.Path, "")
	}
	if limited.Exists() && kind != "Limited" {
		e.Later().Forbidden(limited.Path, "")
	}
	if !limited.Exists() && kind == "Limited" {
		e.Later().Required(limited.Path, "")
	}
	if kind == "" {
		e.Later().Required(check.NewPath("spec", "type"), "")
	}
	if limited.Exists() {
		responseParts(e.Later(), limited.Child("limitResponse"))
	}
	return e.List()
}

// responseParts checks that what becomes of requests beyond a limit has the parts of its type, and no others.
func responseParts(e *check.Errors, r check.At) {
	queuing, kind := r.Child("queuing"), r.Str("type")
	if queuing.Exists() && kind != "Queue" {
		e.Forbidden(queuing.Path, "")
	}
	if !queuing.Exists() && kind == "Queue" {
		e.Required(queuing.Path, "")
	}
	if kind == "" {
		e.Required(r.At("type"), "")
	}
}

// concurrency checks the share of a priority level, and what becomes of requests beyond it.
func concurrency(e *check.Errors, level check.At) {
	if n := level.Int("nominalConcurrencyShares"); n < 0 {
		e.Invalid(level.At("nominalConcurrencyShares"), n, "must be a non-negative integer")
	}
	if level.Has("limitResponse") {
		limitResponse(e, level.Child("limitResponse"))
	}
	if n := level.Int("lendablePercent"); n < 0 || n > 100 {
		e.Invalid(level.At("lendablePercent"), n, "must be between 0 and 100, inclusive")
	}
	if n := level.Int("borrowingLimitPercent"); n < 0 {
		e.Invalid(level.At("borrowingLimitPercent"), n, "if specified, must be a non-negative integer")
	}
}

func limitResponse(e *check.Errors, r check.At) {
	switch kind, queuing := r.Str("type"), r.Child("queuing"); {
	case kind == "Queue" && queuing.Exists():
		queueing(e, queuing)
	case kind != "" && kind != "Queue" && kind != "Reject":
		e.NotSupported(r.At("type"), kind, "Queue", "Reject")
	}
}

func queueing(e *check.Errors, q check.At) {
	if n := q.Int("queueLengthLimit"); n <= 0 {
		e.Invalid(q.At("queueLengthLimit"), n, "must be positive")
	}
	deck, hand := q.Int("queues"), q.Int("handSize")
	if deck <= 0 {
		e.Invalid(q.At("queues"), deck, "must be positive")
	} else if deck > queuesMax {
		e.Invalid(q.At("queues"), deck, fmt.Sprintf("must not be greater than %d", queuesMax))
	}
	switch path := q.At("handSize"); {
	case hand <= 0:
		e.Invalid(path, hand, "must be positive")
	case hand > deck:
		e.Invalid(path, hand, fmt.Sprintf("should not be greater than queues (%d)", deck))
	case handBits(deck, hand) > handBitsMax:
		e.Invalid(path, hand, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d",
			deck, hand, handBitsMax))
	}
}

// handBits is how many bits of a hash it takes to deal a hand.
func handBits(deck, hand int64) int { return int(math.Ceil(math.Log2(float64(deck)) * float64(hand))) }
