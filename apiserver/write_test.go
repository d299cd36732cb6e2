package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/memory"
)

// api is a server as its clients see it.
type api struct {
	t      testing.TB
	store  store.Store
	clock  *testclock.FakeClock
	server *apiserver.Server
	client *http.Client
}

func newAPI(t testing.TB, options ...func(*apiserver.Options)) *api {
	t.Helper()
	a := &api{t: t, store: memory.New(memory.Options{}),
		clock: testclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	t.Cleanup(func() { a.store.Close() })
	opts := apiserver.Options{Store: a.store, Kinds: kinds.NewRegistry(builtin.Set()), Clock: a.clock}
	for _, option := range options {
		option(&opts)
	}
	s, err := apiserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bootstrap(context.Background()); err != nil {
		t.Fatal(err)
	}
	a.server = s
	user := &authn.User{Name: "admin", Groups: []string{authn.Masters}}
	a.client = &http.Client{Transport: s.Transport(user)}
	return a
}

// answer is what a request came to.
type answer struct {
	code     int
	warnings []string
	body     map[string]any
	text     string
}

func (r answer) str(path ...string) string { return tree.Str(r.body, path...) }

// rev is the object's resourceVersion, gen its generation.
func (r answer) rev() string { return r.str("metadata", "resourceVersion") }
func (r answer) gen() string { return fmt.Sprint(tree.Get(r.body, "metadata", "generation")) }

// causes are the fields that an error names.
func (r answer) causes() string {
	var fields []string
	for _, c := range tree.Maps(r.body, "details", "causes") {
		fields = append(fields, tree.Str(c, "field"))
	}
	return strings.Join(fields, " ")
}

const (
	merge     = "application/merge-patch+json"
	strategic = "application/strategic-merge-patch+json"
	jsonPatch = "application/json-patch+json"
	apply     = "application/apply-patch+yaml"
)

// do sends a request: "METHOD path", with a media type and a body. It may be called concurrently.
func (a *api) do(line, contentType, body string) answer {
	a.t.Helper()
	method, path, _ := strings.Cut(line, " ")
	req, err := http.NewRequest(method, "http://setpoint"+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("User-Agent", "tester/1.0")
	resp, err := a.client.Do(req)
	if err != nil {
		a.t.Error(err)
		return answer{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Error(err)
	}
	out := answer{code: resp.StatusCode, warnings: resp.Header["Warning"], text: string(text)}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&out.body); err != nil {
		out.body = nil
	}
	return out
}

// want sends a request that must be answered with a code.
func (a *api) want(code int, line, contentType, body string) answer {
	a.t.Helper()
	got := a.do(line, contentType, body)
	if got.code != code {
		a.t.Fatalf("%s: got %d, want %d: %s", line, got.code, code, got.text)
	}
	return got
}

const (
	cms  = "/api/v1/namespaces/default/configmaps"
	pods = "/api/v1/namespaces/default/pods"
	svcs = "/api/v1/namespaces/default/services"
	deps = "/apis/apps/v1/namespaces/default/deployments"

	deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"d"}},
		"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"x"}]}}}}`
)

func TestCreate_SetsWhatClientsMayNot(t *testing.T) {
	a := newAPI(t)
	got := a.want(201, "POST "+cms, "", `{"metadata":{"name":"a","uid":"mine","creationTimestamp":"2001-01-01T00:00:00Z",
		"deletionTimestamp":"2001-01-01T00:00:00Z","deletionGracePeriodSeconds":9}}`)
	if got.str("metadata", "uid") == "mine" || got.str("metadata", "creationTimestamp") != "2026-01-02T03:04:05Z" ||
		tree.Has(got.body, "metadata", "deletionTimestamp") || got.str("metadata", "namespace") != "default" {
		t.Errorf("got %s", got.text)
	}
}

func TestCreate_GeneratesNames(t *testing.T) {
	a := newAPI(t)
	first := a.want(201, "POST "+cms, "", `{"metadata":{"generateName":"g-"}}`).str("metadata", "name")
	second := a.want(201, "POST "+cms, "", `{"metadata":{"generateName":"g-"}}`).str("metadata", "name")
	if first == second || len(first) != len("g-")+5 || !strings.HasPrefix(first, "g-") {
		t.Errorf("got names %q and %q", first, second)
	}
}

func TestCreate_InANamespaceThatGoes(t *testing.T) {
	a := newAPI(t)
	a.want(404, "POST /api/v1/namespaces/none/configmaps", "", `{"metadata":{"name":"a"}}`)
	a.want(201, "POST /api/v1/namespaces", "", `{"metadata":{"name":"going"}}`)
	a.want(201, "POST /api/v1/namespaces/going/configmaps", "", `{"metadata":{"name":"a"}}`)
	if got := a.want(200, "DELETE /api/v1/namespaces/going", "", ""); got.str("status", "phase") != "Terminating" {
		t.Errorf("phase is %q", got.str("status", "phase"))
	}
	got := a.want(403, "POST /api/v1/namespaces/going/configmaps", "", `{"metadata":{"name":"b"}}`)
	if got.causes() != "metadata.namespace" || !strings.Contains(got.text, "NamespaceTerminating") {
		t.Errorf("got %s", got.text)
	}
	a.want(200, "PUT /api/v1/namespaces/going/finalize", "", `{"metadata":{"name":"going"},"spec":{}}`)
	a.want(404, "GET /api/v1/namespaces/going", "", "")
	for _, name := range []string{"default", "kube-system", "kube-public"} {
		a.want(403, "DELETE /api/v1/namespaces/"+name, "", "")
	}
}

