package builtin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Upstream's bounds on what storage drivers say.
const (
	driverNameMax = 63
	nodeIDMax     = 256
	// allocatablePeriodMin is the shortest time, in seconds, after which a node asks a driver anew.
	allocatablePeriodMin = 10
	tokenSecondsMin      = 600
	tokenSecondsMax      = 1 << 32
)

func csiNode() *kinds.Kind {
	return &kinds.Kind{
		Group: "storage.k8s.io", Version: "v1", Kind: "CSINode", Resource: "csinodes", Singular: "csinode",
		Schema: schema.Builtin("io.k8s.api.storage.v1.CSINode"),
		Columns: []kinds.Column{
			table.Name(),
			countItems("Drivers", "Drivers indicates the number of CSI drivers registered on the node",
				"spec", "drivers"),
			table.Age(),
		},
		Status:              true,
		UpdateNamesRevision: true,
		ReturnDeleted:       true,
		DefaultPropagation:  "Background",
		Strategy: kinds.Strategy{
			// No drivers and an empty list of them are the same once they are stored.
			Default: func(obj kinds.Object) {
				if spec := tree.Map(obj, "spec"); spec != nil && len(tree.List(spec, "drivers")) == 0 {
					spec["drivers"] = nil
				}
			},
			PrepareForCreate: emptyStatus(map[string]any{}),
			PrepareForUpdate: keepStatus,
			PrepareForStatusUpdate: func(env *kinds.Env, obj, old kinds.Object) {
				keepSpec(env, obj, old)
				tree.Delete(obj, "status", "storageHealth") // not offered
			},
			Validate:       validateCSINode,
			ValidateUpdate: validateCSINodeUpdate,
		},
	}
}

// countItems is a column of how many items a list has.
func countItems(name, description string, path ...string) kinds.Column {
	return kinds.Column{
		Name: name, Type: "integer", Description: description,
		Cell: func(obj kinds.Object, _ time.Time) any { return int64(len(tree.List(obj, path...))) },
	}
}

func validateCSINode(obj kinds.Object) field.ErrorList {
	var e check.Errors
	var names []string
	for _, d := range check.Root(obj).Child("spec").Each("drivers") {
		name, id := d.Str("name"), d.Str("nodeID")
		driverName(&e, d.At("name"), name)
		if id == "" {
			e.Required(d.At("nodeID"), "")
		} else if len(id) > nodeIDMax {
			e.Invalid(d.At("nodeID"), id, fmt.Sprintf("must be %d characters or less", nodeIDMax))
		}
		e.NotNegative(d.Child("allocatable"), "count")
		if slices.Contains(names, name) {
			e.Duplicate(d.At("name"), name)
		}
		names = append(names, name)
		topologyKeys(&e, d)
	}
	return e.List()
}

func topologyKeys(e *check.Errors, driver check.At) {
	var seen []string
	for _, key := range driver.Strings("topologyKeys") {
		if key == "" {
			e.Required(driver.Path, "")
		}
		if slices.Contains(seen, key) {
			e.Duplicate(driver.Path, key)
		}
		seen = append(seen, key)
		e.QualifiedName(driver.Path, key)
	}
}

// driverName checks the name of a CSI driver.
func driverName(e *check.Errors, path check.Path, name string) {
	if name == "" {
		e.Required(path, "")
		return
	}
	if len(name) > driverNameMax {
		e.TooLong(path, driverNameMax)
	}
	e.Messages(path, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
}

// csiNodeDriver is a driver in the form that messages show.
type csiNodeDriver struct {
	Name, NodeID string
	TopologyKeys []string
	Allocatable  any
}

// validateCSINodeUpdate keeps a driver that stays as it was, but for how many volumes it can hold.
func validateCSINodeUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	before := tree.List(old, "spec", "drivers")
	for _, d := range tree.Maps(obj, "spec", "drivers") {
		was := maps.Clone(tree.Find(before, "name", tree.Str(d, "name")))
		if was == nil {
			continue
		}
		tree.Move("allocatable", d, was)
		if !tree.Equal(was, d) {
			e.Invalid(check.NewPath("spec", "drivers"), csiNodeDriver{
				tree.Str(d, "name"), tree.Str(d, "nodeID"), tree.Strings(d, "topologyKeys"), d["allocatable"],
			}, check.Immutable)
		}
	}
	return e.List()
}

