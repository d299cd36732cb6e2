package apiserver_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func TestB021_NoOpApplyKeepsRevision(t *testing.T) {
	for name, manifest := range map[string]string{
		"int32":             deployment,
		"quantities":        `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"x","resources":{"limits":{"cpu":"1000m","memory":"1000000k"},"requests":{"cpu":0.1}}}]}}`,
		"empty list":        `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","finalizers":[]},"spec":{"containers":[{"name":"c","image":"x","env":[],"args":[]}]}}`,
		"empty map":         `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{},"annotations":{}},"data":{}}`,
		"explicit default":  `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"restartPolicy":"Always","containers":[{"name":"c","image":"x","ports":[{"containerPort":80,"protocol":"TCP"}]}]}}`,
		"null":              `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":null},"data":{"k":null}}`,
		"empty label":       `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"l":""}}}`,
		"service":           `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"port":80}],"selector":{"a":"b"}}}`,
		"status is ignored": `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"port":80}]},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			path := map[string]string{`"Deployment"`: deps + "/d", `"Pod"`: pods + "/p", `"ConfigMap"`: cms + "/a", `"Service"`: svcs + "/s"}
			var at string
			for kind, p := range path {
				if strings.Contains(manifest, `"kind":`+kind) {
					at = p
				}
			}
			line := "PATCH " + at + "?fieldManager=m"
			first := a.want(201, line, apply, manifest)
			stands := a.store.Revision()
			for i := range 5 {
				a.clock.Step(time.Second)
				same := manifest
				if i%2 == 0 {
					same = otherwise.Replace(manifest)
				}
				if again := a.want(200, line, apply, same); again.text != first.text {
					t.Fatalf("a repeated apply changed the object: %s", cmp.Diff(first.body, again.body))
				}
			}
			if now := a.store.Revision(); now != stands { // there is no event of what has no revision
				t.Errorf("the store went from %d to %d", stands, now)
			}
		})
	}
}

// otherwise spells the same amounts in other words.
var otherwise = strings.NewReplacer(`"1000m"`, `"1"`, `"1000000k"`, `"1G"`, `"cpu":0.1`, `"cpu":"100m"`)

func TestB023_PatchAndRevisions(t *testing.T) {
	a := newAPI(t)
	first := a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"},"data":{"k":"1"}}`)
	second := a.want(200, "PATCH "+cms+"/a", merge, `{"data":{"k":"2"}}`)
	old := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":%q},"data":{"k":"3"}}`, first.rev())
	for media, line := range map[string]string{
		merge: "PATCH " + cms + "/a", strategic: "PATCH " + cms + "/a", apply: "PATCH " + cms + "/a?fieldManager=m&force=true",
		"": "PUT " + cms + "/a",
	} {
		a.want(409, line, media, old)
		if now := a.want(200, "GET "+cms+"/a", "", ""); now.text != second.text {
			t.Errorf("%s %s: refused, and changed the object: %s", line, media, cmp.Diff(second.body, now.body))
		}
	}

	const clients, patches = 50, 10
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := range patches {
				if got := a.do("PATCH "+cms+"/a", merge, fmt.Sprintf(`{"data":{"c%d-%d":"x"}}`, c, i)); got.code != 200 {
					t.Errorf("got %d: %s", got.code, got.text)
				}
			}
		})
	}
	all.Wait()
	got := a.want(200, "GET "+cms+"/a", "", "")
	if n := len(tree.Map(got.body, "data")); n != clients*patches+1 {
		t.Errorf("%d keys are there, want %d", n, clients*patches+1)
	}
}

