package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	openapi "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"

	"github.com/setpoint-dev/setpoint/apiserver/discovery"
)

func TestDiscoveryForms(t *testing.T) {
	s := newSite(t)
	const aggregated = discovery.AggregatedType
	cases := []struct {
		path, accept string
		code         int
		contentType  string
		kind         string
	}{
		{"/api", "", 200, "application/json", "APIVersions"},
		{"/api", aggregated, 200, aggregated, "APIGroupDiscoveryList"},
		{"/api", aggregated + ",application/json", 200, aggregated, "APIGroupDiscoveryList"},
		{"/api", "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json", 200, "application/json", "APIVersions"},
		{"/apis", "application/json," + aggregated, 200, "application/json", "APIGroupList"},
		{"/apis", aggregated, 200, aggregated, "APIGroupDiscoveryList"},
		{"/apis/", aggregated, 200, aggregated, "APIGroupDiscoveryList"},
		{"/apis/apps", "", 200, "application/json", "APIGroup"},
		{"/apis/apps/v1", "", 200, "application/json", "APIResourceList"},
		{"/apis/apps/v1/", "application/yaml", 200, "application/yaml", ""},
		{"/apis/apps/v9", "", 404, "application/json", "Status"},
		{"/api/v2", "", 404, "application/json", "Status"},
		{"/apis/nosuch.example.com", "", 404, "text/plain; charset=utf-8", ""},
		{"/apis/authorization.k8s.io/v1", "", 200, "application/json", "APIResourceList"},
		{"/version", "", 200, "application/json", ""},
		{"/", "", 200, "application/json", ""},
	}
	for _, c := range cases {
		r := s.get(c.path, "Accept", c.accept)
		if r.code != c.code || r.header.Get("Content-Type") != c.contentType {
			t.Errorf("%s as %s: %d %s", c.path, c.accept, r.code, r.header.Get("Content-Type"))
			continue
		}
		if c.kind != "" && r.object(t).str("kind") != c.kind {
			t.Errorf("%s as %s: %s", c.path, c.accept, r.text)
		}
	}
}

func TestDiscoveryIsCachedByItsTag(t *testing.T) {
	s := newSite(t)
	for path, accept := range map[string]string{"/apis": discovery.AggregatedType, "/openapi/v3": "application/json"} {
		first := s.get(path, "Accept", accept)
		again := s.get(path, "Accept", accept, "If-None-Match", first.header.Get("ETag"))
		other := s.get(path, "Accept", accept, "If-None-Match", `"other"`)
		if again.code != http.StatusNotModified || again.text != "" || other.code != http.StatusOK {
			t.Errorf("%s: %d %q, then %d", path, again.code, again.text, other.code)
		}
	}
}

func TestHealth(t *testing.T) {
	s := newSite(t)
	for path, want := range map[string]string{
		"/healthz":                      "200 ok",
		"/livez":                        "200 ok",
		"/readyz":                       "200 ok",
		"/readyz/store":                 "200 ok",
		"/livez?verbose":                "200 [+]ping ok\n[+]store ok\nlivez check passed\n",
		"/readyz?verbose&exclude=store": "200 [+]ping ok\n[+]store excluded: ok\n[+]shutdown ok\nreadyz check passed\n",
		"/readyz/nosuch":                "404 404 page not found\n",
	} {
		r := s.get(path)
		if got := fmt.Sprint(r.code, " ", r.text); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// kubectl decides by these parts of the document how to apply, and explains by the others.
func TestOpenAPIv3(t *testing.T) {
	s := newSite(t)
	index := s.get("/openapi/v3").object(t)
	links := index["paths"].(map[string]any)
	apps := object(links["apis/apps/v1"].(map[string]any)).str("serverRelativeURL")
	if links["api/v1"] == nil || !strings.HasPrefix(apps, "/openapi/v3/apis/apps/v1?hash=") {
		t.Fatalf("index %v", index)
	}
	r := s.get(apps)
	if r.header.Get("Cache-Control") != "public, immutable" {
		t.Errorf("Cache-Control %q", r.header.Get("Cache-Control"))
	}
	doc := r.object(t)
	path := doc["paths"].(map[string]any)["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"].(map[string]any)
	patch := object(path["patch"].(map[string]any))
	if got := patch.at("x-kubernetes-group-version-kind"); got.(map[string]any)["kind"] != "Deployment" {
		t.Errorf("the patch is of %v", got)
	}
	if patch.at("requestBody.content").(map[string]any)["application/strategic-merge-patch+json"] == nil {
		t.Error("the patch does not take strategic merges")
	}
	names := map[string]bool{}
	for _, p := range patch["parameters"].([]any) {
		names[p.(map[string]any)["name"].(string)] = true
	}
	if !names["fieldValidation"] || !names["dryRun"] {
		t.Errorf("parameters %v", names)
	}
	schemas := doc.at("components.schemas").(map[string]any)
	checkReferences(t, schemas, doc["paths"])
	deployment := schemas["io.k8s.api.apps.v1.Deployment"].(map[string]any)
	if deployment["description"] == "" || deployment["x-kubernetes-group-version-kind"] == nil {
		t.Errorf("Deployment %v", deployment)
	}
	if r := s.get("/openapi/v3/apis/nosuch/v1"); r.code != http.StatusNotFound {
		t.Errorf("a group that does not exist: %d", r.code)
	}
}

// checkReferences finds references to components that are not there.
func checkReferences(t *testing.T, schemas map[string]any, v any) {
	t.Helper()
	missing := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				name := strings.TrimPrefix(ref, "#/components/schemas/")
				if _, there := schemas[name]; !there && !missing[name] {
					missing[name] = true
					t.Errorf("%s is referred to and not there", name)
				}
			}
			for _, value := range v {
				walk(value)
			}
		}
	}
	walk(schemas)
	walk(v)
}

