package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// widgets2 are the widgets in their other version: what v1 has as host and port, v2 has as address.
const widgets2 = "/apis/example.com/v2/namespaces/default/widgets"

// versions is a server that converts widgets. spoil, if set, changes an answer before it is sent, and
// may send another itself, which it says.
type versions struct {
	*hooks
	mu    sync.Mutex
	asked []string // "3 to example.com/v2"
	spoil func(w http.ResponseWriter, review map[string]any) bool
}

func newVersions(t *testing.T) *versions {
	v := &versions{hooks: &hooks{}}
	v.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review map[string]any
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		to, objs := tree.Str(review, "request", "desiredAPIVersion"), tree.List(review, "request", "objects")
		for _, obj := range objs {
			convertWidget(obj.(map[string]any), to)
		}
		v.mu.Lock()
		v.asked = append(v.asked, fmt.Sprintf("%d to %s", len(objs), to))
		spoil := v.spoil
		v.mu.Unlock()
		review["response"] = map[string]any{
			"uid": tree.Str(review, "request", "uid"), "convertedObjects": objs, "result": map[string]any{"status": "Success"},
		}
		delete(review, "request")
		if spoil != nil && spoil(w, review) {
			return
		}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(v.Close)
	return v
}

func convertWidget(obj map[string]any, to string) {
	spec := tree.Ensure(obj, "spec")
	switch {
	case tree.Str(obj, "apiVersion") == to:
	case strings.HasSuffix(to, "/v2"):
		spec["address"] = tree.Str(spec, "host") + ":" + tree.Str(spec, "port")
		delete(spec, "host")
		delete(spec, "port")
	default:
		spec["host"], spec["port"], _ = strings.Cut(tree.Str(spec, "address"), ":")
		delete(spec, "address")
	}
	obj["apiVersion"] = to
}

// took returns what was asked since the last time.
func (v *versions) took() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer func() { v.asked = nil }()
	return v.asked
}

func (v *versions) setSpoil(f func(http.ResponseWriter, map[string]any) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.spoil = f
}

// definition declares widgets of both versions, which are kept as v1.
func (v *versions) definition(config string) string {
	text := `"host":{"type":"string"},"port":{"type":"string"},"note":{"type":"string"}`
	version := func(name, fields, more string) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%v,"schema":{"openAPIV3Schema":{"type":"object",
			"properties":{"spec":{"type":"object","properties":{%s}}}}}%s}`, name, name == "v1", fields, more)
	}
	return fmt.Sprintf(`{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"widgets","kind":"Widget"},"versions":[%s,%s],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v9","v1"],"clientConfig":{%s,"caBundle":%q}}}}}`,
		version("v1", text, ""),
		version("v2", `"address":{"type":"string"},"note":{"type":"string"}`, `,"selectableFields":[{"jsonPath":".spec.address"}]`),
		config, v.bundle())
}

func newConverting(t *testing.T) (*api, *versions) {
	a, v := newAPI(t), newVersions(t)
	a.want(201, "POST "+crds, "", v.definition(`"url":"`+v.URL+`/convert"`))
	for i, name := range []string{"a", "b", "c"} {
		a.want(201, "POST "+widgets, "", widget(name, fmt.Sprintf(`"spec":{"host":"h","port":"%d"}`, i)))
	}
	if asked := v.took(); asked != nil {
		t.Errorf("writes of the version that is kept asked for %v", asked)
	}
	return a, v
}

func asV2(text string) string { return strings.Replace(text, "example.com/v1", "example.com/v2", 1) }

func address(t *testing.T, got answer, want string) {
	t.Helper()
	if is := tree.Str(got.body, "spec", "address"); is != want {
		t.Errorf("the address is %q, want %q: %s", is, want, got.text)
	}
}