func TestDryRun_StoresNothing(t *testing.T) {
	a := newAPI(t)
	made := a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"},"data":{"k":"1"}}`)
	before := a.store.Revision()
	if got := a.want(201, "POST "+cms+"?dryRun=All", "", `{"metadata":{"name":"b"}}`); got.rev() != "" {
		t.Errorf("an object that is not stored has resourceVersion %q", got.rev())
	}
	a.want(409, "POST "+cms+"?dryRun=All", "", `{"metadata":{"name":"a"}}`)
	got := a.want(200, "PATCH "+cms+"/a?dryRun=All", merge, `{"data":{"k":"2"}}`)
	if got.str("data", "k") != "2" || got.rev() != made.rev() {
		t.Errorf("got %s", got.text)
	}
	a.want(200, "DELETE "+cms+"/a?dryRun=All", "", "")
	a.want(200, "DELETE "+cms+"?dryRun=All", "", "")
	a.want(201, "PATCH "+cms+"/c?dryRun=All&fieldManager=m", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`)
	if after := a.store.Revision(); after != before {
		t.Errorf("the store went from revision %d to %d", before, after)
	}
}

func TestUpdate_Concurrency(t *testing.T) {
	a := newAPI(t)
	first := a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"},"data":{"k":"1"}}`)
	body := func(rev, value string) string {
		return fmt.Sprintf(`{"metadata":{"name":"a","resourceVersion":%q},"data":{"k":%q}}`, rev, value)
	}
	second := a.want(200, "PUT "+cms+"/a", "", body(first.rev(), "2"))
	stale := a.want(409, "PUT "+cms+"/a", "", body(first.rev(), "3"))
	if !strings.Contains(stale.text, "the object has been modified; please apply your changes to the latest version and try again") {
		t.Errorf("got %s", stale.text)
	}
	if same := a.want(200, "PUT "+cms+"/a", "", body("", "2")); same.rev() != second.rev() {
		t.Errorf("a write that changes nothing went from revision %s to %s", second.rev(), same.rev())
	}
	a.want(409, "PUT "+cms+"/a", "", `{"metadata":{"name":"a","uid":"other"}}`)
	a.want(404, "PUT "+cms+"/none", "", `{"metadata":{"name":"none"}}`)
	a.want(201, "PUT /apis/coordination.k8s.io/v1/namespaces/default/leases/l", "", `{"metadata":{"name":"l"},"spec":{"holderIdentity":"h"}}`)
	blind := a.want(422, "PUT /apis/coordination.k8s.io/v1/namespaces/default/leases/l", "", `{"metadata":{"name":"l"},"spec":{"holderIdentity":"i"}}`)
	if !strings.Contains(blind.text, `leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update`) {
		t.Errorf("got %s", blind.text)
	}
}

func TestScale(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+deps, "", deployment)
	if got := a.want(200, "GET "+deps+"/d/scale", "", ""); fmt.Sprint(tree.Get(got.body, "spec", "replicas")) != "2" ||
		got.str("status", "selector") != "app=d" {
		t.Errorf("got %s", got.text)
	}
	a.want(200, "PUT "+deps+"/d/scale", "", `{"metadata":{"name":"d"},"spec":{"replicas":5}}`)
	got := a.want(200, "GET "+deps+"/d", "", "")
	if fmt.Sprint(tree.Get(got.body, "spec", "replicas")) != "5" || got.gen() != "2" {
		t.Errorf("got %s", got.text)
	}
	a.want(200, "PATCH "+deps+"/d/scale?fieldManager=s&force=true", apply, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d"},"spec":{"replicas":7}}`)
	got = a.want(200, "GET "+deps+"/d", "", "")
	if fmt.Sprint(tree.Get(got.body, "spec", "replicas")) != "7" {
		t.Errorf("got %s", got.text)
	}
	a.want(409, "PUT "+deps+"/d/scale", "", `{"metadata":{"name":"d","resourceVersion":"1"},"spec":{"replicas":1}}`)
	if got := a.want(422, "PATCH "+deps+"/d/scale", merge, `{"spec":{"replicas":-1}}`); got.causes() != "spec.replicas" {
		t.Errorf("got %s", got.text)
	}
}

