package builtin

import (
	"encoding/base64"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// dataBytesMax is how much a ConfigMap or a Secret may hold, upstream's bound: they are read whole.
const dataBytesMax = 1 << 20

const immutableData = "field is immutable when `immutable` is set"

func configMap() *kinds.Kind {
	return &kinds.Kind{
		Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Singular: "configmap",
		ShortNames: []string{"cm"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.core.v1.ConfigMap"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("Data", corev1.ConfigMap{}.SwaggerDoc()["data"], func(obj kinds.Object, _ time.Time) any {
				return int64(len(tree.Map(obj, "data")) + len(tree.Map(obj, "binaryData")))
			}),
			table.Age(),
		},
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default:      func(obj kinds.Object) { emptyNulls(obj, "binaryData") },
			Validate:     validateConfigMap,
			ChangesFirst: true,
			ValidateUpdate: func(obj, old kinds.Object) field.ErrorList {
				var e check.Errors
				immutable(&e, obj, old, "data", "binaryData")
				return e.List()
			},
		},
	}
}

func validateConfigMap(obj kinds.Object) field.ErrorList {
	var e check.Errors
	data, binary := tree.StringMap(obj, "data"), tree.StringMap(obj, "binaryData")
	size := 0
	for _, key := range slices.Sorted(maps.Keys(data)) {
		path := check.NewPath("data").Key(key)
		e.Messages(path, key, validation.IsConfigMapKey(key))
		if _, ok := binary[key]; ok {
			e.Invalid(path, key, "duplicate of key present in binaryData")
		}
		size += len(data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(binary)) {
		e.Messages(check.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))
		size += decodedLen(binary[key])
	}
	if size > dataBytesMax {
		e.TooLong(check.NewPath(""), dataBytesMax) // of the whole object
	}
	return e.List()
}

// emptyNulls makes a null among bytes no bytes, which is what it means.
func emptyNulls(obj kinds.Object, field string) {
	data := tree.Map(obj, field)
	for key, value := range data {
		if value == nil {
			data[key] = ""
		}
	}
}

// immutable checks that an object that was declared immutable stays so, and that the fields do.
func immutable(e *check.Errors, obj, old kinds.Object, fields ...string) {
	if !tree.Bool(old, "immutable") {
		return
	}
	if !tree.Bool(obj, "immutable") {
		e.Forbidden(check.NewPath("immutable"), immutableData)
	}
	for _, name := range fields {
		if !tree.Equal(obj[name], old[name]) {
			e.Forbidden(check.NewPath(name), immutableData)
		}
	}
}

// decodedLen is how many bytes a text in padded base64 stands for.
func decodedLen(text string) int {
	n := base64.StdEncoding.DecodedLen(len(text))
	for i := len(text) - 1; i >= 0 && text[i] == '='; i-- {
		n--
	}
	return n
}