func csiDriver() *kinds.Kind {
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	columns := []kinds.Column{table.Name()}
	for _, name := range []string{"AttachRequired", "PodInfoOnMount", "StorageCapacity"} {
		key := strings.ToLower(name[:1]) + name[1:]
		columns = append(columns, flag(name, doc[key], "spec", key))
	}
	columns = append(columns, csiDriverDetails()...)
	return &kinds.Kind{
		Group: "storage.k8s.io", Version: "v1", Kind: "CSIDriver", Resource: "csidrivers", Singular: "csidriver",
		Schema:              schema.Builtin("io.k8s.api.storage.v1.CSIDriver"),
		Columns:             columns,
		UpdateNamesRevision: true,
		ReturnDeleted:       true,
		DefaultPropagation:  "Background",
		Strategy: kinds.Strategy{
			Default: defaultCSIDriver,
			// The generation counts changes, from none.
			PrepareForUpdate: func(_ *kinds.Env, obj, old kinds.Object) error {
				if !tree.Equal(obj["spec"], old["spec"]) {
					tree.Set(obj, tree.Int(old, "metadata", "generation")+1, "metadata", "generation")
				}
				return nil
			},
			Validate:       validateCSIDriver,
			ValidateUpdate: validateCSIDriverUpdate,
			Warnings:       csiDriverWarnings,
		},
	}
}

// flag is a column of a boolean.
func flag(name, description string, path ...string) kinds.Column {
	return kinds.Column{
		Name: name, Type: "boolean", Description: description,
		Cell: func(obj kinds.Object, _ time.Time) any { return tree.Bool(obj, path...) },
	}
}

func csiDriverDetails() []kinds.Column {
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	return []kinds.Column{
		table.Column("TokenRequests", doc["tokenRequests"], func(obj kinds.Object, _ time.Time) any {
			if !tree.Has(obj, "spec", "tokenRequests") {
				return table.Unset
			}
			return table.Joined(tree.List(obj, "spec", "tokenRequests"), "audience")
		}),
		flag("RequiresRepublish", doc["requiresRepublish"], "spec", "requiresRepublish"),
		table.Column("Modes", doc["volumeLifecycleModes"], func(obj kinds.Object, _ time.Time) any {
			return table.Or(strings.Join(tree.Strings(obj, "spec", "volumeLifecycleModes"), ","), table.None)
		}),
		table.Age(),
	}
}

func defaultCSIDriver(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	tree.Default(spec, true, "attachRequired")
	for _, name := range []string{
		"podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount", "preventPodSchedulingIfMissing",
	} {
		tree.Default(spec, false, name)
	}
	tree.Default(spec, "ReadWriteOnceWithFSType", "fsGroupPolicy")
	if len(tree.List(spec, "volumeLifecycleModes")) == 0 {
		spec["volumeLifecycleModes"] = []any{"Persistent"}
	}
}

func validateCSIDriver(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	e.OptionalOneOf(spec, "fsGroupPolicy", "File", "None", "ReadWriteOnceWithFSType")
	tokenRequests(&e, spec)
	for _, mode := range spec.Strings("volumeLifecycleModes") {
		if mode != "Persistent" && mode != "Ephemeral" {
			e.NotSupported(spec.At("volumeLifecycleModes"), mode, "Persistent", "Ephemeral")
		}
	}
	if n := spec.Int("nodeAllocatableUpdatePeriodSeconds"); n < allocatablePeriodMin &&
		spec.Has("nodeAllocatableUpdatePeriodSeconds") {
		e.Invalid(spec.At("nodeAllocatableUpdatePeriodSeconds"), n, "must be greater than or equal to 10 seconds")
	}
	if spec.Has("serviceAccountTokenInSecrets") && spec.Len("tokenRequests") == 0 {
		e.Invalid(spec.At("serviceAccountTokenInSecrets"), spec.Get("serviceAccountTokenInSecrets"),
			"serviceAccountTokenInSecrets is set but no tokenRequests are specified")
	}
	return e.List()
}

