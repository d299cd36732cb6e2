package apiserver_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/apiserver/cbor"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
)

// The fuzzers send requests of which one part may be anything. Whatever it is, the answer is not that
// the server failed. Writes are dry runs, so that one input finds what another found.

// fuzzed is the server of all inputs of a process, with objects of several kinds in it.
type fuzzed struct{ *site }

func newFuzzed(f *testing.F) *fuzzed {
	s := &fuzzed{newSite(f)}
	s.configMap("a", "x=y")
	s.must("POST", "/apis/apps/v1/namespaces/default/deployments", deployment)
	s.must("POST", pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	return s
}

// send returns the code of the answer, which is no failure of the server's: those have a reason, unlike some
// answers to clients' mistakes that have the same code, as in Kubernetes. A revision that is yet to come is
// one of those that have a reason.
func (s *fuzzed) send(t *testing.T, method, path string, body []byte, header ...string) int {
	t.Helper()
	admin := &authn.User{Name: "admin", Groups: []string{authn.Masters}}
	ctx := authn.WithUser(context.Background(), admin)
	req, err := http.NewRequestWithContext(ctx, method, "http://setpoint"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.server.ServeHTTP(w, req)
	ahead := w.Code == http.StatusGatewayTimeout && bytes.Contains(w.Body.Bytes(), []byte("ResourceVersionTooLarge"))
	if w.Code >= 500 && !ahead && bytes.Contains(w.Body.Bytes(), []byte(`"reason"`)) {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body.Bytes())
	}
	return w.Code
}

var fuzzTypes = []string{"application/json", "application/yaml", protobufType, "application/cbor"}

var fuzzPaths = []string{
	cms, pods, "/apis/apps/v1/namespaces/default/deployments", "/api/v1/namespaces/default/events",
	"/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", crds,
	"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", pods + "/p/eviction", "/api/v1/nodes",
}

func FuzzBody(f *testing.F) {
	s := newFuzzed(f)
	const text = `{"metadata":{"name":"x","labels":{"a":"b"}},"data":{"k":"v"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	message, err := compiled.Builtin("io.k8s.api.core.v1.ConfigMap").AppendProto(nil, []byte(text))
	if err != nil {
		f.Fatal(err)
	}
	for i := range fuzzPaths {
		f.Add(uint8(i), uint8(0), []byte(text))
		f.Add(uint8(i), uint8(1), []byte("metadata: {name: x}\ndata: &a {k: v}\n"))
		f.Add(uint8(i), uint8(2), compiled.AppendEnvelope(nil, "v1", "ConfigMap", message))
		f.Add(uint8(i), uint8(3), cbor.AppendJSON(cbor.Begin(nil), []byte(text)))
	}
	f.Add(uint8(2), uint8(0), []byte(deployment))
	f.Fuzz(func(t *testing.T, path, media uint8, body []byte) {
		s.send(t, "POST", fuzzPaths[int(path)%len(fuzzPaths)]+"?dryRun=All", body,
			"Content-Type", fuzzTypes[int(media)%len(fuzzTypes)])
	})
}

func FuzzPatch(f *testing.F) {
	s := newFuzzed(f)
	types := []string{jsonPatch, merge, strategic, apply, "application/apply-patch+cbor"}
	paths := []string{cms + "/a", pods + "/p", "/apis/apps/v1/namespaces/default/deployments/d",
		"/apis/apps/v1/namespaces/default/deployments/d/scale", pods + "/p/status", cms + "/none"}
	for i := range paths {
		f.Add(uint8(i), uint8(0), []byte(`[{"op":"add","path":"/metadata/labels","value":{"x":"y"}},{"op":"copy","from":"/metadata","path":"/data"}]`))
		f.Add(uint8(i), uint8(1), []byte(`{"metadata":{"labels":{"x":null}},"data":{"k":"w"}}`))
		f.Add(uint8(i), uint8(2), []byte(`{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"c","$patch":"delete"}]}}}}`))
		f.Add(uint8(i), uint8(3), []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"))
		f.Add(uint8(i), uint8(4), cbor.AppendJSON(nil, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)))
	}
	f.Fuzz(func(t *testing.T, path, kind uint8, body []byte) {
		query := "?dryRun=All"
		if i := int(kind) % len(types); i > 2 {
			query += "&fieldManager=m&force=true"
		}
		s.send(t, "PATCH", paths[int(path)%len(paths)]+query, body, "Content-Type", types[int(kind)%len(types)])
	})
}

func FuzzDeleteOptions(f *testing.F) {
	s := newFuzzed(f)
	f.Add(uint8(0), []byte(`{"gracePeriodSeconds":0,"preconditions":{"uid":"x"},"propagationPolicy":"Orphan"}`))
	f.Add(uint8(1), []byte("dryRun: [All]"))
	f.Add(uint8(2), compiled.AppendEnvelope(nil, "v1", "DeleteOptions", []byte{8, 5}))
	f.Add(uint8(3), cbor.AppendJSON(nil, []byte(`{"orphanDependents":true}`)))
	f.Fuzz(func(t *testing.T, media uint8, body []byte) {
		s.send(t, "DELETE", cms+"/none", body, "Content-Type", fuzzTypes[int(media)%len(fuzzTypes)])
	})
}

func FuzzListOptions(f *testing.F) {
	s := newFuzzed(f)
	f.Add("a in (b,c),!d,e!=f", "metadata.name=a,spec.nodeName!=x", `{"v":"meta.k8s.io/v1","rv":5,"start":"a"}`, "5", "1")
	f.Add("x notin (y)", "status.phase==Running", "{}", "", "")
	f.Fuzz(func(t *testing.T, labels, fields, token, revision, limit string) {
		for _, next := range []string{"", token, base64.RawURLEncoding.EncodeToString([]byte(token))} {
			query := url.Values{"labelSelector": {labels}, "fieldSelector": {fields}, "continue": {next}, "limit": {limit}}
			s.send(t, "GET", pods+"?"+query.Encode(), nil)
			query.Set("resourceVersion", revision)
			s.send(t, "GET", cms+"/a?"+query.Encode(), nil)
		}
	})
}

func FuzzAccept(f *testing.F) {
	s := newFuzzed(f)
	f.Add("application/json;as=Table;v=v1;g=meta.k8s.io,*/*;q=0.1", "None")
	f.Add(protobufType+asMany+";q=0.5,"+protobufType, "")
	f.Add("application/cbor, application/yaml;q=x", "Object")
	f.Fuzz(func(t *testing.T, accept, include string) {
		query := "?includeObject=" + url.QueryEscape(include)
		for _, path := range []string{pods, pods + "/p", pods + "/none", "/apis", "/openapi/v2"} {
			s.send(t, "GET", path+query, nil, "Accept", accept)
		}
	})
}

func FuzzFence(f *testing.F) {
	s := newFuzzed(f)
	f.Add("default/l;uid=u;epoch=5;holder=a%20b")
	f.Add("default/l;holder=x;epoch=-9223372036854775808")
	f.Fuzz(func(t *testing.T, header string) {
		s.send(t, "POST", cms+"?dryRun=All", []byte(`{"metadata":{"name":"x"}}`), "Setpoint-Fence", header)
	})
}

func FuzzAtomic(f *testing.F) {
	s := newFuzzed(f)
	f.Add([]byte(`{"operations":[{"verb":"create","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}},` +
		`{"verb":"apply","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}},` +
		`{"verb":"delete","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		s.send(t, "POST", apiserver.AtomicPath+"?dryRun=All&fieldManager=m", body)
	})
}

// FuzzDefinition declares a kind by any schema, and, if that is accepted, sends an object of it.
func FuzzDefinition(f *testing.F) {
	s := newFuzzed(f)
	for _, spec := range []string{
		`{"type":"object","properties":{"x":{"type":"integer","minimum":1,"default":5}},"required":["x"]}`,
		`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`,
		`{"type":"array","items":{"type":"object","properties":{"k":{"type":"string"}},"required":["k"]},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"]}`,
		`{"type":"object","additionalProperties":{"x-kubernetes-int-or-string":true},"x-kubernetes-validations":[{"rule":"self.size() < 3"}]}`,
		`{"type":"object","properties":{"p":{"type":"string","pattern":"^a*$","enum":["a"],"nullable":true}}}`,
	} {
		f.Add(spec, `{"x":1}`)
		f.Add(spec, `[{"k":"a"},{"k":"a"}]`)
	}
	f.Fuzz(func(t *testing.T, spec, object string) {
		if s.send(t, "POST", crds, []byte(definition(spec))) != http.StatusCreated {
			return
		}
		s.send(t, "POST", widgets, []byte(widget("w", `"spec":`+object)))
		s.send(t, "GET", widgets, nil, "Accept", "application/json"+asTable)
		s.send(t, "DELETE", crds+"/widgets.example.com", nil)
	})
}
