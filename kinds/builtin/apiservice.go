package builtin

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Upstream's bounds on how groups and versions are ranked.
const (
	groupPriorityMax   = 20000
	versionPriorityMax = 1000
)

func apiService() *kinds.Kind {
	return &kinds.Kind{
		Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService",
		Resource: "apiservices", Singular: "apiservice", Categories: []string{extensions},
		Schema: schema.Builtin("io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("Service", "The reference to the service that hosts this API endpoint.",
				func(obj kinds.Object, _ time.Time) any {
					service := tree.Map(obj, "spec", "service")
					if service == nil {
						return "Local"
					}
					return tree.Str(service, "namespace") + "/" + tree.Str(service, "name")
				}),
			table.Column("Available", "Whether this service is available.", available),
			table.Age(),
		},
		Status:              true,
		UpdateNamesRevision: true,
		DefaultPropagation:  "Background",
		NameRule:            func(name string, _ bool) []string { return content.IsPathSegmentName(name) },
		Strategy: kinds.Strategy{
			Default: func(obj kinds.Object) {
				if service := tree.Map(obj, "spec", "service"); service != nil {
					tree.Default(service, int64(443), "port")
				}
			},
			PrepareForCreate:       prepareAPIService,
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateAPIService,
			ValidateStatusUpdate:   validateAPIServiceStatus,
		},
	}
}

// available is the state of a service, and why it is not available.
func available(obj kinds.Object, _ time.Time) any {
	c := tree.Find(tree.List(obj, "status", "conditions"), "type", "Available")
	status, reason := table.Or(tree.Str(c, "status"), "Unknown"), tree.Str(c, "reason")
	if status == "True" || reason == "" {
		return status
	}
	return status + " (" + reason + ")"
}

// prepareAPIService says of an API of this server that it is available.
func prepareAPIService(env *kinds.Env, obj kinds.Object) error {
	obj["status"] = map[string]any{}
	if !tree.Has(obj, "spec", "service") {
		tree.Set(obj, []any{map[string]any{
			"type": "Available", "status": "True", "reason": "Local",
			"message":            "Local APIServices are always available",
			"lastTransitionTime": env.Now.UTC().Format(time.RFC3339),
		}}, "status", "conditions")
	}
	return nil
}

func validateAPIService(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	spec.Path = check.NewPath("spec")
	group, version, name := spec.Str("group"), spec.Str("version"), tree.Str(obj, "metadata", "name")
	want := version + "." + group
	for _, said := range []struct{ field, name string }{
		{"generateName", tree.Str(obj, "metadata", "generateName")}, {"name", name},
	} {
		if said.name != "" && said.name != want { // that there is none is said elsewhere
			e.Invalid(check.NewPath("metadata", said.field), said.name,
				fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want))
		}
	}
	if group == "" && version != "v1" {
		e.Required(spec.At("group"), "only v1 may have an empty group and it better be legacy kube")
	} else if group != "" {
		e.DNSSubdomain(spec.At("group"), group)
	}
	e.Messages(spec.At("version"), version, validation.IsDNS1035Label(version))
	if n := spec.Int("groupPriorityMinimum"); n <= 0 || n > groupPriorityMax {
		e.Invalid(spec.At("groupPriorityMinimum"), n, "must be positive and less than 20000")
	}
	if n := spec.Int("versionPriority"); n <= 0 || n > versionPriorityMax {
		e.Invalid(spec.At("versionPriority"), n, "must be positive and less than 1000")
	}
	if service := spec.Child("service"); service.Exists() {
		remoteService(&e, spec, service)
	} else {
		localService(&e, spec)
	}
	return e.List()
}

func localService(e *check.Errors, spec check.At) {
	if bundle := spec.Str("caBundle"); bundle != "" {
		e.Invalid(spec.At("caBundle"), fmt.Sprintf("%d bytes", len(decoded(bundle))),
			"local APIServices may not have a caBundle")
	}
	if spec.Bool("insecureSkipTLSVerify") {
		e.Invalid(spec.At("insecureSkipTLSVerify"), true, "local APIServices may not have insecureSkipTLSVerify")
	}
}

func remoteService(e *check.Errors, spec, service check.At) {
	for _, name := range []string{"namespace", "name"} {
		if service.Str(name) == "" {
			e.Required(service.At(name), "")
		}
	}
	if messages := validation.IsValidPortNum(int(service.Int("port"))); len(messages) > 0 {
		e.Invalid(service.At("port"), service.Int("port"), "port is not valid: "+strings.Join(messages, ", "))
	}
	if spec.Bool("insecureSkipTLSVerify") && spec.Str("caBundle") != "" {
		e.Invalid(spec.At("insecureSkipTLSVerify"), true, "may not be true if caBundle is present")
	}
}

func validateAPIServiceStatus(obj, _ kinds.Object) field.ErrorList {
	var e check.Errors
	for _, c := range check.Root(obj).Child("status").Each("conditions") {
		switch status := c.Str("status"); status {
		case "True", "False", "Unknown":
		default:
			e.NotSupported(c.At("status"), status, "True", "False", "Unknown")
		}
	}
	return e.List()
}