func TestB026_StrategicPatchOfDuplicates(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"dns"},"spec":{"ports":[{"name":"tcp","port":53},{"name":"udp","port":53,"protocol":"UDP"}]}}`)
	got := a.want(422, "PATCH "+svcs+"/dns", strategic, `{"spec":{"ports":[{"port":53,"name":"renamed"}]}}`)
	if !strings.Contains(got.text, "spec.ports has several items whose port is 53") {
		t.Errorf("got %s", got.text)
	}
}

// Of two variables of one name a writer wants to keep the second. He gets exactly that, or is refused
// and told where; he is never left with neither.
func TestB026_OneOfTwoDuplicatesIsKept(t *testing.T) {
	variables := func(values ...string) string {
		var list []string
		for _, v := range values {
			list = append(list, `{"name":"v`+v[:1]+`","value":"`+v+`"}`)
		}
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"app":"d"}},` +
			`"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"x","env":[` +
			strings.Join(list, ",") + `]}]}}}}`
	}
	in := func(got answer) string {
		var values []string
		for _, c := range tree.Maps(got.body, "spec", "template", "spec", "containers") {
			for _, v := range tree.Maps(c, "env") {
				values = append(values, tree.Str(v, "value"))
			}
		}
		return strings.Join(values, " ")
	}
	// What kubectl's apply without --server-side sends: it knows items by their names.
	const clientSide = `{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"c",` +
		`"$setElementOrder/env":[{"name":"v1"},{"name":"v2"},{"name":"v3"}],"env":[{"name":"v2","value":"2b"}]}]}}}}`
	for name, c := range map[string]struct {
		line, media, body string
		code              int
		want, says        string
	}{
		"put":         {"PUT " + deps + "/d", "", variables("1", "2b", "3"), 200, "1 2b 3", ""},
		"merge":       {"PATCH " + deps + "/d", merge, variables("1", "2b", "3"), 200, "1 2b 3", ""},
		"strategic":   {"PATCH " + deps + "/d", strategic, variables("1", "2b", "3"), 422, "1 2a 3 2b", "env has several items whose name is v2"},
		"client side": {"PATCH " + deps + "/d", strategic, clientSide, 422, "1 2a 3 2b", "env has several items whose name is v2"},
		"apply":       {"PATCH " + deps + "/d?fieldManager=m&force=true", apply, variables("1", "2b", "3"), 200, "1 2b 3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.want(201, "POST "+deps, "", variables("1", "2a", "3", "2b"))
			if got := a.want(c.code, c.line, c.media, c.body); !strings.Contains(got.text, c.says) {
				t.Errorf("got %s, want %s", got.text, c.says)
			}
			if got := in(a.want(200, "GET "+deps+"/d", "", "")); got != c.want {
				t.Errorf("the variables are %s, want %s", got, c.want)
			}
		})
	}
}

func TestB028_ApplyBesideDuplicates(t *testing.T) {
	a := newAPI(t)
	const containers = `"containers":[{"name":"c","image":"x","env":[{"name":"A","value":"1"},{"name":"A","value":"2"}]}]`
	a.want(201, "POST "+pods, "", `{"metadata":{"name":"p"},"spec":{`+containers+`}}`)
	got := a.want(200, "PATCH "+pods+"/p?fieldManager=m", apply, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"l":"1"}}}`)
	spec := tree.List(got.body, "spec", "containers")[0].(map[string]any)
	if len(tree.List(spec, "env")) != 2 || len(tree.List(got.body, "metadata", "managedFields")) != 2 {
		t.Errorf("got %s", got.text)
	}
	// Nor do other writes make anybody forget who owns what.
	got = a.want(200, "PATCH "+pods+"/p", merge, `{"metadata":{"labels":{"other":"1"}}}`)
	got = a.want(200, "PUT "+pods+"/p", "", sent(got, func(obj map[string]any) { tree.Set(obj, "2", "metadata", "labels", "other") }))
	owned := false
	for _, e := range tree.Maps(got.body, "metadata", "managedFields") {
		owned = owned || tree.Str(e, "manager") == "m" && tree.Has(e, "fieldsV1", "f:metadata", "f:labels", "f:l")
	}
	if !owned {
		t.Errorf("the label's owner is forgotten: %s", got.text)
	}
	before := got
	got = a.want(500, "PATCH "+pods+"/p?fieldManager=m&force=true", apply, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{`+containers+`}}`)
	if after := a.want(200, "GET "+pods+"/p", "", ""); after.text != before.text {
		t.Errorf("a refused apply changed the object: %s", cmp.Diff(before.body, after.body))
	}
	if want := `.spec.containers[name="c"].env: duplicate entries for key [name="A"]`; !strings.Contains(got.text, strings.ReplaceAll(want, `"`, `\"`)) {
		t.Errorf("got %s, want %s", got.text, want)
	}
}

