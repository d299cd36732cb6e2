package builtin

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const resourceGroup = "resource.k8s.io"

func resourceClaim() *kinds.Kind {
	return &kinds.Kind{
		Group: resourceGroup, Version: "v1", Kind: "ResourceClaim",
		Resource: "resourceclaims", Singular: "resourceclaim", Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.resource.v1.ResourceClaim"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("State", "A summary of the current state (allocated, pending, reserved, etc.).", claimState),
			table.Age(),
		},
		Status:             true,
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default:                func(obj kinds.Object) { defaultRequests(tree.Map(obj, "spec", "devices")) },
			PrepareForCreate:       prepareClaim,
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: prepareClaimStatus,
			ValidateCreate:         validateClaim,
			ValidateUpdate:         declaredImmutable("spec"),
			ValidateStatusUpdate:   validateResourceClaimStatus,
		},
	}
}

func resourceClaimTemplate() *kinds.Kind {
	return &kinds.Kind{
		Group: resourceGroup, Version: "v1", Kind: "ResourceClaimTemplate",
		Resource: "resourceclaimtemplates", Singular: "resourceclaimtemplate", Namespaced: true,
		Schema:             schema.Builtin("io.k8s.api.resource.v1.ResourceClaimTemplate"),
		Columns:            []kinds.Column{table.Name(), table.Age()},
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default:          func(obj kinds.Object) { defaultRequests(tree.Map(obj, "spec", "spec", "devices")) },
			PrepareForCreate: prepareClaimTemplate,
			Validate:         validateClaimTemplate,
			ValidateUpdate:   unchanged("spec"),
		},
	}
}

func prepareClaim(env *kinds.Env, obj kinds.Object) error {
	obj["status"] = map[string]any{}
	if refused := adminRefused(env, obj, tree.Maps(obj, "spec", "devices", "requests")); refused != nil {
		return invalidClaim("ResourceClaim", obj, refused, validateClaim(obj))
	}
	return nil
}

func prepareClaimTemplate(env *kinds.Env, obj kinds.Object) error {
	if refused := adminRefused(env, obj, tree.Maps(obj, "spec", "spec", "devices", "requests")); refused != nil {
		return invalidClaim("ResourceClaimTemplate", obj, refused, validateClaimTemplate(obj))
	}
	return nil
}

func validateClaim(obj kinds.Object) field.ErrorList {
	var e check.Errors
	deviceClaim(&e, check.Root(obj).Child("spec").Child("devices"))
	return e.List()
}

// claimState sums up what has become of a claim: "allocated,reserved".
func claimState(obj kinds.Object, _ time.Time) any {
	var states []string
	deleted := tree.Has(obj, "metadata", "deletionTimestamp")
	if deleted {
		states = append(states, "deleted")
	}
	switch {
	case !tree.Has(obj, "status", "allocation"):
		if !deleted {
			states = append(states, "pending")
		}
	case len(tree.List(obj, "status", "reservedFor")) > 0:
		states = append(states, "allocated", "reserved")
	default:
		states = append(states, "allocated")
	}
	return strings.Join(states, ",")
}

func defaultRequests(devices map[string]any) {
	for _, request := range tree.Maps(devices, "requests") {
		if exactly := tree.Map(request, "exactly"); exactly != nil {
			defaultRequest(exactly)
		}
		for _, sub := range tree.Maps(request, "firstAvailable") {
			defaultRequest(sub)
		}
	}
}

func defaultRequest(r map[string]any) {
	setIfEmpty(r, "allocationMode", exactCount)
	if tree.Str(r, "allocationMode") == exactCount && tree.Int(r, "count") == 0 {
		r["count"] = int64(1)
	}
}

// prepareClaimStatus drops what drivers said of devices that are allocated no more.
func prepareClaimStatus(env *kinds.Env, obj, old kinds.Object) {
	keepSpec(env, obj, old)
	if tree.Has(old, "status", "allocation") && !tree.Has(obj, "status", "allocation") {
		tree.Delete(obj, "status", "devices")
	}
}

func validateClaimTemplate(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	e.TemplateMeta(spec.Child("metadata"))
	deviceClaim(&e, spec.Child("spec").Child("devices"))
	return e.List()
}

func validateResourceClaimStatus(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	consumers(&e, status)
	if status.Len("reservedFor") > 0 && !status.Has("allocation") {
		e.Forbidden(status.At("reservedFor"), "may not be specified when `allocated` is not set")
	}
	was, is := tree.Map(old, "status", "allocation"), status.Child("allocation")
	switch {
	case was != nil && is.Exists():
		if !tree.Equal(was, is.Map) {
			e.Later().Invalid(is.Path, nil, "field cannot be modified once set")
		}
	case is.Exists():
		allocation(&e, is, requestNames(tree.Map(obj, "spec", "devices")))
	}
	return e.List()
}

// consumers checks who uses a claim; each is there once.
func consumers(e *check.Errors, status check.At) {
	if n := status.Len("reservedFor"); n > consumersMax {
		e.Later().TooMany(status.At("reservedFor"), n, consumersMax)
		return
	}
	seen := map[string]bool{}
	for _, ref := range status.Each("reservedFor") {
		for _, name := range []string{"resource", "name", "uid"} {
			if ref.Str(name) == "" {
				e.Required(ref.At(name), "")
			}
		}
		if seen[ref.Str("uid")] {
			e.Later().Duplicate(ref.Path, ref.Map)
		}
		seen[ref.Str("uid")] = true
	}
}

// allocation checks which devices a claim was given.
func allocation(e *check.Errors, a check.At, names map[string][]string) {
	devices := a.Child("devices")
	for _, r := range devices.Each("results") {
		requestRef(e, r.At("request"), r.Str("request"), names)
		attacher(e, r.At("driver"), r.Str("driver"))
		poolName(e.Later(), r.At("pool"), r.Str("pool"))
		e.DNSLabel(r.At("device"), r.Str("device"))
	}
	for _, c := range devices.Each("config") {
		if source := c.Str("source"); source == "" {
			e.Later().Required(c.At("source"), "")
		} else if source != "FromClass" && source != "FromClaim" {
			e.Later().NotSupported(c.At("source"), source, "FromClaim", "FromClass")
		}
		claimConfig(e, c, names)
	}
	if sel := a.Child("nodeSelector"); sel.Exists() {
		pod.CheckNodeSelector(e, sel)
	}
}
