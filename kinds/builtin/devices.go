package builtin

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// How many devices a request asks for.
const (
	exactCount = "ExactCount"
	allDevices = "All"
)

// Upstream's bounds on claims.
const (
	requestsMax    = 32
	constraintsMax = 32
	configsMax     = 32
	selectorsMax   = 32
	choicesMax     = 8
	consumersMax   = 256
	poolNameMax    = 253 // bytes
	deviceIDMax    = 32
)

// requestNames are the names of the requests of a claim, each with those of its alternatives.
func requestNames(devices map[string]any) map[string][]string {
	names := map[string][]string{}
	for _, r := range tree.Maps(devices, "requests") {
		var subs []string
		for _, sub := range tree.Maps(r, "firstAvailable") {
			subs = append(subs, tree.Str(sub, "name"))
		}
		names[tree.Str(r, "name")] = subs
	}
	return names
}

// bounded says whether a list is short enough to look at its items.
func bounded(e *check.Errors, a check.At, field string, most int) bool {
	n := a.Len(field)
	if n > most {
		e.Later().TooMany(a.At(field), n, most)
	}
	return n <= most
}

func deviceClaim(e *check.Errors, claim check.At) {
	names := requestNames(claim.Map)
	if bounded(e, claim, "requests", requestsMax) {
		distinctNames(e, claim, "requests")
		for _, r := range claim.Each("requests") {
			deviceRequest(e, r)
		}
	}
	if bounded(e, claim, "constraints", constraintsMax) {
		for _, c := range claim.Each("constraints") {
			requestRefs(e, c, names)
			deviceConstraint(e, c)
		}
	}
	if bounded(e, claim, "config", configsMax) {
		for _, c := range claim.Each("config") {
			claimConfig(e, c, names)
		}
	}
}

func distinctNames(e *check.Errors, a check.At, field string) {
	var seen []string
	for _, item := range a.Each(field) {
		if name := item.Str("name"); slices.Contains(seen, name) {
			e.Later().Duplicate(item.Path, item.Map)
		} else {
			seen = append(seen, name)
		}
	}
}

