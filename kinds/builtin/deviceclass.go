package builtin

import (
	"context"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func deviceClass() *kinds.Kind {
	return &kinds.Kind{
		Group: resourceGroup, Version: "v1", Kind: "DeviceClass", Resource: "deviceclasses", Singular: "deviceclass",
		Schema:             schema.Builtin("io.k8s.api.resource.v1.DeviceClass"),
		Columns:            []kinds.Column{table.Name(), table.Age()},
		Generation:         true,
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			ValidateCreate: func(obj kinds.Object) field.ErrorList { return validateDeviceClass(obj, nil) },
			ValidateUpdate: validateDeviceClass,
		},
	}
}

func validateDeviceClass(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	spec, was := check.Root(obj).Child("spec"), tree.Map(old, "spec")
	selectors(&e, spec, was != nil && tree.Equal(spec.Get("selectors"), was["selectors"]))
	if bounded(&e, spec, "config", configsMax) {
		for _, c := range spec.Each("config") {
			deviceConfig(&e, c)
		}
	}
	if name, said := spec.Get("extendedResourceName").(string); said {
		e.Later().Add(validate.ExtendedResourceName(context.Background(), operation.Operation{},
			spec.At("extendedResourceName").Field(), &name, nil)...)
	}
	return e.List()
}

func deviceTaintRule() *kinds.Kind {
	doc := resourcev1.DeviceTaint{}.SwaggerDoc()
	return &kinds.Kind{
		Group: resourceGroup, Version: "v1", Kind: "DeviceTaintRule",
		Resource: "devicetaintrules", Singular: "devicetaintrule",
		Schema: schema.Builtin("io.k8s.api.resource.v1.DeviceTaintRule"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("Key", doc["key"], "spec", "taint", "key"),
			table.Text("Value", doc["value"], "spec", "taint", "value"),
			table.Text("Effect", doc["effect"], "spec", "taint", "effect"),
			table.Column("TimeAdded", doc["timeAdded"], func(obj kinds.Object, now time.Time) any {
				if at := tree.Str(obj, "spec", "taint", "timeAdded"); at != "" {
					return table.Since(at, now)
				}
				return ""
			}),
			table.Age(),
		},
		Status:              true,
		Generation:          true,
		UpdateNamesRevision: true,
		DefaultPropagation:  "Background",
		Strategy: kinds.Strategy{
			PrepareForCreate:       prepareTaintRule,
			PrepareForUpdate:       prepareTaintRuleUpdate,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateTaintRule,
			ValidateStatusUpdate:   validateTaintRuleStatus,
		},
	}
}

func prepareTaintRule(env *kinds.Env, obj kinds.Object) error {
	obj["status"] = map[string]any{}
	tree.Default(tree.Ensure(obj, "spec", "taint"), env.Now.UTC().Format(time.RFC3339), "timeAdded")
	return nil
}

// prepareTaintRuleUpdate dates a taint anew that does something else now.
func prepareTaintRuleUpdate(env *kinds.Env, obj, old kinds.Object) error {
	taint, was := tree.Ensure(obj, "spec", "taint"), tree.Map(old, "spec", "taint")
	if taint["effect"] != was["effect"] && tree.Equal(taint["timeAdded"], was["timeAdded"]) {
		delete(taint, "timeAdded")
	}
	tree.Default(taint, env.Now.UTC().Format(time.RFC3339), "timeAdded")
	return keepStatus(env, obj, old)
}

func validateTaintRule(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	selector := spec.Child("deviceSelector")
	if selector.Has("driver") {
		driverName(&e, selector.At("driver"), selector.Str("driver"))
	}
	if selector.Has("pool") {
		poolName(&e, selector.At("pool"), selector.Str("pool"))
	}
	if selector.Has("device") {
		e.DNSLabel(selector.At("device"), selector.Str("device"))
	}
	deviceTaint(&e, check.At{Map: tree.Map(spec.Map, "taint"), Path: check.NewPath("spec", "taint")})
	return e.List()
}

func validateTaintRuleStatus(obj, _ kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	conditions(&e, status)
	if n := status.Len("conditions"); n > taintConditionsMax {
		e.TooMany(status.At("conditions"), n, taintConditionsMax)
	}
	return e.List()
}