func TestB030_ApplyAndUpdateByOneName(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+cms+"?fieldManager=m", "", `{"metadata":{"name":"a"},"data":{"k":"1"}}`)
	wish := func(v string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"` + v + `"}}`
	}
	got := a.want(409, "PATCH "+cms+"/a?fieldManager=m", apply, wish("2"))
	if !strings.Contains(got.text, `conflict with \"m\" using v1`) {
		t.Errorf("got %s", got.text)
	}
	got = a.want(200, "PATCH "+cms+"/a?fieldManager=m&force=true", apply, wish("2"))
	for _, e := range tree.Maps(got.body, "metadata", "managedFields") {
		if tree.Str(e, "operation") == "Update" && tree.Has(e, "fieldsV1", "f:data", "f:k") {
			t.Errorf("the loser still owns the field: %s", got.text)
		}
	}
	a.want(200, "PATCH "+cms+"/a?fieldManager=m", apply, wish("3"))
}

func TestB031_ConflictsNameWhatIsDisputed(t *testing.T) {
	a := newAPI(t)
	a.want(201, "PATCH "+cms+"/a?fieldManager=A", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","y":"1","z":"1"}}`)
	got := a.want(409, "PATCH "+cms+"/a?fieldManager=B", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","y":"2"}}`)
	if got.causes() != ".data.y" || !strings.Contains(got.text, `conflict with \"A\"`) {
		t.Errorf("causes are %q: %s", got.causes(), got.text)
	}
	got = a.want(200, "PATCH "+cms+"/a?fieldManager=B", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1"}}`)
	if owners := ownersOfData(got); owners != "B Apply x, A Apply x y z" {
		t.Errorf("owners are %s: %s", owners, got.text)
	}
}

func TestB033_ApplyThatMakesAnInvalidObject(t *testing.T) {
	a := newAPI(t)
	a.want(201, "PATCH "+deps+"/d?fieldManager=A", apply, strings.Replace(deployment, `"replicas":2`, `"replicas":2,"strategy":{"rollingUpdate":{"maxSurge":2}}`, 1))
	before := a.want(200, "GET "+deps+"/d", "", "")
	wish := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"strategy":{"type":"Recreate"}}}`
	a.want(422, "PATCH "+deps+"/d?fieldManager=B&force=true", apply, wish)
	if after := a.want(200, "GET "+deps+"/d", "", ""); after.text != before.text {
		t.Errorf("a refused apply changed the object: %s", cmp.Diff(before.body, after.body))
	}
	a.want(200, "PATCH "+deps+"/d?fieldManager=B", jsonPatch, `[{"op":"remove","path":"/spec/strategy/rollingUpdate"},{"op":"replace","path":"/spec/strategy/type","value":"Recreate"}]`)
	a.want(200, "PATCH "+deps+"/d?fieldManager=C", apply, wish)
}

// Old clients leave managedFields out of what they put, and new ones force their applies: who is not
// meant keeps what is his. Whoever wants to begin anew sends a list that says nothing.
func TestB035_OwnersOutliveOldAndNewClients(t *testing.T) {
	a := newAPI(t)
	config := func(more, data string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"` + more + `},"data":{` + data + `}}`
	}
	for _, step := range []struct {
		what, line, media, body string
		want                    string
	}{
		{"apply", "PATCH " + cms + "/a?fieldManager=A", apply, config("", `"a":"1"`), "A Apply a"},
		{"patch", "PATCH " + cms + "/a?fieldManager=csa", merge, `{"data":{"c":"1"}}`, "A Apply a, csa Update c"},
		{"put without", "PUT " + cms + "/a?fieldManager=P", "", config("", `"a":"1","c":"1","p":"1"`),
			"A Apply a, P Update p, csa Update c"},
		{"put with null", "PUT " + cms + "/a?fieldManager=P", "", config(`,"managedFields":null`, `"a":"1","c":"1","p":"2"`),
			"A Apply a, P Update p, csa Update c"},
		{"forced apply", "PATCH " + cms + "/a?fieldManager=S&force=true", apply, config("", `"a":"2","c":"2"`),
			"S Apply a c, P Update p"},
		{"put with an empty list", "PUT " + cms + "/a?fieldManager=P", "", config(`,"managedFields":[]`, `"a":"2","c":"2","p":"3"`), ""},
		{"forced apply to what nobody owns", "PATCH " + cms + "/a?fieldManager=S&force=true", apply, config("", `"a":"3"`),
			"S Apply a, before-first-apply Update c p"},
		{"put with an empty entry", "PUT " + cms + "/a?fieldManager=P", "", config(`,"managedFields":[{}]`, `"a":"3","p":"3"`), ""},
		{"apply of what is so", "PATCH " + cms + "/a?fieldManager=A", apply, config("", `"a":"3"`),
			"A Apply a, before-first-apply Update a p"},
		{"patch with an empty entry", "PATCH " + cms + "/a", merge, `{"metadata":{"managedFields":[{}]}}`, ""},
		{"put of what is no entry", "PUT " + cms + "/a?fieldManager=P", "",
			config(`,"managedFields":[{"manager":"x","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1",`+
				`"fieldsV1":{"bad":1}}]`, `"a":"3","p":"4"`), ""},
	} {
		code := 200
		if step.what == "apply" {
			code = 201
		}
		if got := ownersOfData(a.want(code, step.line, step.media, step.body)); got != step.want {
			t.Errorf("%s: owners are %q, want %q", step.what, got, step.want)
		}
	}
}