func deviceRequest(e *check.Errors, r check.At) {
	e.DNSLabel(r.At("name"), r.Str("name"))
	exactly, choices := r.Child("exactly"), r.Len("firstAvailable") > 0
	switch {
	case choices && exactly.Exists():
		e.Invalid(r.Path, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set")
		var either check.Errors // of which only what is declared of the fields is told
		requested(&either, &either, exactly)
		alternatives(&either, r)
		e.Later().Add(either.Later().List()...)
	case exactly.Exists():
		requested(e, e, exactly)
	case !choices:
		e.Required(r.Path, "exactly one of `exactly` or `firstAvailable` is required")
	case bounded(e, r, "firstAvailable", choicesMax):
		alternatives(e, r)
	}
}

func alternatives(e *check.Errors, r check.At) {
	distinctNames(e, r, "firstAvailable")
	for _, sub := range r.Each("firstAvailable") {
		e.DNSLabel(sub.At("name"), sub.Str("name"))
		requested(e, e.Later(), sub)
	}
}

// requested checks what is asked for; what is wrong with the class goes to a list of its own.
func requested(e, class *check.Errors, r check.At) {
	if name := r.Str("deviceClassName"); name == "" {
		class.Required(r.At("deviceClassName"), "")
	} else {
		class.DNSSubdomain(r.At("deviceClassName"), name)
	}
	selectors(e, r, false)
	count := r.Int("count")
	switch mode := r.Str("allocationMode"); mode {
	case allDevices:
		if count != 0 {
			e.Invalid(r.At("count"), count, "must not be specified when allocationMode is 'All'")
		}
	case exactCount:
		if count <= 0 {
			e.Invalid(r.At("count"), count, "must be greater than zero")
		}
	default:
		e.Later().NotSupported(r.At("allocationMode"), mode, allDevices, exactCount)
	}
	for _, t := range r.Each("tolerations") {
		deviceToleration(e, t)
	}
}

// selectors checks which devices are selected. What is stored was compiled when it was written.
func selectors(e *check.Errors, a check.At, stored bool) {
	if !bounded(e, a, "selectors", selectorsMax) {
		return
	}
	for _, s := range a.Each("selectors") {
		cel := s.Child("cel")
		if !cel.Exists() {
			e.Required(s.At("cel"), "")
		} else if !stored {
			deviceExpression(e, cel.At("expression"), cel.Str("expression"))
		}
	}
}

func deviceConstraint(e *check.Errors, c check.At) {
	for _, name := range []string{"matchAttribute", "distinctAttribute"} {
		if v := c.Str(name); c.Has(name) {
			attributeName(e.Later(), c.At(name), v, true)
		}
	}
	if c.Has("matchAttribute") || c.Has("distinctAttribute") {
		return
	}
	e.Required(c.Path, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`)
}

// attributeName checks the name of an attribute or a capacity, with a domain before it or not.
func attributeName(e *check.Errors, path check.Path, name string, full bool) {
	domain, id, found := strings.Cut(name, "/")
	switch {
	case !found:
		domain, id = "", name
	case domain == "":
		e.Invalid(path, "", "the domain must not be empty")
	default:
		driverName(e, path, domain)
	}
	if found && id == "" {
		e.Invalid(path, "", "the name must not be empty")
	} else {
		if len(id) > deviceIDMax {
			e.TooLong(path, deviceIDMax)
		}
		e.Messages(path, id, content.IsCIdentifier(id))
	}
	if full && !found {
		e.Invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")
	}
}

func claimConfig(e *check.Errors, c check.At, names map[string][]string) {
	requestRefs(e, c, names)
	deviceConfig(e, c)
}

// deviceConfig checks what is handed to a driver.
func deviceConfig(e *check.Errors, c check.At) {
	opaque := c.Child("opaque")
	if !opaque.Exists() {
		e.Required(c.At("opaque"), "")
		return
	}
	attacher(e, opaque.At("driver"), opaque.Str("driver"))
	if v := opaque.Get("parameters"); v == nil {
		e.Required(opaque.At("parameters"), "")
	} else if _, ok := v.(map[string]any); !ok {
		e.Invalid(opaque.At("parameters"), "<value omitted>", "must be a valid JSON object")
	}
}

func requestRefs(e *check.Errors, a check.At, names map[string][]string) {
	if !bounded(e, a, "requests", requestsMax) {
		return
	}
	refs := a.Strings("requests")
	for i, ref := range refs {
		requestRef(e, a.At("requests").Index(i), ref, names)
		if slices.Index(refs, ref) < i {
			e.Later().Duplicate(a.At("requests").Index(i), ref)
		}
	}
}

// requestRef checks that a request, or an alternative of one, is there.
func requestRef(e *check.Errors, path check.Path, ref string, names map[string][]string) {
	const message = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	parts := strings.Split(ref, "/")
	if len(parts) > 2 {
		e.Invalid(path, ref, message)
		return
	}
	for _, part := range parts {
		e.DNSLabel(path, part)
	}
	subs, found := names[parts[0]]
	if !found || len(parts) == 2 && !slices.Contains(subs, parts[1]) {
		e.Invalid(path, ref, message)
	}
}

// poolName checks the name of a pool: names of domains, with slashes between them.
func poolName(e *check.Errors, path check.Path, name string) {
	if name == "" {
		e.Required(path, "")
		return
	}
	if len(name) > poolNameMax {
		e.TooLong(path, poolNameMax)
	}
	for part := range strings.SplitSeq(name, "/") {
		e.DNSSubdomain(path, part)
	}
}

// deviceEffects are what a taint of a device can do, sorted.
var deviceEffects = []string{"NoExecute", "NoSchedule", "None"}

func deviceToleration(e *check.Errors, t check.At) {
	if key := t.Str("key"); key != "" {
		e.Later().QualifiedName(t.At("key"), key)
	}
	value := t.Str("value")
	switch op := t.Str("operator"); op {
	case "Exists":
		if value != "" {
			e.Invalid(t.At("value"), value, "must be empty for operator `Exists`")
		}
	case "Equal":
		e.Messages(t.At("value"), value, validation.IsValidLabelValue(value))
	case "":
		e.Later().Required(t.At("operator"), "")
	default:
		e.Later().NotSupported(t.At("operator"), op, "Equal", "Exists")
	}
	if effect := t.Str("effect"); effect != "" && !slices.Contains(deviceEffects, effect) {
		e.Later().NotSupported(t.At("effect"), effect, deviceEffects...)
	}
}

func deviceTaint(e *check.Errors, t check.At) {
	e.QualifiedName(t.At("key"), t.Str("key"))
	if value := t.Str("value"); value != "" {
		e.Messages(t.At("value"), value, validation.IsValidLabelValue(value))
	}
	if effect := t.Str("effect"); effect == "" {
		e.Later().Required(t.At("effect"), "")
	} else if !slices.Contains(deviceEffects, effect) {
		e.Later().NotSupported(t.At("effect"), effect, deviceEffects...)
	}
}
