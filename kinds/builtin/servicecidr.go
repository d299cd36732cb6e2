package builtin

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	kindschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// serviceBlocksMax is one block for each family of addresses.
const serviceBlocksMax = 2

func serviceCIDR() *kinds.Kind {
	return &kinds.Kind{
		Group: "networking.k8s.io", Version: "v1", Kind: "ServiceCIDR",
		Resource: "servicecidrs", Singular: "servicecidr",
		Schema: schema.Builtin("io.k8s.api.networking.v1.ServiceCIDR"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("CIDRs", networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"],
				func(obj kinds.Object, _ time.Time) any {
					return strings.Join(tree.Strings(obj, "spec", "cidrs"), ",")
				}),
			table.Age(),
		},
		Status:             true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			PrepareForCreate:       emptyStatus(map[string]any{}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			ValidateCreate:         validateServiceCIDR,
			ValidateUpdate:         validateServiceCIDRUpdate,
		},
	}
}

func validateServiceCIDR(obj kinds.Object) field.ErrorList {
	var e check.Errors
	path, blocks := check.NewPath("spec", "cidrs"), tree.Strings(obj, "spec", "cidrs")
	switch {
	case len(blocks) == 0:
		e.Required(path, "at least one CIDR required")
		return e.List()
	case len(blocks) > serviceBlocksMax:
		e.Invalid(path, map[string]any{"CIDRs": blocks}, "may only hold up to 2 values")
		return e.List()
	}
	for i, block := range blocks {
		e.Add(validation.IsValidCIDR(path.Index(i).Field(), block)...)
	}
	if len(blocks) == serviceBlocksMax {
		a, b := netutils.IPFamilyOfCIDRString(blocks[0]), netutils.IPFamilyOfCIDRString(blocks[1])
		if a == b && a != netutils.IPFamilyUnknown {
			e.Invalid(path, blocks, "may specify no more than one IP for each IP family, "+
				"i.e 192.168.0.0/24 and 2001:db8::/64")
		}
	}
	return e.List()
}

// validateServiceCIDRUpdate lets only a second block be added.
func validateServiceCIDRUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	path := check.NewPath("spec", "cidrs")
	blocks, before := tree.Strings(obj, "spec", "cidrs"), tree.Strings(old, "spec", "cidrs")
	added := len(before) == 1 && len(blocks) == serviceBlocksMax
	if len(blocks) != len(before) && !added {
		e.Invalid(path, blocks, check.Immutable)
		return e.List()
	}
	for i, block := range before {
		if blocks[i] != block {
			e.Invalid(path.Index(i), blocks[i], check.Immutable)
		}
	}
	if added {
		e.Add(validateServiceCIDR(obj)...)
	}
	return e.List()
}

func ipAddress() *kinds.Kind {
	return &kinds.Kind{
		Group: "networking.k8s.io", Version: "v1", Kind: "IPAddress",
		Resource: "ipaddresses", Singular: "ipaddress", ShortNames: []string{"ip"},
		Schema: schema.Builtin("io.k8s.api.networking.v1.IPAddress"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("ParentRef", networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"], addressParent),
		},
		DefaultPropagation: "Background",
		NameRule:           addressName,
		Strategy: kinds.Strategy{
			Validate:       validateIPAddress,
			ValidateUpdate: declaredImmutable("spec.parentRef"),
		},
	}
}

func addressName(name string, _ bool) []string {
	var messages []string
	for _, err := range validation.IsValidIP(nil, name) {
		messages = append(messages, err.Detail)
	}
	return messages
}

func validateIPAddress(obj kinds.Object) field.ErrorList {
	var e check.Errors
	parent := check.Root(obj).Child("spec").Child("parentRef")
	if !parent.Exists() {
		e.Required(check.NewPath("spec", "parentRef"), "")
		return e.List()
	}
	if group := parent.Str("group"); group != "" {
		e.DNSSubdomain(parent.At("group"), group)
	}
	requiredSegment(&e, e.Later(), parent, "resource")
	requiredSegment(&e, e.Later(), parent, "name")
	segment(&e, parent, "namespace")
	return e.List()
}

// addressParent names what has the address: "services/default/kubernetes".
func addressParent(obj kinds.Object, _ time.Time) any {
	parent := tree.Map(obj, "spec", "parentRef")
	if parent == nil {
		return table.None
	}
	gr := kindschema.GroupResource{Group: tree.Str(parent, "group"), Resource: tree.Str(parent, "resource")}
	words := []string{strings.ToLower(gr.String())}
	if namespace := tree.Str(parent, "namespace"); namespace != "" {
		words = append(words, namespace)
	}
	return strings.Join(append(words, tree.Str(parent, "name")), "/")
}