// ownersOfData says who owns which entries of data.
func ownersOfData(got answer) string {
	var owners []string
	for _, e := range tree.Maps(got.body, "metadata", "managedFields") {
		words := []string{tree.Str(e, "manager"), tree.Str(e, "operation")}
		for _, field := range slices.Sorted(maps.Keys(tree.Map(e, "fieldsV1", "f:data"))) {
			if name, ok := strings.CutPrefix(field, "f:"); ok {
				words = append(words, name)
			}
		}
		owners = append(owners, strings.Join(words, " "))
	}
	return strings.Join(owners, ", ")
}

func TestB036_Generation(t *testing.T) {
	a := newAPI(t)
	if got := a.want(201, "POST "+deps, "", strings.Replace(deployment, `"name":"d"}`, `"name":"d","generation":7}`, 1)); got.gen() != "1" {
		t.Errorf("starts at %s", got.gen())
	}
	for _, step := range []struct{ what, line, patch, want string }{
		{"spec", deps + "/d", `{"spec":{"replicas":3}}`, "2"},
		{"the same spec", deps + "/d", `{"spec":{"replicas":3}}`, "2"},
		{"label", deps + "/d", `{"metadata":{"labels":{"a":"b"}}}`, "2"},
		{"finalizer", deps + "/d", `{"metadata":{"finalizers":["x/a"]}}`, "2"},
		{"owner", deps + "/d", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]}}`, "2"},
		{"status through the object", deps + "/d", `{"status":{"replicas":9}}`, "2"},
		{"status", deps + "/d/status", `{"status":{"replicas":1}}`, "2"},
		{"annotation with the status", deps + "/d/status", `{"metadata":{"annotations":{"r":"1"}},"status":{"replicas":2}}`, "2"},
		{"generation", deps + "/d", `{"metadata":{"generation":50}}`, "2"},
		{"an unknown field", deps + "/d", `{"nosuch":1}`, "2"},
	} {
		if got := a.want(200, "PATCH "+step.line, merge, step.patch); got.gen() != step.want {
			t.Errorf("%s: generation is %s, want %s", step.what, got.gen(), step.want)
		}
	}
	if got := a.want(200, "DELETE "+deps+"/d", "", ""); got.gen() != "3" {
		t.Errorf("deleted: generation is %s, want 3", got.gen())
	}
}

func TestB038_WhatStatusMayChange(t *testing.T) {
	a := newAPI(t)
	before := a.want(201, "POST "+deps, "", deployment)
	got := a.want(200, "PUT "+deps+"/d/status", "", `{"metadata":{"name":"d","labels":{"via":"status"},"finalizers":["x/a"],
		"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]},"spec":{"replicas":9},"status":{"replicas":4}}`)
	if fmt.Sprint(tree.Get(got.body, "status", "replicas")) != "4" {
		t.Errorf("status was not written: %s", got.text)
	}
	for _, part := range [][]string{{"spec"}, {"metadata", "labels"}, {"metadata", "finalizers"}, {"metadata", "ownerReferences"}} {
		if diff := cmp.Diff(tree.Get(before.body, part...), tree.Get(got.body, part...)); diff != "" {
			t.Errorf("a status write changed %v: %s", part, diff)
		}
	}
	a.want(409, "PUT "+deps+"/d/status", "", fmt.Sprintf(`{"metadata":{"name":"d","resourceVersion":%q},"status":{}}`, before.rev()))
	for line, media := range map[string]string{"PATCH " + deps + "/d": merge, "PUT " + deps + "/d": ""} {
		body := sent(got, func(obj map[string]any) { tree.Set(obj, 7, "status", "replicas") })
		if after := a.want(200, line, media, body); after.rev() != got.rev() {
			t.Errorf("%s: the object's own path wrote status", line)
		}
	}
	made := a.want(201, "POST "+deps, "", strings.Replace(strings.Replace(deployment, `"name":"d"`, `"name":"e"`, 1),
		`"spec"`, `"status":{"replicas":7},"spec"`, 1))
	if tree.Has(made.body, "status", "replicas") {
		t.Errorf("a create wrote status: %s", made.text)
	}
}

// A write of the status of a declared kind changes nothing else, and one of the object no status.
func TestB038_WhatStatusMayChangeOfDeclaredKinds(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(anySpec, `"subresources":{"status":{}}`))
	made := a.want(201, "POST "+widgets, "", widget("a", `"spec":{"x":1}`, `"status":{"s":1}`))
	if tree.Has(made.body, "status") {
		t.Errorf("a create wrote status: %s", made.text)
	}
	change := func(obj map[string]any) {
		tree.Set(obj, map[string]any{"l": "1"}, "metadata", "labels")
		tree.Set(obj, map[string]any{"l": "1"}, "metadata", "annotations")
		tree.Set(obj, []any{"example.com/f"}, "metadata", "finalizers")
		tree.Set(obj, []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}}, "metadata", "ownerReferences")
		tree.Set(obj, 2, "spec", "x")
		tree.Set(obj, 2, "status", "s")
	}
	a.want(200, "PATCH "+widgets+"/a", merge, `{"metadata":{"labels":{"of":"mine"}}}`)
	for _, media := range []string{"", merge} {
		was := a.want(200, "GET "+widgets+"/a", "", "")
		line := map[string]string{"": "PUT ", merge: "PATCH "}[media] + widgets + "/a/status"
		got := a.want(200, line, media, sent(was, change))
		if n := fmt.Sprint(tree.Get(got.body, "status", "s")); n != "2" {
			t.Errorf("%s: the status is %s", line, n)
		}
		for _, o := range []answer{was, got} {
			delete(o.body, "status")
			delete(tree.Map(o.body, "metadata"), "managedFields")
			delete(tree.Map(o.body, "metadata"), "resourceVersion")
		}
		if diff := cmp.Diff(was.body, got.body); diff != "" {
			t.Errorf("%s changed more than the status: %s", line, diff)
		}
	}
	a.want(409, "PUT "+widgets+"/a/status", "", fmt.Sprintf(
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":%q},"status":{"s":3}}`, made.rev()))
	now := a.want(200, "GET "+widgets+"/a", "", "")
	for line, media := range map[string]string{"PUT " + widgets + "/a": "", "PATCH " + widgets + "/a": merge} {
		got := a.want(200, line, media, sent(now, func(obj map[string]any) { tree.Set(obj, 9, "status", "s") }))
		if got.rev() != now.rev() {
			t.Errorf("%s wrote status: %s", line, got.text)
		}
	}
}

// Whatever a write of the status of a built-in kind brings along, the object's labels, owners,
// finalizers and spec stay.
func TestB038_StatusWritesKeepTheObjectOfEveryKind(t *testing.T) {
	everyKind(t, func(t *testing.T, c *collection) {
		if !c.kind.Status {
			return // there is nothing to write
		}
		code, made := c.ask("POST", c.path, "", "", mustJSON(c.seeds[0]))
		if code != 201 {
			t.Fatalf("create: %d %v", code, made)
		}
		name := tree.Str(made, "metadata", "name")
		for _, method := range []string{"PUT", "PATCH"} {
			_, was := c.ask("GET", c.path+"/"+name, "", "", nil)
			obj := tree.CopyMap(was)
			delete(tree.Map(obj, "metadata"), "managedFields")
			tree.Set(obj, map[string]any{"by": "status"}, "metadata", "labels")
			tree.Set(obj, []any{"example.com/f"}, "metadata", "finalizers")
			tree.Set(obj, []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}}, "metadata", "ownerReferences")
			media := map[string]string{"PATCH": merge}[method]
			if code, got := c.ask(method, c.path+"/"+name+"/status", "", media, mustJSON(obj)); code != 200 {
				t.Fatalf("%s: %d %v", method, code, got)
			}
			_, now := c.ask("GET", c.path+"/"+name, "", "", nil)
			for _, o := range []kinds.Object{was, now} {
				delete(tree.Map(o, "metadata"), "managedFields")
				delete(tree.Map(o, "metadata"), "resourceVersion")
				delete(o, "status")
			}
			if diff := cmp.Diff(was, now); diff != "" {
				t.Errorf("%s of the status (-before +after):\n%s", method, diff)
			}
		}
	})
}

