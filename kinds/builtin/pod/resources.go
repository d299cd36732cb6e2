package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const (
	hugePages     = "hugepages-"
	notNegative   = "must be greater than or equal to 0"
	notAnInteger  = "must be an integer"
	nativeDomain  = "kubernetes.io/"
	requestPrefix = "requests."
)

// standardResources are the names without a domain that mean something somewhere; a container can
// have the first three, and huge pages.
var standardResources = []string{
	"cpu", "memory", "ephemeral-storage",
	"requests.cpu", "requests.memory", "requests.ephemeral-storage",
	"limits.cpu", "limits.memory", "limits.ephemeral-storage",
	"pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
	"persistentvolumeclaims", "storage", "requests.storage", "services.nodeports", "services.loadbalancers",
}

// countedResources are those of them of which there is a whole number.
var countedResources = []string{
	"pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
	"persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
}

// nameRule checks the name of a resource where it is used.
type nameRule func(e *check.Errors, path check.Path, name string)

// resources checks limits and requests, each by itself and against each other.
func resources(e *check.Errors, r check.At, claims sets.Set[string], rule nameRule) {
	limits, requests := tree.Map(r.Map, "limits"), tree.Map(r.Map, "requests")
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		path := r.At("limits").Key(name)
		rule(e, path, name)
		amount(e, path, name, limits[name])
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		path := r.At("requests").Key(name)
		rule(e, path, name)
		amount(e, path, name, requests[name])
		requestWithinLimit(e, r, name, requests[name], limits[name])
	}
	if (hasHugePages(limits) || hasHugePages(requests)) && !hasCompute(limits) && !hasCompute(requests) {
		e.Forbidden(r.Path, "HugePages require cpu or memory")
	}
	claimNames(e, r, claims)
}

func requestWithinLimit(e *check.Errors, r check.At, name string, request, limit any) {
	path := r.At("requests")
	if limit == nil {
		if !overcommits(name) {
			e.Required(r.At("limits"), "Limit must be set for non overcommitable resources")
		}
		return
	}
	req, lim := Quantity(request), Quantity(limit)
	switch c := req.Cmp(lim); {
	case c != 0 && !overcommits(name):
		e.Invalid(path, req.String(),
			fmt.Sprintf("must be equal to %s limit of %s", name, lim.String()))
	case c > 0:
		e.Invalid(path, req.String(),
			fmt.Sprintf("must be less than or equal to %s limit of %s", name, lim.String()))
	}
}

func claimNames(e *check.Errors, r check.At, claims sets.Set[string]) {
	seen := sets.Set[string]{}
	path := r.At("claims")
	for i, claim := range r.Each("claims") {
		name := claim.Str("name")
		if name == "" {
			e.Required(path.Index(i), "")
			continue
		}
		key := name
		if request := claim.Str("request"); request != "" {
			e.DNSLabel(claim.At("request"), request)
			key += "/" + request
		}
		if seen.Has(name) || seen.Has(key) {
			e.Duplicate(path.Index(i), key)
		}
		seen.Insert(key)
		if !claims.Has(name) {
			err := field.NotFound(path.Index(i).Field(), name)
			err.Detail = "must be one of the names in pod.spec.resourceClaims"
			if len(claims) == 0 {
				err.Detail += " which is empty"
			} else {
				err.Detail += ": " + strings.Join(sets.List(claims), ", ")
			}
			e.Add(err)
		}
	}
}

// amount checks that there can be so much of a resource.
func amount(e *check.Errors, path check.Path, name string, value any) {
	q := Quantity(value)
	CheckAmount(e, path, name, q)
	if size, ok := strings.CutPrefix(name, hugePages); ok {
		page, err := schema.ParseQuantity(size)
		if err != nil || page.Sign() <= 0 || q.Value()%page.Value() != 0 {
			e.Invalid(path, q.String(),
				fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name))
		}
	}
}