func TestConversion_ReadsAndWritesEitherVersion(t *testing.T) {
	a, v := newConverting(t)
	address(t, a.want(200, "GET "+widgets2+"/b", "", ""), "h:1")
	address(t, a.want(201, "POST "+widgets2, "", asV2(widget("d", `"spec":{"address":"x:9"}`))), "x:9")
	address(t, a.want(200, "PATCH "+widgets2+"/d", merge, `{"spec":{"address":"y:8"}}`), "y:8")
	got := a.want(200, "GET "+widgets+"/d", "", "")
	if d := cmp.Diff(map[string]any{"host": "y", "port": "8"}, got.body["spec"]); d != "" {
		t.Errorf("as v1: %s", d)
	}
	before := got.rev()
	if same := a.want(200, "PATCH "+widgets2+"/d", merge, `{}`); same.rev() != before {
		t.Errorf("a change of nothing wrote revision %s", same.rev())
	}
	dry := a.want(201, "POST "+widgets2+"?dryRun=All", "", asV2(widget("e", `"spec":{"address":"z:7"}`)))
	if address(t, dry, "z:7"); strings.Contains(dry.text, "resourceVersion") {
		t.Errorf("a dry run has a revision: %s", dry.text)
	}
	a.want(200, "DELETE "+widgets2+"/d", "", "")
	a.want(404, "GET "+widgets+"/d", "", "")
	v.took()
}

// A list asks about all of its objects at once, and not again about those that have not changed.
func TestConversion_ListsAskOnce(t *testing.T) {
	a, v := newConverting(t)
	for path, want := range map[string]int{"": 3, "?limit=2": 2, "?fieldSelector=spec.address%3Dh:1": 1} {
		list := a.want(200, "GET "+widgets2+path, "", "")
		if n := len(tree.List(list.body, "items")); n != want || strings.Contains(list.text, `"host"`) {
			t.Errorf("%s: %d items: %s", path, n, list.text)
		}
	}
	asked := v.took()
	slices.Sort(asked)
	if n := len(asked); n == 0 || n > 2 { // the page of two may have come first
		t.Errorf("lists asked for %v", asked)
	}
	a.want(200, "PATCH "+widgets+"/a", merge, `{"spec":{"host":"new"}}`)
	a.want(200, "GET "+widgets2, "", "")
	if d := cmp.Diff([]string{"1 to example.com/v2"}, v.took()); d != "" {
		t.Error(d)
	}
}

func TestConversion_Failures(t *testing.T) {
	a, v := newConverting(t)
	first := func(r map[string]any) map[string]any {
		return tree.List(r, "response", "convertedObjects")[0].(map[string]any)
	}
	for name, c := range map[string]struct {
		spoil func(r map[string]any)
		said  string
	}{
		"failure":  {func(r map[string]any) { tree.Set(r, "Failure", "response", "result", "status") }, `failed: response.result.status was 'Failure', not 'Success'`},
		"message":  {func(r map[string]any) { tree.Set(r, map[string]any{"message": "no"}, "response", "result") }, `failed: no`},
		"nothing":  {func(r map[string]any) { delete(r, "response") }, `failed: no response provided`},
		"uid":      {func(r map[string]any) { tree.Set(r, "other", "response", "uid") }, `, got "other"`},
		"review":   {func(r map[string]any) { r["kind"] = "Other" }, `failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got`},
		"fewer":    {func(r map[string]any) { tree.Set(r, []any{}, "response", "convertedObjects") }, `returned 0 objects, expected 1`},
		"version":  {func(r map[string]any) { first(r)["apiVersion"] = "example.com/v3" }, `returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)`},
		"kind":     {func(r map[string]any) { first(r)["kind"] = "Other" }, `returned invalid object at index 0: invalid kind (expected Widget, received Other)`},
		"name":     {func(r map[string]any) { tree.Set(first(r), "z", "metadata", "name") }, `returned invalid object: must have the same name: a != z`},
		"owner":    {func(r map[string]any) { tree.Set(first(r), "z", "metadata", "uid") }, `returned invalid object: must have the same UID: `},
		"label":    {func(r map[string]any) { tree.Set(first(r), "!", "metadata", "labels", "l") }, `returned invalid metadata: metadata.labels: Invalid value: "!"`},
		"no label": {func(r map[string]any) { tree.Set(first(r), 5, "metadata", "labels", "l") }, `returned invalid metadata: metadata.labels[l] must be a string, but is int64`},
	} {
		v.setSpoil(func(_ http.ResponseWriter, r map[string]any) bool { c.spoil(r); return false })
		got := a.want(500, "GET "+widgets2+"/a", "", "")
		if said := got.str("message"); !strings.Contains(said, "conversion webhook for example.com/v1, Kind=Widget "+c.said) &&
			!strings.HasSuffix(said, c.said) {
			t.Errorf("%s: %s", name, said)
		}
	}
	v.setSpoil(func(w http.ResponseWriter, _ map[string]any) bool { http.Error(w, "boom", 500); return true })
	const boom = `Kind=Widget failed: an error on the server ("boom") has prevented the request from succeeding`
	for _, line := range []string{"GET " + widgets2, "GET " + widgets2 + "/a", "DELETE " + widgets2 + "/a", "DELETE " + widgets2} {
		if got := a.want(500, line, "", ""); !strings.HasSuffix(got.str("message"), boom) {
			t.Errorf("%s: %s", line, got.text)
		}
	}
	if got := a.want(500, "POST "+widgets2, "", asV2(widget("d"))); got.str("message") != "conversion webhook for example.com/v2, "+boom {
		t.Errorf("POST: %s", got.text)
	}
	a.want(200, "GET "+widgets+"/a", "", "")
	v.setSpoil(nil)
	a.want(200, "GET "+widgets2, "", "")
}

