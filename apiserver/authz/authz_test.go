package authz_test

import (
	"context"
	"errors"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/apiserver/authz"
)

func TestBuiltin(t *testing.T) {
	admin := &authn.User{Name: "admin", Groups: []string{"system:masters", "system:authenticated"}}
	jane := &authn.User{Name: "jane", Groups: []string{"system:authenticated"}}
	nobody := &authn.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}
	node := &authn.User{Name: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}}
	pretender := &authn.User{Name: "system:node:n1", Groups: []string{"system:authenticated"}}

	cases := []struct {
		about string
		user  *authn.User
		a     authz.Attributes
		want  authz.Decision
	}{
		{"masters delete", admin, authz.Attributes{Verb: "delete", Resource: "nodes", Name: "n1"}, authz.Allow},
		{"anybody asks for health", nobody, authz.Attributes{Verb: "get", Path: "/healthz"}, authz.Allow},
		{"anybody asks for a check", nobody, authz.Attributes{Verb: "get", Path: "/readyz/store"}, authz.Allow},
		{"anybody asks for the version", nobody, authz.Attributes{Verb: "get", Path: "/version"}, authz.Allow},
		{"nobody discovers", nobody, authz.Attributes{Verb: "get", Path: "/api/v1"}, authz.NoOpinion},
		{"jane discovers", jane, authz.Attributes{Verb: "get", Path: "/apis/apps/v1"}, authz.Allow},
		{"jane posts to discovery", jane, authz.Attributes{Verb: "post", Path: "/apis"}, authz.NoOpinion},
		{"jane reads metrics", jane, authz.Attributes{Verb: "get", Path: "/metrics"}, authz.NoOpinion},
		{"a path that only begins like one", jane, authz.Attributes{Verb: "get", Path: "/apiserver"}, authz.NoOpinion},
		{"jane asks about herself", jane, authz.Attributes{Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}, authz.Allow},
		{"nobody asks about himself", nobody, authz.Attributes{Verb: "create", Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}, authz.NoOpinion},
		{"jane asks about others", jane, authz.Attributes{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, authz.NoOpinion},
		{"jane lists pods", jane, authz.Attributes{Verb: "list", Resource: "pods"}, authz.NoOpinion},
		{"a node watches pods", node, authz.Attributes{Verb: "watch", Resource: "pods"}, authz.Allow},
		{"a node writes the status of a pod", node, authz.Attributes{Verb: "patch", Resource: "pods", Subresource: "status", Name: "p"}, authz.Allow},
		{"a node creates a pod", node, authz.Attributes{Verb: "create", Resource: "pods"}, authz.NoOpinion},
		{"a node writes its status", node, authz.Attributes{Verb: "patch", Resource: "nodes", Subresource: "status", Name: "n1"}, authz.Allow},
		{"a node writes another's status", node, authz.Attributes{Verb: "patch", Resource: "nodes", Subresource: "status", Name: "n2"}, authz.NoOpinion},
		{"a node renews its lease", node, authz.Attributes{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease", Name: "n1"}, authz.Allow},
		{"a node takes another's lease", node, authz.Attributes{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease", Name: "n2"}, authz.NoOpinion},
		{"a node takes a lease elsewhere", node, authz.Attributes{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system"}, authz.NoOpinion},
		{"a node writes secrets", node, authz.Attributes{Verb: "update", Resource: "secrets", Namespace: "x", Name: "s"}, authz.NoOpinion},
		{"a node connects", node, authz.Attributes{Verb: "post", Path: authz.ConnectPath("n1")}, authz.Allow},
		{"a node connects as another", node, authz.Attributes{Verb: "post", Path: authz.ConnectPath("n2")}, authz.NoOpinion},
		{"the name of a node without the group", pretender, authz.Attributes{Verb: "watch", Resource: "pods"}, authz.NoOpinion},
	}
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			c.a.User = c.user
			d, _, err := authz.Builtin().Authorize(t.Context(), &c.a)
			if err != nil || d != c.want {
				t.Errorf("decision %v (%v), want %v", d, err, c.want)
			}
		})
	}
}

func TestChainEndsAtTheFirstOpinion(t *testing.T) {
	always := func(d authz.Decision, reason string, err error) authz.Authorizer {
		return authz.Func(func(context.Context, *authz.Attributes) (authz.Decision, string, error) {
			return d, reason, err
		})
	}
	broken := errors.New("broken")
	cases := []struct {
		about  string
		chain  authz.Authorizer
		want   authz.Decision
		reason string
		err    error
	}{
		{"nobody has an opinion", authz.Chain(always(authz.NoOpinion, "a", nil), always(authz.NoOpinion, "b", nil)), authz.NoOpinion, "a, b", nil},
		{"a denial before an allowance", authz.Chain(always(authz.Deny, "no", nil), always(authz.Allow, "", nil)), authz.Deny, "no", nil},
		{"an allowance before a denial", authz.Chain(always(authz.Allow, "yes", nil), always(authz.Deny, "", nil)), authz.Allow, "yes", nil},
		{"an error before an allowance", authz.Chain(always(authz.NoOpinion, "", broken), always(authz.Allow, "", nil)), authz.NoOpinion, "", broken},
	}
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			d, reason, err := c.chain.Authorize(t.Context(), &authz.Attributes{})
			if d != c.want || reason != c.reason || !errors.Is(err, c.err) {
				t.Errorf("got %v %q %v, want %v %q %v", d, reason, err, c.want, c.reason, c.err)
			}
		})
	}
}
