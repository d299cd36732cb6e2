package builtin

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Upstream's bounds on slices. A slice whose devices have taints or consume counters holds fewer.
const (
	devicesMax         = 128
	complexDevicesMax  = 64
	counterSetsMax     = 8
	deviceFieldsMax    = 32
	taintConditionsMax = 8
)

func resourceSlice() *kinds.Kind {
	doc := resourcev1.ResourceSliceSpec{}.SwaggerDoc()
	return &kinds.Kind{
		Group: resourceGroup, Version: "v1", Kind: "ResourceSlice",
		Resource: "resourceslices", Singular: "resourceslice",
		Schema: schema.Builtin("io.k8s.api.resource.v1.ResourceSlice"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("Node", doc["nodeName"], "spec", "nodeName"),
			table.Text("Driver", doc["driver"], "spec", "driver"),
			table.Text("Pool", resourcev1.ResourcePool{}.SwaggerDoc()["name"], "spec", "pool", "name"),
			table.Age(),
		},
		Generation:         true,
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		UnknownField:       "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: %s",
		Fields:             fieldsOf("spec.nodeName", "spec.driver", "spec.pool.name"),
		Strategy: kinds.Strategy{
			PrepareForCreate: func(env *kinds.Env, obj kinds.Object) error {
				prepareDevices(env, obj)
				return nil
			},
			PrepareForUpdate: func(env *kinds.Env, obj, _ kinds.Object) error {
				prepareDevices(env, obj)
				return nil
			},
			Validate:       validateResourceSlice,
			ValidateUpdate: unchanged("spec.pool.name", "spec.driver", "spec.nodeName"),
		},
	}
}

// prepareDevices says of new taints when they came about, and drops attributes that are lists: Kubernetes has
// those behind a gate that is closed.
func prepareDevices(env *kinds.Env, obj kinds.Object) {
	now := env.Now.UTC().Format(time.RFC3339)
	for _, d := range tree.Maps(obj, "spec", "devices") {
		for name := range tree.Map(d, "attributes") {
			for _, list := range []string{"ints", "bools", "strings", "versions"} {
				tree.Delete(d, "attributes", name, list)
			}
		}
		for _, t := range tree.Maps(d, "taints") {
			tree.Default(t, now, "timeAdded")
		}
	}
}

