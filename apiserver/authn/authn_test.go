package authn_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

func request(header ...string) *http.Request {
	r := &http.Request{Header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func withCertificate(name string, groups ...string) *http.Request {
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups}}
	r := request()
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
	return r
}

func TestChain(t *testing.T) {
	known := &authn.User{Name: "jane", Groups: []string{"devs"}}
	chain := authn.Chain(authn.Certificates(), authn.Tokens(map[string]*authn.User{"s3cret": known}))
	unverified := withCertificate("mallory", "system:masters")
	unverified.TLS.VerifiedChains = nil

	cases := []struct {
		about  string
		r      *http.Request
		user   string
		groups string
		err    error
	}{
		{"no credentials", request(), "system:anonymous", "system:unauthenticated", nil},
		{"a token", request("Authorization", "Bearer s3cret"), "jane", "devs system:authenticated", nil},
		{"a scheme in lower case", request("Authorization", "bearer s3cret"), "jane", "devs system:authenticated", nil},
		{"an unknown token", request("Authorization", "Bearer nope"), "", "", authn.ErrUnauthorized},
		{"another scheme", request("Authorization", "Basic amFuZTpw"), "system:anonymous", "system:unauthenticated", nil},
		{"a certificate", withCertificate("admin", "system:masters"), "admin", "system:masters system:authenticated", nil},
		{"a certificate nobody verified", unverified, "system:anonymous", "system:unauthenticated", nil},
		{"a certificate without a name", withCertificate(""), "", "", authn.ErrUnauthorized},
	}
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			u, err := chain.Authenticate(c.r)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			if got := strings.Join(u.Groups, " "); u.Name != c.user || got != c.groups {
				t.Errorf("got %s in [%s], want %s in [%s]", u.Name, got, c.user, c.groups)
			}
		})
	}
	if !slices.Equal(known.Groups, []string{"devs"}) {
		t.Errorf("the configured user was changed: %v", known.Groups)
	}
}

func TestImpersonated(t *testing.T) {
	cases := []struct {
		about  string
		header []string
		want   *authn.User
		ok     bool
	}{
		{"nobody", nil, nil, true},
		{"a user", []string{"Impersonate-User", "jane"},
			&authn.User{Name: "jane", Groups: []string{"system:authenticated"}}, true},
		{"a user in groups", []string{"Impersonate-User", "jane", "Impersonate-Group", "a", "Impersonate-Group", "b"},
			&authn.User{Name: "jane", Groups: []string{"a", "b", "system:authenticated"}}, true},
		{"a service account", []string{"Impersonate-User", "system:serviceaccount:ns:robot"},
			&authn.User{Name: "system:serviceaccount:ns:robot", Groups: []string{
				"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"}}, true},
		{"nobody known", []string{"Impersonate-User", "system:anonymous"},
			&authn.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}, true},
		{"extra values", []string{"Impersonate-User", "jane", "Impersonate-Extra-Scopes", "view"},
			&authn.User{Name: "jane", Groups: []string{"system:authenticated"},
				Extra: map[string][]string{"scopes": {"view"}}}, true},
		{"groups without a user", []string{"Impersonate-Group", "system:masters"}, nil, false},
	}
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			u, ok := authn.Impersonated(request(c.header...).Header)
			if ok != c.ok {
				t.Fatalf("ok is %v, want %v", ok, c.ok)
			}
			if diff := cmp.Diff(c.want, u); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAspects(t *testing.T) {
	h := request("Impersonate-User", "system:serviceaccount:ns:robot", "Impersonate-Group", "g",
		"Impersonate-Uid", "u", "Impersonate-Extra-Scopes", "view").Header
	want := []authn.Aspect{
		{Resource: "serviceaccounts", Namespace: "ns", Name: "robot"},
		{Resource: "groups", Name: "g"},
		{Group: "authentication.k8s.io", Resource: "uids", Name: "u"},
		{Group: "authentication.k8s.io", Resource: "userextras", Subresource: "scopes", Name: "view"},
	}
	if diff := cmp.Diff(want, authn.Aspects(h)); diff != "" {
		t.Error(diff)
	}
}
