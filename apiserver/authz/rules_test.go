package authz_test

import (
	"context"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/apiserver/authz"
)

// TestRulesAreAllowed asks for everything that is listed.
func TestRulesAreAllowed(t *testing.T) {
	all := authz.Builtin()
	for _, u := range []*authn.User{
		{Name: "admin", Groups: []string{authn.Masters, authn.Authenticated}},
		{Name: "jane", Groups: []string{authn.Authenticated}},
		{Name: "system:anonymous"},
		{Name: "system:node:n1", Groups: []string{authn.Nodes, authn.Authenticated}},
	} {
		rules, complete := authz.Rules(t.Context(), all, u, "kube-node-lease")
		if !complete || len(rules) == 0 {
			t.Errorf("%s: %d rules, complete: %t", u.Name, len(rules), complete)
		}
		for _, r := range rules {
			for _, a := range attributes(u, r) {
				if d, _, err := all.Authorize(t.Context(), &a); d != authz.Allow || err != nil {
					t.Errorf("%s may not %s %s%s%s", u.Name, a.Verb, a.Group, a.Resource, a.Path)
				}
			}
		}
	}
}

func attributes(u *authn.User, r authz.Rule) (out []authz.Attributes) {
	for _, verb := range r.Verbs {
		for _, path := range r.Paths {
			out = append(out, authz.Attributes{User: u, Verb: verb, Path: strings.TrimSuffix(path, "*")})
		}
		for _, name := range r.Resources {
			resource, sub, _ := strings.Cut(name, "/")
			a := authz.Attributes{User: u, Verb: verb, Group: r.Groups[0], Resource: resource, Subresource: sub,
				Namespace: "kube-node-lease"}
			if len(r.Names) > 0 {
				a.Name = r.Names[0]
			}
			out = append(out, a)
		}
	}
	return out
}

func TestRulesOfAChain(t *testing.T) {
	jane := &authn.User{Name: "jane", Groups: []string{authn.Authenticated}}
	own, _ := authz.Rules(t.Context(), authz.Builtin(), jane, "ns")
	silent := authz.Func(func(context.Context, *authz.Attributes) (authz.Decision, string, error) {
		return authz.NoOpinion, "", nil
	})
	rules, complete := authz.Rules(t.Context(), authz.Chain(authz.Builtin(), silent), jane, "ns")
	if complete || len(rules) != len(own) {
		t.Errorf("%d rules, complete: %t", len(rules), complete)
	}
}