func TestBinding_GivesAPodOnce(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+pods, "", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"x"}]}}`)
	codes := make([]int, 8)
	var all sync.WaitGroup
	for i := range codes {
		all.Go(func() {
			codes[i] = a.do("POST "+pods+"/p/binding", "", fmt.Sprintf(`{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n%d"}}`, i)).code
		})
	}
	all.Wait()
	won := 0
	for _, code := range codes {
		switch code {
		case 201:
			won++
		case 409:
		default:
			t.Errorf("got %d", code)
		}
	}
	got := a.want(200, "GET "+pods+"/p", "", "")
	if won != 1 || got.str("spec", "nodeName") == "" || !strings.Contains(got.text, "PodScheduled") {
		t.Errorf("%d bindings won: %s", won, got.text)
	}
	a.want(500, "POST "+pods+"/p/binding", "", `{"target":{"kind":"Moon","name":"n"}}`) // as Kubernetes answers it
	a.want(201, "POST "+pods, "", `{"metadata":{"name":"q"},"spec":{"containers":[{"name":"c","image":"x"}]}}`)
	a.want(201, "POST /api/v1/namespaces/default/bindings", "", `{"metadata":{"name":"q"},"target":{"name":"n"}}`)
	a.want(409, "POST "+pods+"/q/binding", "", `{"target":{"name":"n"}}`)
	a.want(400, "POST /api/v1/namespaces/default/bindings", "", `{"target":{"name":"n"}}`)
	a.want(404, "POST "+pods+"/none/binding", "", `{"target":{"name":"n"}}`)
}

func TestEviction(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+pods, "", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"x"}]}}`)
	a.want(400, "POST "+pods+"/p/eviction", "", `{"metadata":{"name":"other"}}`)
	a.want(201, "POST "+pods+"/p/eviction", "", `{"metadata":{"name":"p"}}`)
	a.want(404, "GET "+pods+"/p", "", "")
}

func TestDelete_Finalizers(t *testing.T) {
	tests := []struct {
		name, finalizers, query, want string
	}{
		{"none", `[]`, "", ""},
		{"own", `["x/a"]`, "", "[x/a]"},
		{"foreground", `[]`, "?propagationPolicy=Foreground", "[foregroundDeletion]"},
		{"orphan", `["x/a"]`, "?propagationPolicy=Orphan", "[x/a orphan]"},
		{"orphan in the old way", `[]`, "?orphanDependents=true", "[orphan]"},
		{"background takes them away", `["foregroundDeletion"]`, "?propagationPolicy=Background", ""},
		{"as the object says", `["orphan"]`, "", "[orphan]"},
		{"one for the other", `["orphan"]`, "?propagationPolicy=Foreground", "[foregroundDeletion]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := newAPI(t)
			a.want(201, "POST "+cms, "", `{"metadata":{"name":"a","finalizers":`+test.finalizers+`}}`)
			a.want(200, "DELETE "+cms+"/a"+test.query, "", "")
			got := a.do("GET "+cms+"/a", "", "")
			if test.want == "" {
				if got.code != 404 {
					t.Errorf("still there: %s", got.text)
				}
				return
			}
			if finalizers := fmt.Sprint(tree.Get(got.body, "metadata", "finalizers")); finalizers != test.want ||
				!tree.Has(got.body, "metadata", "deletionTimestamp") {
				t.Errorf("got %s, want finalizers %s", got.text, test.want)
			}
			a.want(422, "PATCH "+cms+"/a", merge, `{"metadata":{"finalizers":["x/new"]}}`)
			a.want(200, "PATCH "+cms+"/a", merge, `{"metadata":{"finalizers":null}}`)
			a.want(404, "GET "+cms+"/a", "", "")
		})
	}
}

func TestDelete_Collection(t *testing.T) {
	a := newAPI(t)
	for i, label := range []string{"x", "x", "y"} {
		a.want(201, "POST "+cms, "", fmt.Sprintf(`{"metadata":{"name":"c%d","labels":{"l":%q}}}`, i, label))
	}
	got := a.want(200, "DELETE "+cms+"?labelSelector=l=x", "", "")
	if n := len(tree.List(got.body, "items")); n != 2 || got.str("kind") != "ConfigMapList" {
		t.Errorf("got %s", got.text)
	}
	a.want(404, "GET "+cms+"/c0", "", "")
	a.want(200, "GET "+cms+"/c2", "", "")
}

func TestDelete_WarnsOfPodsThatStay(t *testing.T) {
	const jobs = "/apis/batch/v1/namespaces/default/jobs"
	a := newAPI(t)
	for path, want := range map[string]bool{
		"":                              true,
		"?propagationPolicy=Orphan":     false,
		"?propagationPolicy=Background": false,
	} {
		a.want(201, "POST "+jobs, "", `{"metadata":{"name":"j"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"x"}]}}}}`)
		got := a.want(200, "DELETE "+jobs+"/j"+path, "", "")
		if warned := strings.Contains(fmt.Sprint(got.warnings), "child pods are preserved by default"); warned != want {
			t.Errorf("DELETE %s warns: %t", path, warned)
		}
		a.do("PATCH "+jobs+"/j", merge, `{"metadata":{"finalizers":null}}`) // orphaning waits for the collector
	}
}