// CheckAmount checks that an amount of a resource, of a container or of a node, is not negative,
// and whole where only whole ones make sense.
func CheckAmount(e *check.Errors, path check.Path, name string, q resource.Quantity) {
	if q.Sign() < 0 {
		e.Invalid(path, q.String(), notNegative)
	}
	if (slices.Contains(countedResources, name) || isExtended(name)) && q.MilliValue()%1000 != 0 {
		e.Invalid(path, q.String(), notAnInteger)
	}
}

// Quantity reads a canonical quantity; what is none is zero, since decoding refuses it.
func Quantity(v any) resource.Quantity {
	s, _ := v.(string)
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return resource.Quantity{}
	}
	return q
}

func containerResourceName(e *check.Errors, path check.Path, name string) {
	resourceName(e, path, name)
	switch { // upstream tells of a name that is nowhere right twice
	case !strings.Contains(name, "/"):
		if !slices.Contains(standardResources[:3], name) && !strings.HasPrefix(name, hugePages) {
			e.Invalid(path, name, "must be a standard resource for containers")
		}
	case !isNative(name) && !isExtended(name):
		e.Invalid(path, name, "doesn't follow extended resource name standard")
	}
}

func podResourceName(e *check.Errors, path check.Path, name string) {
	if resourceName(e, path, name) && name != "cpu" && name != "memory" && !strings.HasPrefix(name, hugePages) {
		e.NotSupported(path, name, "cpu", hugePages, "memory")
	}
}

// CheckContainerResourceName checks the name of a resource that a container can have.
func CheckContainerResourceName(e *check.Errors, path check.Path, name string) {
	containerResourceName(e, path, name)
}

// CheckResourceName checks the name of a resource of any kind. It says whether that is right.
func CheckResourceName(e *check.Errors, path check.Path, name string) bool {
	return resourceName(e, path, name)
}

// Overcommits says whether there may be a higher limit of a resource than what is set aside.
func Overcommits(name string) bool { return overcommits(name) }

// resourceName checks a name as such; it says whether that is right, so that one mistake is told once.
func resourceName(e *check.Errors, path check.Path, name string) bool {
	if slices.Contains(standardResources, name) {
		return true
	}
	if msgs := validation.IsQualifiedName(name); len(msgs) > 0 {
		e.Messages(path, name, msgs)
		return false
	}
	if !strings.Contains(name, "/") && !strings.HasPrefix(name, hugePages) {
		e.Invalid(path, name, "must be a standard resource type or fully qualified")
		return false
	}
	return true
}

func isNative(name string) bool {
	return !strings.Contains(name, "/") || strings.Contains(name, nativeDomain)
}

func isExtended(name string) bool {
	return !isNative(name) && !strings.HasPrefix(name, requestPrefix) &&
		len(validation.IsQualifiedName(requestPrefix+name)) == 0
}

// overcommits says whether a container may have a higher limit than what is set aside for it.
func overcommits(name string) bool { return isNative(name) && !strings.HasPrefix(name, hugePages) }

func hasHugePages(list map[string]any) bool {
	for name := range list {
		if strings.HasPrefix(name, hugePages) {
			return true
		}
	}
	return false
}

func hasCompute(list map[string]any) bool { return list["cpu"] != nil || list["memory"] != nil }

// podResources checks what a pod asks for as a whole.
func podResources(e *check.Errors, ctx *context) {
	r := ctx.spec.Child("resources")
	if !r.Exists() {
		return
	}
	if r.Has("claims") {
		e.Forbidden(r.At("claims"), "claims may not be set for Resources at pod-level")
	}
	resources(e, r, ctx.claims, podResourceName)
	for i, c := range ctx.spec.Each("containers") {
		limits := tree.Map(c.Map, "resources", "limits")
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			whole, ok := tree.Map(r.Map, "limits")[name]
			if !ok {
				continue
			}
			own, most := Quantity(limits[name]), Quantity(whole)
			if own.Cmp(most) > 0 {
				path := r.At("containers").Index(i).Key(name).Child("limits")
				e.Invalid(path, own.String(),
					"must be less than or equal to pod limits of "+most.String())
			}
		}
	}
}
