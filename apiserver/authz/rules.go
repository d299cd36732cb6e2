package authz

import (
	"context"
	"strings"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

// Rule says what may be done: verbs on resources of groups, or on paths if there are any. "*" is all,
// at the end of a path too. Names restrict resources to the objects so named; none are all.
type Rule struct {
	Verbs, Groups, Resources, Names []string
	Paths                           []string
}

// Lister is an Authorizer that can say beforehand what it would allow somebody in a namespace.
// complete is false if there may be more.
type Lister interface {
	Rules(ctx context.Context, u *authn.User, namespace string) (rules []Rule, complete bool)
}

// Rules lists what an authorizer would allow; it is not complete if the authorizer is no Lister.
func Rules(ctx context.Context, from Authorizer, u *authn.User, namespace string) (rules []Rule, complete bool) {
	if l, ok := from.(Lister); ok {
		return l.Rules(ctx, u, namespace)
	}
	return nil, false
}

func (c chain) Rules(ctx context.Context, u *authn.User, namespace string) (rules []Rule, complete bool) {
	complete = true
	for _, from := range c {
		more, all := Rules(ctx, from, u, namespace)
		rules, complete = append(rules, more...), complete && all
	}
	return rules, complete
}

// builtin is the Authorizer that Builtin makes.
type builtin struct{ Authorizer }

func (builtin) Rules(_ context.Context, u *authn.User, namespace string) ([]Rule, bool) {
	var rules []Rule
	if u.In(authn.Masters) {
		rules = append(rules, Rule{Verbs: []string{"*"}, Groups: []string{"*"}, Resources: []string{"*"}},
			Rule{Verbs: []string{"*"}, Paths: []string{"*"}})
	}
	paths := []string{"/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*", "/version", "/version/*"}
	if u.In(authn.Authenticated) {
		paths = append(paths, "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")
		create := []string{"create"}
		rules = append(rules,
			Rule{Verbs: create, Groups: []string{"authorization.k8s.io"},
				Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}},
			Rule{Verbs: create, Groups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}})
	}
	rules = append(rules, Rule{Verbs: []string{"get"}, Paths: paths})
	if node, ok := strings.CutPrefix(u.Name, authn.NodePrefix); ok && u.In(authn.Nodes) {
		rules = append(rules, rulesOfNode(node, namespace)...)
	}
	return rules, true
}

func rulesOfNode(node, namespace string) []Rule {
	var rules []Rule
	for _, r := range nodeRules {
		if r.namespace != "" && r.namespace != namespace {
			continue
		}
		rule := Rule{Verbs: strings.Fields(r.verbs), Groups: []string{r.group}, Resources: []string{r.resource}}
		if r.subresource != "" {
			rule.Resources[0] += "/" + r.subresource
		}
		if r.own {
			rule.Names = []string{node}
		}
		rules = append(rules, rule)
	}
	return append(rules, Rule{Verbs: []string{"get", "post"}, Paths: []string{ConnectPath(node)}})
}
