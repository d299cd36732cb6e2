package builtin

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Annotations of ingresses and their classes that are more than notes.
const (
	ingressClassAnnotation = "kubernetes.io/ingress.class"
	defaultClassAnnotation = "ingressclass.kubernetes.io/is-default-class"
)

func ingress() *kinds.Kind {
	return &kinds.Kind{
		Group: "networking.k8s.io", Version: "v1", Kind: "Ingress", Resource: "ingresses", Singular: "ingress",
		ShortNames: []string{"ing"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.networking.v1.Ingress"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("Class", "The name of the class that says which controller serves the ingress",
				func(obj kinds.Object, _ time.Time) any {
					if !tree.Has(obj, "spec", "ingressClassName") {
						return table.None
					}
					return tree.Str(obj, "spec", "ingressClassName")
				}),
			table.Column("Hosts", "Hosts that incoming requests are matched against before the ingress rule", ingressHosts),
			table.Column("Address", "Address is a list containing ingress points for the load-balancer", ingressAddress),
			table.Column("Ports", "Ports of TLS configurations that open", func(obj kinds.Object, _ time.Time) any {
				if len(tree.List(obj, "spec", "tls")) > 0 {
					return "80, 443"
				}
				return "80"
			}),
			table.Age(),
		},
		Status:             true,
		Generation:         true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			PrepareForCreate:       emptyStatus(map[string]any{"loadBalancer": map[string]any{}}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateIngress,
			ValidateCreate:         validateNewIngress,
			ValidateStatusUpdate:   validateIngressStatus,
			Warnings:               ingressWarnings,
		},
	}
}

func ingressClass() *kinds.Kind {
	name := table.Name()
	name.Cell = markDefault(defaultClassAnnotation)
	return &kinds.Kind{
		Group: "networking.k8s.io", Version: "v1", Kind: "IngressClass",
		Resource: "ingressclasses", Singular: "ingressclass",
		Schema: schema.Builtin("io.k8s.api.networking.v1.IngressClass"),
		Columns: []kinds.Column{
			name,
			table.Text("Controller", "Controller that is responsible for handling this class", "spec", "controller"),
			table.Column("Parameters", "A reference to a resource with additional parameters", classParameters),
			table.Age(),
		},
		Generation:         true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default: func(obj kinds.Object) {
				if p := tree.Map(obj, "spec", "parameters"); p != nil {
					tree.Default(p, "Cluster", "scope")
				}
			},
			Validate:       validateIngressClass,
			ChangesFirst:   true,
			ValidateUpdate: unchanged("spec.controller"),
		},
	}
}

// markDefault makes the cell of a name that says whether an annotation makes the object the default.
func markDefault(annotations ...string) func(kinds.Object, time.Time) any {
	return func(obj kinds.Object, _ time.Time) any {
		name := tree.Str(obj, "metadata", "name")
		for _, key := range annotations {
			if tree.Str(obj, "metadata", "annotations", key) == "true" {
				return name + " (default)"
			}
		}
		return name
	}
}

func ingressHosts(obj kinds.Object, _ time.Time) any {
	var hosts []string
	for _, rule := range tree.Maps(obj, "spec", "rules") {
		if host := tree.Str(rule, "host"); host != "" {
			hosts = append(hosts, host)
		}
	}
	if len(hosts) == 0 {
		return "*"
	}
	return table.AtMost(cellWords, hosts)
}

func ingressAddress(obj kinds.Object, _ time.Time) any {
	found := sets.Set[string]{}
	for _, in := range tree.Maps(obj, "status", "loadBalancer", "ingress") {
		if at := table.Or(tree.Str(in, "ip"), tree.Str(in, "hostname")); at != "" {
			found.Insert(at)
		}
	}
	return strings.Join(sets.List(found), ",")
}

func classParameters(obj kinds.Object, _ time.Time) any {
	p := tree.Map(obj, "spec", "parameters")
	if p == nil {
		return table.None
	}
	kind := tree.Str(p, "kind")
	if tree.Has(p, "apiGroup") {
		kind += "." + tree.Str(p, "apiGroup")
	}
	return kind + "/" + tree.Str(p, "name")
}

func ingressWarnings(obj, old kinds.Object) []string {
	annotated := tree.Has(obj, "metadata", "annotations", ingressClassAnnotation)
	if old == nil && annotated && !tree.Has(obj, "spec", "ingressClassName") {
		return []string{`annotation "` + ingressClassAnnotation +
			`" is deprecated, please use 'spec.ingressClassName' instead`}
	}
	return nil
}