func TestB048_DeleteAgainstNewFinalizer(t *testing.T) {
	a := newAPI(t)
	for i := range 300 {
		name := fmt.Sprintf("r%d", i)
		a.want(201, "POST "+cms, "", `{"metadata":{"name":"`+name+`"}}`)
		var put, gone answer
		var both sync.WaitGroup
		both.Go(func() {
			put = a.do("PUT "+cms+"/"+name, "", `{"metadata":{"name":"`+name+`","finalizers":["x/a"]}}`)
		})
		both.Go(func() { gone = a.do("DELETE "+cms+"/"+name, "", "") })
		both.Wait()
		after := a.do("GET "+cms+"/"+name, "", "")
		switch {
		case gone.code != 200:
			t.Fatalf("DELETE: %s", gone.text)
		case put.code == 200 && (after.code != 200 || finalizersOf(after) != "[x/a] true"):
			t.Fatalf("the finalizer was accepted, and the object is: %s", after.text)
		case put.code != 200 && (put.code != 404 || after.code != 404):
			t.Fatalf("PUT: %s; the object is: %s", put.text, after.text)
		}
	}
}

func TestB093_SecondDeleteMovesNothing(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"a","finalizers":["x/a"]}}`)
	a.want(201, "POST "+pods, "", `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"x"}]}}`)
	for _, path := range []string{cms + "/a", pods + "/p"} {
		first := a.want(200, "DELETE "+path, "", "")
		a.clock.Step(10 * time.Second)
		if again := a.want(200, "DELETE "+path, "", ""); again.text != first.text {
			t.Errorf("%s", cmp.Diff(first.body, again.body))
		}
	}
	// A shorter grace period counts from when the first one began; a longer one does not count.
	short := a.want(200, "DELETE "+pods+"/p?gracePeriodSeconds=15", "", "")
	if got, want := short.str("metadata", "deletionTimestamp"), "2026-01-02T03:04:30Z"; got != want {
		// The pod was deleted ten seconds after the ConfigMap's first deletion.
		t.Errorf("ends at %s, want %s", got, want)
	}
	if longer := a.want(200, "DELETE "+pods+"/p?gracePeriodSeconds=100", "", ""); longer.text != short.text {
		t.Errorf("%s", cmp.Diff(short.body, longer.body))
	}
	a.want(200, "DELETE "+pods+"/p?gracePeriodSeconds=0", "", "")
	a.want(404, "GET "+pods+"/p", "", "")
}

func TestB153_JSONPatchIsRefusedFast(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("x", 1000)+`"}}`)
	many := strings.Repeat(`{"op":"test","path":"/kind","value":"ConfigMap"},`, 10001)
	a.want(413, "PATCH "+cms+"/a", jsonPatch, "["+many[:len(many)-1]+"]")
	doubling := `[{"op":"copy","from":"/data","path":"/x"}`
	for i := range 40 {
		doubling += fmt.Sprintf(`,{"op":"copy","from":"/x","path":"/x/c%d"}`, i)
	}
	a.want(413, "PATCH "+cms+"/a", jsonPatch, doubling+"]")
	a.want(422, "PATCH "+cms+"/a", jsonPatch, `[{"op":"add","path":"/metadata/finalizers/99999999","value":"x/y"}]`)
}

func TestB160_RefusedWritesGiveBackWhatTheyTook(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"taken"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30001}]}}`)
	for range 300 { // more than the range has addresses
		a.want(409, "POST "+svcs, "", `{"metadata":{"name":"taken"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
		a.want(422, "POST "+svcs, "", `{"metadata":{"name":"Bad Name"},"spec":{"ports":[{"port":80}]}}`)
		a.want(201, "POST "+svcs+"?dryRun=All", "", `{"metadata":{"name":"dry"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
	}
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.77","ports":[{"port":80}]}}`)
	a.want(422, "POST "+svcs, "", `{"metadata":{"name":"b"},"spec":{"clusterIP":"10.0.0.77","ports":[{"port":80}]}}`)
	a.want(200, "DELETE "+svcs+"/a", "", "")
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"b"},"spec":{"clusterIP":"10.0.0.77","ports":[{"port":80}]}}`)
	a.want(200, "PATCH "+svcs+"/taken", merge, `{"spec":{"type":"ClusterIP"}}`)
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"c"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30001}]}}`)
}