func TestOpenAPIv2IsOneForBothEncodings(t *testing.T) {
	s := newSite(t)
	doc := s.get("/openapi/v2").object(t)
	definitions := doc["definitions"].(map[string]any)
	spec := object(definitions["io.k8s.api.apps.v1.Deployment"].(map[string]any)).at("properties.spec").(map[string]any)
	if spec["$ref"] != "#/definitions/io.k8s.api.apps.v1.DeploymentSpec" {
		t.Errorf("spec %v", spec)
	}
	const asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	const answered = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	for _, accept := range []string{asked, answered} {
		if r := s.get("/openapi/v2", "Accept", accept); r.header.Get("Content-Type") != answered {
			t.Errorf("%s is answered with %s", accept, r.header.Get("Content-Type"))
		}
	}
	r := s.get("/openapi/v2", "Accept", asked)
	var parsed openapi.Document
	if err := proto.Unmarshal([]byte(r.text), &parsed); err != nil {
		t.Fatal(err)
	}
	if got, want := len(parsed.Definitions.AdditionalProperties), len(definitions); got != want {
		t.Errorf("%d definitions, want %d", got, want)
	}
}

func TestReviews(t *testing.T) {
	s := newSite(t)
	const authz = "/apis/authorization.k8s.io/v1/"
	self := s.must("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`, "Impersonate-User", "jane", "Impersonate-Group", "g")
	if self.str("status.userInfo.username") != "jane" || len(self.at("status.userInfo.groups").([]any)) != 2 {
		t.Errorf("jane is %v", self)
	}
	for _, c := range []struct {
		path, body string
		header     []string
		allowed    bool
	}{
		{authz + "selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"delete","resource":"nodes"}}}`, nil, true},
		{authz + "selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"delete","resource":"nodes"}}}`, []string{"Impersonate-User", "jane"}, false},
		{authz + "selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/api"}}}`, []string{"Impersonate-User", "jane"}, true},
		{authz + "subjectaccessreviews", `{"spec":{"user":"x","groups":["system:masters"],"resourceAttributes":{"verb":"get","resource":"pods"}}}`, nil, true},
		{authz + "namespaces/default/localsubjectaccessreviews", `{"spec":{"user":"x","resourceAttributes":{"namespace":"default","verb":"get","resource":"pods"}}}`, nil, false},
	} {
		o := s.must("POST", c.path, c.body, c.header...)
		if o.at("status.allowed") != c.allowed || o.str("apiVersion") != "authorization.k8s.io/v1" {
			t.Errorf("%s %s: %v", c.path, c.body, o)
		}
	}
	for body, want := range map[string]int{
		`{"spec":{}}`: 422,
		`{"spec":{"resourceAttributes":{"verb":"get"},"nonResourceAttributes":{"verb":"get"}}}`: 422,
		`{`: 400,
	} {
		if r := s.ask("POST", authz+"selfsubjectaccessreviews", body); r.code != want {
			t.Errorf("%s: %d %s", body, r.code, r.text)
		}
	}
	if r := s.ask("POST", authz+"selfsubjectaccessreviews", `{}`, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"); r.code != http.StatusNotAcceptable {
		t.Errorf("a review as a table: %d %s", r.code, r.text)
	}
	rules := s.must("POST", authz+"selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`, "Impersonate-User", "jane")
	if rules.at("status.incomplete") != false || len(rules.at("status.resourceRules").([]any)) != 2 {
		t.Errorf("jane may: %v", rules)
	}
	if r := s.ask("POST", authz+"selfsubjectrulesreviews", `{"spec":{}}`); r.code != http.StatusBadRequest {
		t.Errorf("rules nowhere: %d %s", r.code, r.text)
	}
	token := s.must("POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"x"}}`)
	if token.str("status.error") != "invalid bearer token" {
		t.Errorf("a token nobody has: %v", token)
	}
}