// Of the metadata a webhook can change labels and annotations, and selectors see what it made of them.
func TestConversion_Metadata(t *testing.T) {
	a, v := newConverting(t)
	v.setSpoil(func(_ http.ResponseWriter, r map[string]any) bool {
		for _, obj := range tree.Maps(r, "response", "convertedObjects") {
			tree.Set(obj, tree.Str(obj, "metadata", "name"), "metadata", "labels", "made-of")
			tree.Set(obj, []any{"example.com/f"}, "metadata", "finalizers")
		}
		return false
	})
	if got := a.want(200, "GET "+widgets2+"/a", "", ""); strings.Contains(got.text, "finalizers") || !strings.Contains(got.text, `"labels":{"made-of":"a"}`) {
		t.Errorf("got %s", got.text)
	}
	list := a.want(200, "GET "+widgets2+"?labelSelector=made-of%3Db", "", "")
	if items := tree.List(list.body, "items"); len(items) != 1 {
		t.Errorf("selected %s", list.text)
	}
}

// Who owns a field under its name in one version owns it under its name in the other.
func TestConversion_ManagedFields(t *testing.T) {
	a, _ := newConverting(t)
	a.want(201, "PATCH "+widgets+"/m?fieldManager=one", apply, widget("m", `"spec":{"host":"h","port":"1","note":"n"}`))
	conflict := a.want(409, "PATCH "+widgets2+"/m?fieldManager=two", apply, asV2(widget("m", `"spec":{"address":"x:2"}`)))
	for _, want := range []string{`".spec.host"`, `".spec.port"`, `conflict with \"one\"`} {
		if !strings.Contains(conflict.text, want) {
			t.Errorf("the conflict does not have %s: %s", want, conflict.text)
		}
	}
	a.want(200, "PATCH "+widgets2+"/m?fieldManager=two&force=true", apply, asV2(widget("m", `"spec":{"address":"x:2"}`)))
	// Neither has one's wish any more for what two took, nor loses two it by one's next apply.
	got := a.want(200, "PATCH "+widgets+"/m?fieldManager=one", apply, widget("m", `"spec":{"note":"n"}`))
	if d := cmp.Diff(map[string]any{"host": "x", "port": "2", "note": "n"}, got.body["spec"]); d != "" {
		t.Error(d)
	}
}

