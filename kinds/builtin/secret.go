package builtin

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
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

const redacted = "<secret contents redacted>"

func secret() *kinds.Kind {
	doc := corev1.Secret{}.SwaggerDoc()
	return &kinds.Kind{
		Version: "v1", Kind: "Secret", Resource: "secrets", Singular: "secret", Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.core.v1.Secret"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("Type", doc["type"], "type"),
			table.Column("Data", doc["data"], func(obj kinds.Object, _ time.Time) any {
				return int64(len(tree.Map(obj, "data")))
			}),
			table.Age(),
		},
		DefaultPropagation: "Background",
		Fields: map[string]func(kinds.Object) string{
			"type": func(obj kinds.Object) string { return tree.Str(obj, "type") },
		},
		Strategy: kinds.Strategy{
			Default:          defaultSecret,
			PrepareForUpdate: keepType,
			Validate:         validateSecret,
			ChangesFirst:     true,
			ValidateUpdate:   validateSecretUpdate,
			Warnings:         secretWarnings,
		},
	}
}

// defaultSecret puts what was given in plain text where the rest is; it wins over what is there.
func defaultSecret(obj kinds.Object) {
	emptyNulls(obj, "data")
	for key, value := range tree.StringMap(obj, "stringData") {
		tree.Set(obj, base64.StdEncoding.EncodeToString([]byte(value)), "data", key)
	}
	delete(obj, "stringData")
	if tree.Str(obj, "type") == "" {
		obj["type"] = "Opaque"
	}
}

func keepType(_ *kinds.Env, obj, old kinds.Object) error {
	if tree.Str(obj, "type") == "" {
		tree.Move("type", old, obj)
	}
	return nil
}

func validateSecret(obj kinds.Object) field.ErrorList {
	var e check.Errors
	data, path := tree.StringMap(obj, "data"), check.NewPath("data")
	size := 0
	for _, key := range slices.Sorted(maps.Keys(data)) {
		e.Messages(path.Key(key), key, validation.IsConfigMapKey(key))
		size += decodedLen(data[key])
	}
	if size > dataBytesMax {
		e.TooLong(path, dataBytesMax)
	}
	secretType(&e, obj, data)
	return e.List()
}

// secretType checks that a secret has what those who use its type look for.
func secretType(e *check.Errors, obj kinds.Object, data map[string]string) {
	path := check.NewPath("data")
	need := func(keys ...string) {
		for _, key := range keys {
			if _, ok := data[key]; !ok {
				e.Required(path.Key(key), "")
			}
		}
	}
	needJSON := func(key string) {
		need(key)
		if text, ok := data[key]; ok {
			if err := json.Unmarshal(decoded(text), &map[string]any{}); err != nil {
				e.Invalid(path.Key(key), redacted, err.Error())
			}
		}
	}
	switch tree.Str(obj, "type") {
	case "kubernetes.io/service-account-token":
		const name = "kubernetes.io/service-account.name"
		if tree.Str(obj, "metadata", "annotations", name) == "" {
			e.Required(check.NewPath("metadata", "annotations").Key(name), "")
		}
	case "kubernetes.io/dockercfg":
		needJSON(".dockercfg")
	case "kubernetes.io/dockerconfigjson":
		needJSON(".dockerconfigjson")
	case "kubernetes.io/basic-auth":
		_, user := data["username"]
		_, password := data["password"]
		if !user && !password {
			need("username", "password")
		}
	case "kubernetes.io/ssh-auth":
		if data["ssh-privatekey"] == "" {
			e.Required(path.Key("ssh-privatekey"), "")
		}
	case "kubernetes.io/tls":
		need("tls.crt", "tls.key")
	}
}

func validateSecretUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	e.Unchanged(check.Root(obj), check.Root(old), "type")
	immutable(&e, obj, old, "data")
	return e.List()
}

// secretWarnings tells of a key that does not belong to its certificate.
func secretWarnings(obj, _ kinds.Object) []string {
	if tree.Str(obj, "type") != "kubernetes.io/tls" {
		return nil
	}
	cert, key := tree.Str(obj, "data", "tls.crt"), tree.Str(obj, "data", "tls.key")
	if _, err := tls.X509KeyPair(decoded(cert), decoded(key)); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// decoded reads base64, which decoding has checked.
func decoded(text string) []byte {
	data, _ := base64.StdEncoding.DecodeString(text)
	return data
}
