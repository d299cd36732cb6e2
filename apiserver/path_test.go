package apiserver_test

import (
	"net/http"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

// A path never reaches an object that it does not spell out.
func TestB150_Paths(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "")
	s.must("POST", "/api/v1/namespaces/kube-system/configmaps", `{"metadata":{"name":"secret"}}`)
	for path, want := range map[string]int{
		"/api/v1/namespaces/default/configmaps/a":                         200,
		"/api/v1/namespaces/default/configmaps/a/":                        200,
		"/api/v1/namespaces/default/configmaps/..%2fkube-system%2fsecret": 404,
		"/api/v1/namespaces/default/configmaps/%2e%2e":                    400,
		"/api/v1/namespaces/default%2fconfigmaps/a":                       404,
		"/api/v1/namespaces/../configmaps":                                400,
		"/api/v1/namespaces//configmaps":                                  404,
		"/api/v1/namespaces/default/configmaps//a":                        404,
		"/api/v1/namespaces/default/configmap":                            404,
		"/api/v1/namespaces/default/configmapss":                          404,
		"/api/v1/namespaces/default/configmaps.x":                         404,
		"/api/v1/namespaces/default/nodes":                                404,
		"/api/v1/nodes/nosuch":                                            404,
		"/api/v1/configmaps/a":                                            404,
		"/api/v1/namespaces/default/configmaps/a/status":                  404,
		"/api/v1/namespaces/default/configmaps/a/nosuch":                  404,
		"/api/v2/namespaces/default/configmaps":                           404,
		"/apis/nosuch.example.com/v1/things":                              404,
		"/api/v1/watch":                                                   404,
		"/":                                                               200,
		"/nosuch":                                                         404,
		"/setpoint.dev/v1/nodes/n1/connect":                               405,
		"/api/v1/namespaces/default/pods/p/log/more":                      405,
	} {
		if r := s.get(path); r.code != want {
			t.Errorf("%s: %d, want %d: %s", path, r.code, want, r.text)
		}
	}
}

func TestMethods(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "")
	for _, c := range []struct{ method, path string }{
		{"HEAD", cm + "/a"}, {"OPTIONS", cm + "/a"}, {"POST", cm + "/a"}, {"PATCH", cm}, {"PUT", cm},
		{"POST", "/api/v1/configmaps"}, {"DELETE", "/api/v1/configmaps"}, {"POST", "/version"}, {"TRACE", cm},
		{"DELETE", "/api/v1/namespaces"},
	} {
		if r := s.ask(c.method, c.path, "{}"); r.code != http.StatusMethodNotAllowed {
			t.Errorf("%s %s: %d %s", c.method, c.path, r.code, r.text)
		}
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	s := newSite(t)
	cases := []struct {
		about, path string
		header      []string
		code        int
		message     string
	}{
		{"list", cm, []string{"Impersonate-User", "jane"}, 403,
			`configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace "default"`},
		{"one", cm + "/a", []string{"Impersonate-User", "jane"}, 403,
			`configmaps "a" is forbidden: User "jane" cannot get resource "configmaps" in API group "" in the namespace "default"`},
		{"everywhere", "/api/v1/configmaps", []string{"Impersonate-User", "jane"}, 403,
			`configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" at the cluster scope`},
		{"a subresource", "/apis/apps/v1/namespaces/default/deployments/x/scale", []string{"Impersonate-User", "jane"}, 403,
			`deployments.apps "x" is forbidden: User "jane" cannot get resource "deployments/scale" in API group "apps" in the namespace "default"`},
		{"a watch", cm + "?watch=1", []string{"Impersonate-User", "jane"}, 403,
			`configmaps is forbidden: User "jane" cannot watch resource "configmaps" in API group "" in the namespace "default"`},
		{"one name in a list", cm + "?fieldSelector=metadata.name=a", []string{"Impersonate-User", "jane"}, 403,
			`configmaps "a" is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace "default"`},
		{"before what does not exist", "/api/v1/namespaces/default/gadgets", []string{"Impersonate-User", "jane"}, 403,
			`gadgets is forbidden: User "jane" cannot list resource "gadgets" in API group "" in the namespace "default"`},
		{"a path", "/metrics", []string{"Impersonate-User", "jane"}, 403, `forbidden: User "jane" cannot get path "/metrics"`},
		{"discovery", "/api/v1", []string{"Impersonate-User", "jane"}, 200, ""},
		{"a group without a user", cm, []string{"Impersonate-Group", "g"}, 400,
			"groups, uid and extra values can be impersonated only together with a user: the header Impersonate-User is missing"},
	}
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			r := s.get(c.path, c.header...)
			if got := r.object(t).str("message"); r.code != c.code || got != c.message {
				t.Errorf("%d %s\nwant %d %s", r.code, got, c.code, c.message)
			}
		})
	}
	jane := &http.Client{Transport: s.server.Transport(&authn.User{Name: "jane"})}
	other := &site{t: t, client: jane}
	r := other.get("/api/v1/nodes", "Impersonate-User", "admin", "Impersonate-Group", "system:masters")
	if want := `users "admin" is forbidden: User "jane" cannot impersonate resource "users" in API group "" at the cluster scope`; r.object(t).str("message") != want {
		t.Errorf("jane as admin: %d %s", r.code, r.text)
	}
}