// A no-op write of an object that is kept in an old version brings it into the new one.
func TestConversion_StorageVersionChanges(t *testing.T) {
	a, v := newConverting(t)
	a.want(200, "PATCH "+crds+"/widgets.example.com", jsonPatch, `[{"op":"replace","path":"/spec/versions/0/storage","value":false},
		{"op":"replace","path":"/spec/versions/1/storage","value":true}]`)
	address(t, a.want(200, "GET "+widgets2+"/a", "", ""), "h:0")
	before := a.want(200, "GET "+widgets+"/a", "", "")
	moved := a.want(200, "PATCH "+widgets2+"/a", merge, `{}`)
	if moved.rev() == before.rev() {
		t.Error("it is still kept as it was")
	}
	v.took()
	address(t, a.want(200, "GET "+widgets2+"/a", "", ""), "h:0")
	if asked := v.took(); asked != nil {
		t.Errorf("a read of the version that is kept asked for %v", asked)
	}
	if again := a.want(200, "PATCH "+widgets2+"/a", merge, `{}`); again.rev() != moved.rev() {
		t.Error("it was moved twice")
	}
	// Those that were left behind are not lost, and say so.
	a.want(422, "PATCH "+crds+"/widgets.example.com", jsonPatch, `[{"op":"remove","path":"/spec/versions/0"}]`)
	a.want(200, "PATCH "+crds+"/widgets.example.com/status", merge, `{"status":{"storedVersions":["v2"]}}`)
	a.want(200, "PATCH "+crds+"/widgets.example.com", jsonPatch, `[{"op":"remove","path":"/spec/versions/0"}]`)
	got := a.want(500, "GET "+widgets2+"/b", "", "")
	if !strings.Contains(got.text, "request to convert CR from an invalid group/version: example.com/v1") {
		t.Errorf("got %s", got.text)
	}
	address(t, a.want(200, "GET "+widgets2+"/a", "", ""), "h:0")
}

// A webhook may be asked as it was before version 1 of its protocol, if that is all it knows.
func TestConversion_InTheOldReview(t *testing.T) {
	a, v := newAPI(t), newVersions(t)
	def := v.definition(`"url":"` + v.URL + `/convert"`)
	a.want(422, "POST "+crds, "", strings.Replace(def, `["v9","v1"]`, `["v9"]`, 1))
	a.want(201, "POST "+crds, "", strings.Replace(def, `["v9","v1"]`, `["v9","v1beta1","v1"]`, 1))
	a.want(201, "POST "+widgets, "", widget("a", `"spec":{"host":"h","port":"1"}`))
	var asked string
	v.setSpoil(func(_ http.ResponseWriter, r map[string]any) bool {
		asked = tree.Str(r, "apiVersion")
		tree.Delete(r, "response", "uid") // which an answer in it need not have, as little as a version
		delete(r, "apiVersion")
		return false
	})
	address(t, a.want(200, "GET "+widgets2+"/a", "", ""), "h:1")
	if asked != "apiextensions.k8s.io/v1beta1" {
		t.Errorf("asked in %s", asked)
	}
	v.setSpoil(func(_ http.ResponseWriter, r map[string]any) bool {
		tree.Set(r, map[string]any{"status": "Failure", "message": "no"}, "response", "result")
		return false
	})
	if got := a.want(500, "GET "+widgets2+"/a", "", ""); !strings.HasSuffix(got.str("message"), "Kind=Widget failed: no") {
		t.Errorf("got %s", got.text)
	}
}

// An object that cannot be deleted with its definition is named by it, and holds up nobody else.
func TestConversion_WithoutWhichNothingIsDeleted(t *testing.T) {
	a, v := newConverting(t)
	a.want(200, "PATCH "+crds+"/widgets.example.com", jsonPatch, `[{"op":"replace","path":"/spec/versions/0/storage","value":false},
		{"op":"replace","path":"/spec/versions/1/storage","value":true}]`)
	v.setSpoil(func(_ http.ResponseWriter, r map[string]any) bool {
		tree.Set(r, "another", "response", "uid")
		return false
	})
	a.want(200, "DELETE "+crds+"/widgets.example.com", "", "")
	held := a.want(200, "GET "+crds+"/widgets.example.com", "", "")
	if !strings.Contains(conditions(held), "Terminating=True InstanceDeletionFailed") ||
		!strings.Contains(held.text, "could not issue all deletes: default/a: conversion webhook for example.com/v1, Kind=Widget failed") {
		t.Errorf("it says %s: %s", conditions(held), held.text)
	}
	gadgets := strings.NewReplacer(`"widgets`, `"gadgets`, `"Widget"`, `"Gadget"`).Replace(definition(anySpec))
	a.want(201, "POST "+crds, "", gadgets)
	a.want(200, "GET "+strings.Replace(widgets, "widgets", "gadgets", 1), "", "")
	v.setSpoil(nil)
	a.want(200, "PATCH "+crds+"/gadgets.example.com", merge, `{"metadata":{"labels":{"l":"v"}}}`)
	a.want(404, "GET "+crds+"/widgets.example.com", "", "")
}

