package builtin

import (
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// policyDirections are the two lists of rules of a NetworkPolicy, and where each has its peers.
var policyDirections = []struct{ rules, peers string }{{"ingress", "from"}, {"egress", "to"}}

func networkPolicy() *kinds.Kind {
	return &kinds.Kind{
		Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy",
		Resource: "networkpolicies", Singular: "networkpolicy",
		ShortNames: []string{"netpol"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.networking.v1.NetworkPolicy"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("Pod-Selector", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"],
				func(obj kinds.Object, _ time.Time) any { return table.Selector(obj, "spec", "podSelector") }),
			table.Age(),
		},
		Generation:         true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default:        defaultNetworkPolicy,
			ValidateCreate: func(obj kinds.Object) field.ErrorList { return checkNetworkPolicy(obj, nil) },
			ValidateUpdate: func(obj, old kinds.Object) field.ErrorList {
				return checkNetworkPolicy(obj, policyBlocks(old))
			},
			Warnings: networkPolicyWarnings,
		},
	}
}

func defaultNetworkPolicy(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	tree.Default(spec, map[string]any{}, "podSelector")
	for _, d := range policyDirections {
		for _, rule := range tree.Maps(spec, d.rules) {
			for _, p := range tree.Maps(rule, "ports") {
				tree.Default(p, "TCP", "protocol")
			}
		}
	}
	if len(tree.List(spec, "policyTypes")) == 0 {
		types := []any{"Ingress"}
		if len(tree.List(spec, "egress")) > 0 {
			types = append(types, "Egress")
		}
		spec["policyTypes"] = types
	}
}

// checkNetworkPolicy accepts blocks in an older form if they were there before.
func checkNetworkPolicy(obj kinds.Object, kept []string) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	e.LabelSelector(spec, "podSelector")
	for _, d := range policyDirections {
		for _, rule := range spec.Each(d.rules) {
			for _, p := range rule.Each("ports") {
				policyPort(&e, p)
			}
			for _, p := range rule.Each(d.peers) {
				policyPeer(&e, p, kept)
			}
		}
	}
	types := spec.Strings("policyTypes")
	if len(types) > len(policyDirections) {
		e.Invalid(spec.At("policyTypes"), types, "may not specify more than two policyTypes")
		return e.List()
	}
	for i, t := range types {
		if t != "Ingress" && t != "Egress" {
			e.NotSupported(spec.At("policyTypes").Index(i), t, "Ingress", "Egress")
		}
	}
	return e.List()
}

func policyPort(e *check.Errors, p check.At) {
	e.OptionalOneOf(p, "protocol", "TCP", "UDP", "SCTP")
	end, path := p.Int("endPort"), p.At("endPort")
	switch port := p.Get("port").(type) {
	case int64:
		e.PortNumber(p.At("port"), port)
		if p.Has("endPort") {
			if end < port {
				e.Invalid(path, end, "must be greater than or equal to `port`")
			}
			e.PortNumber(path, end)
		}
	case string:
		if p.Has("endPort") {
			e.Invalid(path, end, "may not be specified when `port` is non-numeric")
		}
		e.Messages(p.At("port"), port, validation.IsValidPortName(port))
	default:
		if p.Has("endPort") {
			e.Invalid(path, end, "may not be specified when `port` is not specified")
		}
	}
}

func policyPeer(e *check.Errors, p check.At, kept []string) {
	e.LabelSelector(p, "podSelector")
	e.LabelSelector(p, "namespaceSelector")
	block := p.Child("ipBlock")
	if block.Exists() {
		ipBlock(e, block, kept)
	}
	selects := p.Has("podSelector") || p.Has("namespaceSelector")
	if !selects && !block.Exists() {
		e.Required(p.Path, "must specify a peer")
	} else if selects && block.Exists() {
		e.Forbidden(p.Path, "may not specify both ipBlock and another peer")
	}
}

func ipBlock(e *check.Errors, b check.At, kept []string) {
	text := b.Str("cidr")
	if text == "" {
		e.Later().Required(b.At("cidr"), "")
		return
	}
	e.Add(validation.IsValidCIDRForLegacyField(b.At("cidr").Field(), text, true, kept)...)
	_, block, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return
	}
	bits, _ := block.Mask.Size()
	for i, text := range b.Strings("except") {
		path := b.At("except").Index(i)
		e.Add(validation.IsValidCIDRForLegacyField(path.Field(), text, true, kept)...)
		_, except, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			continue
		}
		if n, _ := except.Mask.Size(); !block.Contains(except.IP) || bits >= n {
			e.Invalid(path, text, "must be a strict subset of `cidr`")
		}
	}
}

// policyBlocks lists all blocks of addresses in a policy.
func policyBlocks(obj kinds.Object) []string {
	var blocks []string
	eachPolicyBlock(obj, func(_ check.Path, block string) { blocks = append(blocks, block) })
	return blocks
}

func eachPolicyBlock(obj kinds.Object, yield func(path check.Path, block string)) {
	spec := check.Root(obj).Child("spec")
	for _, d := range policyDirections {
		for _, rule := range spec.Each(d.rules) {
			for _, p := range rule.Each(d.peers) {
				block := p.Child("ipBlock")
				if !block.Exists() {
					continue
				}
				yield(block.At("cidr"), block.Str("cidr"))
				for i, except := range block.Strings("except") {
					yield(block.At("except").Index(i), except)
				}
			}
		}
	}
}

func networkPolicyWarnings(obj, _ kinds.Object) []string {
	var w []string
	eachPolicyBlock(obj, func(path check.Path, block string) {
		w = append(w, cidrWarnings(path, block)...)
	})
	return w
}

// cidrWarnings says in which form a block should be written, if it is in another.
func cidrWarnings(path check.Path, block string) []string {
	if _, _, err := netutils.ParseCIDRSloppy(block); err != nil {
		return nil
	}
	return validation.GetWarningsForCIDR(path.Field(), block)
}

// isIP says whether a text is an address, or was taken for one in the past.
func isIP(text string) bool { return netutils.ParseIPSloppy(text) != nil }