func validateResourceSlice(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	spec.Path = check.NewPath("spec")
	driverName(&e, spec.At("driver"), spec.Str("driver"))
	pool := spec.Child("pool")
	poolName(&e, check.NewPath("spec", "pool", "name"), pool.Str("name"))
	if n := pool.Int("resourceSliceCount"); n <= 0 {
		e.Invalid(check.NewPath("spec", "pool", "resourceSliceCount"), n, "must be greater than zero")
	}
	if n := pool.Int("generation"); n < 0 {
		e.Invalid(pool.At("generation"), n, "must be greater than or equal to zero")
	}
	where := deviceNodes(&e, spec, "must be either unset or set to a non-empty string")
	if spec.Bool("perDeviceNodeSelection") {
		where = append(where, "`perDeviceNodeSelection`")
	} else if spec.Has("perDeviceNodeSelection") {
		e.Invalid(spec.At("perDeviceNodeSelection"), false, "must be either unset or set to true")
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	oneOfNodes(&e, spec.Path, where, one, one+", but multiple fields are set")
	if spec.Has("sharedCounters") && spec.Has("devices") {
		e.Invalid(spec.Path, "", "only one of `sharedCounters` or `devices` is allowed")
	}
	sliceDevices(&e, spec)
	counterSets(&e, spec)
	return e.List()
}

// deviceNodes checks on which nodes devices are, and returns the fields that say so.
func deviceNodes(e *check.Errors, a check.At, empty string) (where []string) {
	if name := a.Str("nodeName"); name != "" {
		where = append(where, "`nodeName`")
		e.Messages(a.At("nodeName"), name, apivalidation.NameIsDNSSubdomain(name, false))
	} else if a.Has("nodeName") {
		e.Invalid(a.At("nodeName"), name, empty)
	}
	if sel := a.Child("nodeSelector"); sel.Exists() {
		where = append(where, "`nodeSelector`")
		pod.CheckNodeSelector(e, sel)
	}
	if a.Bool("allNodes") {
		where = append(where, "`allNodes`")
	} else if a.Has("allNodes") {
		e.Invalid(a.At("allNodes"), false, "must be either unset or set to true")
	}
	return where
}

func oneOfNodes(e *check.Errors, path check.Path, where []string, none, many string) {
	switch len(where) {
	case 0:
		e.Required(path, none)
	case 1:
	default:
		e.Invalid(path, "{"+strings.Join(where, ", ")+"}", many)
	}
}

func sliceDevices(e *check.Errors, spec check.At) {
	most := devicesMax
	for _, d := range spec.Each("devices") {
		if d.Len("taints") > 0 || d.Len("consumesCounters") > 0 {
			most = complexDevicesMax
		}
	}
	if n := spec.Len("devices"); n > most {
		e.TooMany(spec.At("devices"), n, most)
		return
	}
	var names []string
	for _, d := range spec.Each("devices") {
		device(e, d, spec.Bool("perDeviceNodeSelection"))
	}
	for _, d := range spec.Each("devices") {
		name := d.Str("name")
		if slices.Contains(names, name) {
			e.Duplicate(d.Path, name)
		}
		names = append(names, name)
	}
}

func device(e *check.Errors, d check.At, perDevice bool) {
	e.DNSLabel(d.At("name"), d.Str("name"))
	attributes, capacity := d.Child("attributes"), d.Child("capacity")
	if n := len(attributes.Map) + len(capacity.Map); n > deviceFieldsMax {
		e.Invalid(d.Path, n,
			fmt.Sprintf("the total number of attributes and capacities must not exceed %d", deviceFieldsMax))
	}
	for _, name := range slices.Sorted(maps.Keys(attributes.Map)) {
		attributeName(e, attributes.Path, name, false)
		attributeValue(e, attributes.Child(name), attributes.Path.Key(name))
	}
	for _, name := range slices.Sorted(maps.Keys(capacity.Map)) {
		attributeName(e, capacity.Path, name, false)
		requestPolicy(e, capacity.Child(name), capacity.Path.Key(name), d.Bool("allowMultipleAllocations"))
	}
	for _, c := range d.Each("consumesCounters") {
		counters(e, c, "counterSet")
	}
	for _, t := range d.Each("taints") {
		deviceTaint(e, t)
	}
	if perDevice {
		const one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when " +
			"`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
		oneOfNodes(e, d.Path, deviceNodes(e, d, "must not be empty"), one, one)
	} else if d.Has("nodeName") || d.Has("nodeSelector") || d.Has("allNodes") {
		e.Invalid(d.Path, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if "+
			"`perDeviceNodeSelection` is set to true in the ResourceSlice spec")
	}
}

// semanticVersion is the grammar of https://semver.org/spec/v2.0.0.html.
var semanticVersion = func() *regexp.Regexp {
	const number, word = `(0|[1-9][0-9]*)`, `[0-9A-Za-z-]+`
	const before = `(` + number + `|[0-9]*[A-Za-z-][0-9A-Za-z-]*)`
	return regexp.MustCompile(`^` + number + `\.` + number + `\.` + number +
		`(-` + before + `(\.` + before + `)*)?(\+` + word + `(\.` + word + `)*)?$`)
}()

// requestPolicy checks how a part of a capacity may be asked for, which makes sense where several may ask.
func requestPolicy(e *check.Errors, capacity check.At, path check.Path, several bool) {
	policy := capacity.Child("requestPolicy")
	policy.Path = path.Child("requestPolicy")
	values, within := policy.Len("validValues") > 0, policy.Child("validRange")
	switch {
	case !policy.Exists():
	case !several:
		e.Forbidden(policy.Path, "allowMultipleAllocations must be true")
	case values && within.Exists():
		e.Forbidden(policy.Path,
			`exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)
	case values && !policy.Has("default"):
		e.Required(policy.At("default"), "required when validValues is defined")
	case within.Exists() && !policy.Has("default"):
		e.Required(policy.At("default"), "required when validRange is defined")
	case within.Exists() && !within.Has("min"):
		e.Required(within.At("min"), "required when validRange is defined")
	}
}

// attributeTypes are the fields of which an attribute has one.
var attributeTypes = []string{"int", "bool", "string", "version", "ints", "bools", "strings", "versions"}

func attributeValue(e *check.Errors, attribute check.At, path check.Path) {
	var found []string
	for _, name := range attributeTypes {
		if attribute.Has(name) {
			found = append(found, name)
		}
	}
	if v := attribute.Str("string"); len(v) > resourcev1.DeviceAttributeMaxValueLength {
		e.TooLong(path.Child("string"), resourcev1.DeviceAttributeMaxValueLength)
	}
	if v := attribute.Str("version"); attribute.Has("version") {
		if !semanticVersion.MatchString(v) {
			e.Invalid(path.Child("version"), v, "must be a string compatible with semver.org spec 2.0.0")
		}
		if len(v) > resourcev1.DeviceAttributeMaxValueLength {
			e.TooLong(path.Child("version"), resourcev1.DeviceAttributeMaxValueLength)
		}
	}
	all := "one of: `" + strings.Join(attributeTypes, "`, `") + "`"
	switch len(found) {
	case 0:
		e.Later().Invalid(path, "", "must specify "+all)
	case 1:
	default:
		e.Later().Invalid(path, "{"+strings.Join(found, ", ")+"}", "must specify exactly "+all)
	}
}

func counterSets(e *check.Errors, spec check.At) {
	if !bounded(e, spec, "sharedCounters", counterSetsMax) {
		return
	}
	for _, set := range spec.Each("sharedCounters") {
		counters(e, set, "name")
	}
	distinctNames(e, spec, "sharedCounters")
}

// counters checks a set of counters, or what a device takes of one: what it is called, and who is in it.
func counters(e *check.Errors, set check.At, called string) {
	if name := set.Str(called); name == "" {
		e.Later().Required(set.At(called), "")
	} else {
		e.Later().DNSLabel(set.At(called), name)
	}
	all := set.Child("counters")
	if len(all.Map) == 0 {
		e.Later().Required(set.At("counters"), "")
	}
	for _, name := range slices.Sorted(maps.Keys(all.Map)) {
		e.Later().DNSLabel(all.Path, name)
	}
}
