package apiserver_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authz"
)

// What is wrong with a request for a stream is said over HTTP, before it becomes one.
func TestStreamRefusals(t *testing.T) {
	s := newSite(t)
	s.pod("two", `"nodeName":"n1","containers":[{"name":"a","image":"i"},{"name":"b","image":"i"}]`)
	s.must("POST", "/api/v1/nodes", `{"metadata":{"name":"n1"}}`)
	s.pod("lost", `"nodeName":"gone","containers":[{"name":"c","image":"i"}]`)
	s.pod("waiting", `"containers":[{"name":"c","image":"i"}]`)
	s.must("POST", "/api/v1/namespaces/default/services",
		`{"metadata":{"name":"web"},"spec":{"ports":[{"name":"http","port":80}]}}`)
	for path, want := range map[string]string{
		"pods/lost/exec?command=x&stdout=true":     `404 pods "gone" not found`,
		"pods/lost/attach?stdout=true":             `404 pods "gone" not found`,
		"pods/lost/portforward":                    `404 pods "gone" not found`,
		"pods/two/exec?command=x&stdout=true":      "400 a container name must be specified for pod two, choose one of: [a b]",
		"pods/two/attach?stdout=true&container=z":  "400 container z is not valid for pod two",
		"pods/two/attach?stdout=true&container=a":  `503 the agent of node "n1" is not connected`,
		"pods/two/portforward":                     `503 the agent of node "n1" is not connected`,
		"pods/two/portforward?ports=0":             `400 ports: found "0", allowed are 1 to 65535`,
		"pods/nosuch/portforward?ports=x":          `400 cannot convert to []int32: strconv.ParseUint: parsing "x": invalid syntax`,
		"pods/nosuch/portforward?ports=80,99999":   `400 cannot convert to []int32: strconv.ParseUint: parsing "99999": value out of range`,
		"pods/nosuch/exec":                         `404 pods "nosuch" not found`,
		"pods/waiting/exec":                        "400 pod waiting does not have a host assigned",
		"pods/waiting/exec?command=x&stdout=true":  "400 pod waiting does not have a host assigned",
		"pods/waiting/portforward":                 "400 pod waiting does not have a host assigned",
		"pods/nosuch/exec?command=x&stdout=true":   `404 pods "nosuch" not found`,
		"pods/a:b:c:d/proxy/":                      `400 invalid pod request "a:b:c:d"`,
		"pods/two/proxy/":                          "400 address not allowed",
		"pods/nosuch:80/proxy//with/../odd%2Fpath": `404 pods "nosuch" not found`,
		"services/web/proxy/":                      `503 no endpoints available for service "web"`,
		"services/web:81/proxy/":                   `503 no service port 81 found for service "web"`,
		"services/nosuch:81/proxy/":                `404 services "nosuch" not found`,
	} {
		r := s.get("/api/v1/namespaces/default/" + path)
		if got := fmt.Sprint(r.code, " ", r.object(t).str("message")); got != want {
			t.Errorf("%s: %s\nwant %s", path, got, want)
		}
	}
	if r := s.get("/api/v1/nodes/nosuch/proxy/pods"); r.code != 404 {
		t.Errorf("a node that is not there: %d %s", r.code, r.text)
	}
}

// readersOnly lets everybody read and nobody do anything else.
func readersOnly(o *apiserver.Options) {
	o.Authorizer = authz.Func(func(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
		if a.Verb == "get" {
			return authz.Allow, "", nil
		}
		return authz.NoOpinion, "", nil
	})
}

// Who may only read a pod may not run a command in it, though a WebSocket begins with a GET.
func TestExecNeedsCreate(t *testing.T) {
	for _, sub := range []string{"exec?command=x&stdout=true", "attach?stdout=true", "portforward"} {
		s := newSite(t, readersOnly)
		r := s.get(podPath + "/p/" + sub)
		if r.code != 403 {
			t.Errorf("%s: %d %s", sub, r.code, r.text)
		}
	}
}
