package builtin

import (
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Upstream's bounds on the parameters of a class of volumes.
const (
	parametersMax     = 512
	parametersSizeMax = 256 << 10
)

func storageClass() *kinds.Kind {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	return &kinds.Kind{
		Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass",
		Resource: "storageclasses", Singular: "storageclass", ShortNames: []string{"sc"},
		Schema: schema.Builtin("io.k8s.api.storage.v1.StorageClass"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("Provisioner", doc["provisioner"], "provisioner"),
			table.Text("ReclaimPolicy", doc["reclaimPolicy"], "reclaimPolicy"),
			table.Text("VolumeBindingMode", doc["volumeBindingMode"], "volumeBindingMode"),
			table.Column("AllowVolumeExpansion", doc["allowVolumeExpansion"],
				func(obj kinds.Object, _ time.Time) any { return tree.Bool(obj, "allowVolumeExpansion") }),
			table.Age(),
		},
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default: func(obj kinds.Object) {
				tree.Default(obj, "Delete", "reclaimPolicy")
				tree.Default(obj, "Immediate", "volumeBindingMode")
			},
			Validate:       validateStorageClass,
			ValidateUpdate: declaredImmutable("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
			Warnings:       storageClassWarnings,
		},
	}
}

func validateStorageClass(obj kinds.Object) field.ErrorList {
	var e check.Errors
	class := check.Root(obj)
	provisioner(&e, e.Later(), class, "provisioner")
	parameters(&e, class)
	if class.Str("reclaimPolicy") != "" {
		e.OptionalOneOf(class, "reclaimPolicy", "Delete", "Retain")
	}
	e.OptionalOneOf(class, "volumeBindingMode", "Immediate", "WaitForFirstConsumer")
	topologies(&e, class)
	return e.List()
}

// provisioner checks the name of what makes or changes volumes. That there is none is said in the list
// missing.
func provisioner(e, missing *check.Errors, class check.At, name string) {
	if v := class.Str(name); v == "" {
		missing.Required(class.At(name), "")
	} else {
		e.QualifiedName(class.At(name), strings.ToLower(v))
	}
}

func parameters(e *check.Errors, class check.At) {
	values, path := class.StringMap("parameters"), class.At("parameters")
	if len(values) > parametersMax {
		e.TooLong(path, parametersMax)
		return
	}
	size := 0
	for k, v := range values {
		if k == "" {
			e.Invalid(path, k, "field can not be empty.")
		}
		size += len(k) + len(v)
	}
	if size > parametersSizeMax {
		e.TooLong(path, parametersSizeMax)
	}
}

// topologies checks where volumes of a class may be; no two terms may say the same.
func topologies(e *check.Errors, class check.At) {
	var seen []map[string]sets.Set[string]
	for _, term := range class.Each("allowedTopologies") {
		found := map[string]sets.Set[string]{}
		for _, expr := range term.Each("matchLabelExpressions") {
			key, values := expr.Str("key"), sets.Set[string]{}
			if expr.Len("values") == 0 {
				e.Required(expr.At("values"), "")
			}
			for i, v := range expr.Strings("values") {
				if values.Has(v) {
					e.Duplicate(expr.At("values").Index(i), v)
				}
				values.Insert(v)
			}
			e.QualifiedName(expr.At("key"), key)
			if _, ok := found[key]; ok {
				e.Duplicate(expr.At("key"), key)
			}
			found[key] = values
		}
		if len(found) == 0 || slices.ContainsFunc(seen, func(s map[string]sets.Set[string]) bool { return sameTerm(s, found) }) {
			e.Duplicate(term.At("matchLabelExpressions"), "")
		}
		seen = append(seen, found)
	}
}

func sameTerm(a, b map[string]sets.Set[string]) bool {
	for key, values := range a {
		if other, ok := b[key]; !ok || !values.Equal(other) {
			return false
		}
	}
	return len(a) == len(b)
}

func storageClassWarnings(obj, _ kinds.Object) []string {
	var w []string
	for _, term := range check.Root(obj).Each("allowedTopologies") {
		for _, expr := range term.Each("matchLabelExpressions") {
			if text := pod.OldLabels[expr.Str("key")]; text != "" {
				w = append(w, expr.At("key").String()+": "+text)
			}
		}
	}
	return w
}

func volumeAttributesClass() *kinds.Kind {
	return &kinds.Kind{
		Group: "storage.k8s.io", Version: "v1", Kind: "VolumeAttributesClass",
		Resource: "volumeattributesclasses", Singular: "volumeattributesclass", ShortNames: []string{"vac"},
		Schema: schema.Builtin("io.k8s.api.storage.v1.VolumeAttributesClass"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("DriverName", storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"], "driverName"),
			table.Age(),
		},
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Validate: func(obj kinds.Object) field.ErrorList {
				var e check.Errors
				class := check.Root(obj)
				provisioner(&e, &e, class, "driverName")
				parameters(&e, class)
				if len(class.StringMap("parameters")) == 0 {
					e.Required(class.At("parameters"), "must contain at least one key/value pair")
				}
				return e.List()
			},
			ChangesFirst: true,
			ValidateUpdate: func(obj, old kinds.Object) field.ErrorList {
				var e check.Errors
				for _, name := range []string{"driverName", "parameters"} {
					if !tree.Equal(obj[name], old[name]) {
						e.Forbidden(check.NewPath(name), "updates to "+name+" are forbidden.")
					}
				}
				return e.List()
			},
		},
	}
}