func TestConversion_ThroughAService(t *testing.T) {
	a, v := newAPI(t), newVersions(t)
	_, port, _ := net.SplitHostPort(v.Listener.Addr().String())
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"hook"},"spec":{"ports":[{"name":"https","port":8443}]}}`)
	a.want(201, "POST /apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "",
		`{"metadata":{"name":"hook-1","labels":{"kubernetes.io/service-name":"hook"}},"addressType":"IPv4",
		"ports":[{"name":"https","port":`+port+`}],"endpoints":[{"addresses":["127.0.0.1"]}]}`)
	a.want(201, "POST "+crds, "", v.definition(`"service":{"namespace":"default","name":"hook","port":8443,"path":"/c"}`))
	a.want(201, "POST "+widgets, "", widget("a", `"spec":{"host":"h"}`))
	// The endpoint is reached; its certificate is of another name than the service's.
	if got := a.want(500, "GET "+widgets2+"/a", "", ""); !strings.Contains(got.str("message"), "not hook.default.svc") {
		t.Errorf("got %s", got.str("message"))
	}
}

// Watches of one version are told of every change in another, and all that watch ask but once. One
// whose webhook fails ends with an error: what it would show afterwards had a gap.
func TestConversion_Watches(t *testing.T) {
	a, v := newConverting(t)
	watch := func() *following {
		return a.following(widgets2 + "?watch=1&resourceVersion=0&allowWatchBookmarks=false")
	}
	first, second := watch(), watch()
	for _, w := range []*following{first, second} {
		for _, want := range []string{"ADDED a h:0", "ADDED b h:1", "ADDED c h:2"} {
			w.next(want)
		}
	}
	if d := cmp.Diff([]string{"3 to example.com/v2"}, v.took()); d != "" {
		t.Error(d)
	}
	a.want(200, "PATCH "+widgets+"/a", merge, `{"spec":{"port":"7"}}`)
	a.want(200, "DELETE "+widgets+"/a", "", "")
	for _, w := range []*following{first, second} {
		w.next("MODIFIED a h:7")
		w.next("DELETED a h:7")
	}
	if d := cmp.Diff([]string{"1 to example.com/v2"}, v.took()); d != "" {
		t.Error(d)
	}
	v.setSpoil(func(w http.ResponseWriter, _ map[string]any) bool { http.Error(w, "boom", 500); return true })
	a.want(200, "PATCH "+widgets+"/b", merge, `{"spec":{"port":"7"}}`)
	for _, w := range []*following{first, second} {
		w.next("ERROR 500")
		w.next("end")
	}
}

// following reads a watch.
type following struct {
	t    testing.TB
	body *json.Decoder
}

func (a *api) following(path string) *following {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), "GET", "http://setpoint"+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { resp.Body.Close() })
	return &following{t: a.t, body: json.NewDecoder(resp.Body)}
}

// next wants an event: its type, and the name and address of what it shows, or a code, or the end.
func (w *following) next(want string) {
	w.t.Helper()
	var ev struct {
		Type   string
		Object map[string]any
	}
	got := "end"
	if w.body.Decode(&ev) == nil {
		got = ev.Type + " " + tree.Str(ev.Object, "metadata", "name") + " " + tree.Str(ev.Object, "spec", "address")
		if ev.Type == "ERROR" {
			got = fmt.Sprint("ERROR ", ev.Object["code"])
		}
	}
	if got != want {
		w.t.Errorf("the watch showed %q, want %q", got, want)
	}
}