func tokenRequests(e *check.Errors, spec check.At) {
	var audiences []string
	for _, r := range spec.Each("tokenRequests") {
		audience := r.Str("audience")
		if slices.Contains(audiences, audience) {
			e.Duplicate(r.At("audience"), audience)
			continue
		}
		audiences = append(audiences, audience)
		if n, path := r.Int("expirationSeconds"), r.At("expirationSeconds"); r.Has("expirationSeconds") {
			if n < tokenSecondsMin {
				e.Invalid(path, n, "may not specify a duration less than 10 minutes")
			}
			if n > tokenSecondsMax {
				e.Invalid(path, n, "may not specify a duration larger than 2^32 seconds")
			}
		}
	}
}

func validateCSIDriverUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	for _, f := range []struct{ name, path string }{
		{"attachRequired", "attachedRequired"}, // what upstream calls it here
		{"volumeLifecycleModes", "volumeLifecycleModes"},
	} {
		if v := tree.Get(obj, "spec", f.name); !tree.Equal(v, tree.Get(old, "spec", f.name)) {
			e.Invalid(check.NewPath("spec", f.path), v, check.Immutable)
		}
	}
	return e.List()
}

func csiDriverWarnings(obj, old kinds.Object) []string {
	requests := tree.List(obj, "spec", "tokenRequests")
	asks := len(requests) > 0 && !tree.Has(obj, "spec", "serviceAccountTokenInSecrets")
	if !asks || old != nil && tree.Equal(requests, tree.List(old, "spec", "tokenRequests")) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, " +
		"set to true to prevent possible logging of tokens in volume attributes"}
}

func csiStorageCapacity() *kinds.Kind {
	return &kinds.Kind{
		Group: "storage.k8s.io", Version: "v1", Kind: "CSIStorageCapacity",
		Resource: "csistoragecapacities", Singular: "csistoragecapacity", Namespaced: true,
		Schema:              schema.Builtin("io.k8s.api.storage.v1.CSIStorageCapacity"),
		NullRows:            true,
		UpdateNamesRevision: true,
		DefaultPropagation:  "Background",
		Strategy: kinds.Strategy{
			Validate:       validateCSIStorageCapacity,
			ValidateUpdate: unchanged("nodeTopology", "storageClassName"),
			Warnings:       csiStorageCapacityWarnings,
		},
	}
}

func validateCSIStorageCapacity(obj kinds.Object) field.ErrorList {
	var e check.Errors
	c := check.Root(obj)
	e.LabelSelector(c, "nodeTopology")
	class := c.Str("storageClassName")
	e.Messages(c.At("storageClassName"), class, apivalidation.NameIsDNSSubdomain(class, false))
	if q := c.Str("capacity"); strings.HasPrefix(q, "-") {
		e.Invalid(c.At("capacity"), q, "must be greater than or equal to 0")
	}
	return e.List()
}

func csiStorageCapacityWarnings(obj, _ kinds.Object) []string {
	var w []string
	topology := check.Root(obj).Child("nodeTopology")
	for _, expr := range topology.Each("matchExpressions") {
		if key := expr.Str("key"); pod.OldLabels[key] != "" {
			w = append(w, expr.At("key").String()+": "+key+" is "+pod.OldLabels[key])
		}
	}
	return append(w, labelWarnings(topology, "matchLabels", true)...)
}
