package apiserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const (
	crds    = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	widgets = "/apis/example.com/v1/namespaces/default/widgets"
)

// definition is a CustomResourceDefinition of widgets: spec is the schema of their spec, more are
// further fields of the version.
func definition(spec string, more ...string) string {
	version := strings.Join(append([]string{`"name":"v1","served":true,"storage":true`,
		`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":` + spec + `,"status":{"type":"object",` +
			`"x-kubernetes-preserve-unknown-fields":true}}}}`}, more...), ",")
	return `{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",` +
		`"names":{"plural":"widgets","kind":"Widget"},"versions":[{` + version + `}]}}`
}

// widget is an object; parts are fields beside its name, such as `"spec":{}`.
func widget(name string, parts ...string) string {
	return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `"}` +
		strings.Join(append([]string{""}, parts...), ",") + `}`
}

const anySpec = `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`

func conditions(def answer) string {
	var said []string
	for _, c := range tree.Maps(def.body, "status", "conditions") {
		said = append(said, tree.Str(c, "type")+"="+tree.Str(c, "status")+" "+tree.Str(c, "reason"))
	}
	return strings.Join(said, ", ")
}

func TestDefinitionIsServedForTheNextRequest(t *testing.T) {
	a := newAPI(t)
	a.want(404, "GET "+widgets, "", "")
	a.want(201, "POST "+crds, "", definition(anySpec))
	a.want(201, "POST "+widgets, "", widget("a", `"spec":{"x":1}`))
	const want = "NamesAccepted=True NoConflicts, Established=True InitialNamesAccepted"
	if got := conditions(a.want(200, "GET "+crds+"/widgets.example.com", "", "")); got != want {
		t.Errorf("conditions are %s", got)
	}
	for _, path := range []string{"/apis/example.com/v1", "/openapi/v3/apis/example.com/v1", "/openapi/v2"} {
		if got := a.want(200, "GET "+path, "", ""); !strings.Contains(got.text, `"Widget"`) {
			t.Errorf("%s does not know widgets", path)
		}
	}
}

func TestNamesAreGivenToWhoAskedFirst(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(anySpec))
	second := strings.NewReplacer(`"widgets.`, `"gizmos.`, `"widgets"`, `"gizmos"`).Replace(definition(anySpec))
	a.want(201, "POST "+crds, "", second)
	got := a.want(200, "GET "+crds+"/gizmos.example.com", "", "")
	if c := conditions(got); c != "NamesAccepted=False ListKindConflict, Established=False NotAccepted" {
		t.Errorf("conditions are %s", c)
	}
	a.want(404, "GET /apis/example.com/v1/gizmos", "", "")
	a.want(200, "DELETE "+crds+"/widgets.example.com", "", "")
	a.want(200, "GET /apis/example.com/v1/gizmos", "", "")
}

// What is applied again changes nothing, in whichever version, and nobody who watches is told.
func TestB021_NoOpApplyOfDeclaredKinds(t *testing.T) {
	const spec = `{"type":"object","properties":{"i":{"type":"integer","format":"int32"},"n":{"type":"number"},` +
		`"q":{"x-kubernetes-int-or-string":true},"l":{"type":"array","items":{"type":"string"}},` +
		`"m":{"type":"object","additionalProperties":{"type":"string"}},"d":{"type":"integer","default":5},` +
		`"z":{"type":"string","nullable":true}}}`
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			a := newAPI(t)
			def := definition(spec)
			other := `,{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object",` +
				`"properties":{"spec":` + spec + `}}}}]}}`
			a.want(201, "POST "+crds, "", strings.TrimSuffix(def, "]}}")+other)
			wish := widget("a", `"spec":{"i":7,"n":0.1,"q":"1000m","l":[],"m":{},"d":5,"z":null}`)
			line := "PATCH " + widgets + "/a?fieldManager=m"
			if version == "v2" {
				wish, line = asV2(wish), "PATCH "+widgets2+"/a?fieldManager=m"
			}
			first := a.want(201, line, apply, wish)
			for range 5 {
				a.clock.Step(time.Second)
				if again := a.want(200, line, apply, wish); again.text != first.text {
					t.Fatalf("a repeated apply changed the object: %s", cmp.Diff(first.body, again.body))
				}
			}
			// The next event is of the next change.
			a.want(201, "POST "+widgets, "", widget("b"))
			events := a.following(widgets + "?watch=1&resourceVersion=" + first.rev())
			events.next("ADDED b ")
		})
	}
}

func TestB025_NoStrategicMergeOfDeclaredKinds(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(anySpec))
	a.want(201, "POST "+widgets, "", widget("a", `"spec":{}`))
	a.want(415, "PATCH "+widgets+"/a", strategic, `{"spec":{"x":1}}`)
	a.want(200, "PATCH "+widgets+"/a", merge, `{"spec":{"x":1}}`)
	a.want(200, "PATCH "+widgets+"/a", jsonPatch, `[{"op":"replace","path":"/spec/x","value":2}]`)
	a.want(200, "PATCH "+widgets+"/a?fieldManager=m&force=true", apply, widget("a", `"spec":{"x":3}`))
	// Of built-in kinds they are merged, with every directive.
	a.want(201, "POST "+pods, "", `{"metadata":{"name":"p","finalizers":["x/a","x/b","x/c"]},"spec":{"containers":[{"name":"c","image":"x"}]}}`)
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"s"},"spec":{"ports":[{"name":"a","port":1},{"name":"b","port":2},{"name":"c","port":3}]}}`)
	got := a.want(200, "PATCH "+pods+"/p", strategic, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["x/b"]}}`)
	if left := fmt.Sprint(tree.Strings(got.body, "metadata", "finalizers")); left != "[x/a x/c]" {
		t.Errorf("finalizers are %s", left)
	}
	got = a.want(200, "PATCH "+svcs+"/s", strategic, `{"spec":{"$setElementOrder/ports":[{"port":3},{"port":1}],`+
		`"ports":[{"port":2,"$patch":"delete"},{"port":1,"name":"first"}]}}`)
	var ports []string
	for _, p := range tree.Maps(got.body, "spec", "ports") {
		ports = append(ports, tree.Str(p, "name")+fmt.Sprint(p["port"]))
	}
	if fmt.Sprint(ports) != "[c3 first1]" {
		t.Errorf("ports are %v", ports)
	}
}

func TestB036_GenerationOfDeclaredKinds(t *testing.T) {
	for _, c := range []struct {
		name         string
		status       bool
		path, change string
		want         string
	}{
		{"spec", true, "", `{"spec":{"x":2}}`, "2"},
		{"status through the object", true, "", `{"status":{"s":2}}`, "1"},
		{"status", true, "/status", `{"status":{"s":2}}`, "1"},
		{"spec through status", true, "/status", `{"spec":{"x":2}}`, "1"},
		{"label", true, "", `{"metadata":{"labels":{"l":"1"}}}`, "1"},
		{"annotation", true, "", `{"metadata":{"annotations":{"l":"1"}}}`, "1"},
		{"finalizer", true, "", `{"metadata":{"finalizers":["example.com/f"]}}`, "1"},
		{"owner", true, "", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]}}`, "1"},
		{"unknown field", true, "", `{"top":1}`, "1"},
		{"generation itself", true, "", `{"metadata":{"generation":7}}`, "1"},
		{"spec, no subresource", false, "", `{"spec":{"x":2}}`, "2"},
		{"status, no subresource", false, "", `{"status":{"s":2}}`, "2"},
		{"label, no subresource", false, "", `{"metadata":{"labels":{"l":"1"}}}`, "1"},
		{"annotation, no subresource", false, "", `{"metadata":{"annotations":{"l":"1"}}}`, "1"},
		{"finalizer, no subresource", false, "", `{"metadata":{"finalizers":["example.com/f"]}}`, "1"},
		{"owner, no subresource", false, "", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]}}`, "1"},
		{"unknown field, no subresource", false, "", `{"top":1}`, "1"},
		{"another field beside the spec", true, "", `{"data":{"x":1}}`, "2"},
		{"another field beside the spec, no subresource", false, "", `{"data":{"x":1}}`, "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAPI(t)
			def := definition(anySpec)
			if c.status {
				def = definition(anySpec, `"subresources":{"status":{}}`)
			}
			def = strings.Replace(def, `"properties":{"spec"`, `"properties":{"data":`+anySpec+`,"spec"`, 1)
			a.want(201, "POST "+crds, "", def)
			asked := strings.Replace(widget("a", `"spec":{"x":1}`, `"status":{"s":1}`), `"name"`, `"generation":7,"name"`, 1)
			if made := a.want(201, "POST "+widgets, "", asked); made.gen() != "1" {
				t.Errorf("a new object has generation %s", made.gen())
			}
			if got := a.want(200, "PATCH "+widgets+"/a"+c.path, merge, c.change); got.gen() != c.want {
				t.Errorf("the generation is %s, not %s", got.gen(), c.want)
			}
		})
	}
}

// To begin to delete an object is a change of what it should be, as upstream has it.
func TestB036_DeletionRaisesTheGenerationOfDeclaredKinds(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(anySpec))
	a.want(201, "POST "+widgets, "", strings.Replace(widget("a"), `"name"`, `"finalizers":["example.com/f"],"name"`, 1))
	for range 2 {
		if got := a.want(200, "DELETE "+widgets+"/a", "", ""); got.gen() != "2" {
			t.Errorf("the generation is %s, not 2", got.gen())
		}
	}
}

func TestB040_NullAndDefault(t *testing.T) {
	const spec = `{"type":"object","properties":{"a":{"type":"integer","default":5},` +
		`"b":{"type":"integer","default":5,"nullable":true},"c":{"type":"integer"}}}`
	const nulls = `"spec":{"a":null,"b":null,"c":null}`
	want := map[string]any{"a": 5.0, "b": nil}
	specOf := func(got answer) any {
		var body struct{ Spec map[string]any }
		if err := json.Unmarshal([]byte(got.text), &body); err != nil {
			t.Fatal(err)
		}
		return body.Spec
	}
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(spec))
	made := a.want(201, "POST "+widgets, "", widget("a", nulls))
	for how, got := range map[string]answer{
		"create": made,
		"update": a.want(200, "PUT "+widgets+"/a", "",
			strings.Replace(widget("a", nulls), `"name":"a"`, `"name":"a","resourceVersion":"`+made.rev()+`"`, 1)),
		"apply": a.want(201, "PATCH "+widgets+"/b?fieldManager=m", apply, widget("b", nulls)),
		"read":  a.want(200, "GET "+widgets+"/a", "", ""),
	} {
		if d := cmp.Diff(any(want), specOf(got)); d != "" {
			t.Errorf("%s: %s", how, d)
		}
	}
}

func TestB040_DefaultsOfLaterAreReadInOldObjects(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(`{"type":"object","properties":{"c":{"type":"integer"},"gone":{"type":"integer"}}}`))
	before := a.want(201, "POST "+widgets, "", widget("a", `"spec":{"c":1,"gone":1}`))
	a.want(200, "PATCH "+crds+"/widgets.example.com", jsonPatch, `[{"op":"replace",`+
		`"path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties",`+
		`"value":{"c":{"type":"integer"},"d":{"type":"integer","default":5}}}]`)
	const want = `"spec":{"c":1,"d":5}`
	after := a.want(200, "GET "+widgets+"/a", "", "")
	if !strings.Contains(after.text, want) || after.rev() != before.rev() {
		t.Errorf("read %s", after.text)
	}
	if list := a.want(200, "GET "+widgets, "", ""); !strings.Contains(list.text, want) {
		t.Errorf("listed %s", list.text)
	}
	if touched := a.want(200, "PATCH "+widgets+"/a", merge, `{}`); touched.rev() != before.rev() {
		t.Errorf("a change of nothing wrote revision %s", touched.rev())
	}
}

func TestB041_DefaultsMustFit(t *testing.T) {
	const at = "spec.validation.openAPIV3Schema.properties[spec]."
	for name, c := range map[string]struct{ spec, field string }{
		"wrong type":    {`{"type":"object","properties":{"a":{"type":"integer","default":"x"}}}`, at + "properties[a].default"},
		"unknown field": {`{"type":"object","properties":{"a":{"type":"object","default":{"x":1}}}}`, at + "properties[a].default"},
		"metadata": {`{"type":"object","properties":{"a":{"type":"object","x-kubernetes-embedded-resource":true,` +
			`"x-kubernetes-preserve-unknown-fields":true,"properties":{"metadata":{"type":"object","default":{"labels":5}}}}}}`,
			at + "properties[a].properties[metadata].default"},
	} {
		a := newAPI(t)
		got := a.want(422, "POST "+crds, "", definition(c.spec))
		if !strings.Contains(got.text, `"field":"`+c.field) {
			t.Errorf("%s: %s", name, got.text)
		}
		a.want(404, "GET "+crds+"/widgets.example.com", "", "")
		// Nor does it come in later.
		before := a.want(201, "POST "+crds, "", definition(anySpec)).body
		a.want(422, "PATCH "+crds+"/widgets.example.com", jsonPatch, `[{"op":"replace",`+
			`"path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec","value":`+c.spec+`}]`)
		after := a.want(200, "GET "+crds+"/widgets.example.com", "", "").body
		if diff := cmp.Diff(before["spec"], after["spec"]); diff != "" {
			t.Errorf("%s: refused, and the definition changed: %s", name, diff)
		}
	}
	got := newAPI(t).want(422, "POST "+crds, "", strings.Replace(definition(anySpec), `"properties":{"spec"`,
		`"properties":{"metadata":{"type":"object","default":{"labels":{"a":"b"}}},"spec"`, 1))
	if !strings.Contains(got.causes(), "spec.validation.openAPIV3Schema.properties[metadata]") {
		t.Errorf("of the object's own metadata: %s", got.text)
	}
}

func TestB043_ChangedDefinitionIsInForceAtOnce(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(`{"type":"object","properties":{"f0":{"type":"integer"}}}`))
	for i := range 100 {
		field := fmt.Sprintf("f%d", i+1)
		a.want(200, "PATCH "+crds+"/widgets.example.com", jsonPatch, fmt.Sprintf(`[{"op":"add",`+
			`"path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/%s","value":{"type":"integer"}}]`, field))
		name := fmt.Sprintf("w%d", i)
		a.want(201, "POST "+widgets, "", widget(name, `"spec":{"`+field+`":1}`))
		if got := a.want(200, "GET "+widgets+"/"+name, "", ""); !strings.Contains(got.text, `"spec":{"`+field+`":1}`) {
			t.Fatalf("round %d: %s", i, got.text)
		}
	}
}

// Whatever a definition says of its objects holds for the next request, whether it was added or taken away.
func TestB043_EveryPartOfADefinitionIsInForceAtOnce(t *testing.T) {
	const version = "/spec/versions/0/"
	const columns, fields, sub = version + "additionalPrinterColumns", version + "selectableFields", version + "subresources"
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(`{"type":"object","properties":{"n":{"type":"integer"},"c":{"type":"string"}}}`))
	a.want(201, "POST "+widgets, "", widget("a", `"spec":{"n":3,"c":"red"}`))
	change := func(op, path, value string) {
		t.Helper()
		patch := `[{"op":"` + op + `","path":"` + path + `"`
		if value != "" {
			patch += `,"value":` + value
		}
		a.want(200, "PATCH "+crds+"/widgets.example.com", jsonPatch, patch+"}]")
	}
	table := func() string {
		t.Helper()
		req, err := http.NewRequest("GET", "http://setpoint"+widgets, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/json"+asTable)
		resp, err := a.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for range 20 {
		a.want(404, "GET "+widgets+"/a/scale", "", "")
		change("add", sub, `{"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}}`)
		a.want(200, "GET "+widgets+"/a/scale", "", "")
		change("remove", sub, "")

		change("add", columns, `[{"name":"Color","type":"string","jsonPath":".spec.c"}]`)
		if got := table(); !strings.Contains(got, `"cells":["a","red"]`) {
			t.Fatalf("with a column: %s", got)
		}
		change("remove", columns, "")
		if got := table(); strings.Contains(got, `"red"]`) {
			t.Fatalf("without it: %s", got)
		}

		a.want(400, "GET "+widgets+"?fieldSelector=spec.c=red", "", "")
		change("add", fields, `[{"jsonPath":".spec.c"}]`)
		a.want(200, "GET "+widgets+"?fieldSelector=spec.c=red", "", "")
		change("remove", fields, "")

		a.want(404, "GET "+widgets2, "", "")
		change("add", "/spec/versions/-", `{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":`+
			`{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`)
		a.want(200, "GET "+widgets2+"/a", "", "")
		change("replace", "/spec/versions/1/served", "false")
		a.want(404, "GET "+widgets2, "", "")
		change("remove", "/spec/versions/1", "")
	}
}

func TestB043_AnotherServerOnTheStoreFollows(t *testing.T) {
	a := newAPI(t)
	b := newAPI(t, func(o *apiserver.Options) {
		o.Store, o.Kinds = a.store, kinds.NewRegistry(builtin.Set())
	})
	a.want(201, "POST "+crds, "", definition(anySpec))
	b.want(201, "POST "+widgets, "", widget("a", `"spec":{}`))
	b.want(200, "DELETE "+crds+"/widgets.example.com", "", "")
	a.want(404, "GET "+widgets, "", "")
}

// A schema that one server was given is in force at another for the next request, too.
func TestB043_AnotherServerKnowsEveryNewField(t *testing.T) {
	all, _ := newAPIs(t, 2)
	all[0].want(201, "POST "+crds, "", definition(`{"type":"object","properties":{"f":{"type":"integer"}}}`))
	for i := range 50 {
		here, there := all[i%2], all[1-i%2]
		field := fmt.Sprintf("f%d", i)
		here.want(200, "PATCH "+crds+"/widgets.example.com", jsonPatch, `[{"op":"replace",`+
			`"path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties","value":{"`+field+`":{"type":"integer"}}}]`)
		name := fmt.Sprintf("w%d", i)
		there.want(201, "POST "+widgets, "", widget(name, `"spec":{"`+field+`":1}`))
		if got := here.want(200, "GET "+widgets+"/"+name, "", ""); !strings.Contains(got.text, `"spec":{"`+field+`":1}`) {
			t.Fatalf("round %d: %s", i, got.text)
		}
	}
}

// The version in which objects are kept goes to and fro, and each object is in the version that is
// asked for, whichever it is kept in, in gets, lists and watches.
func TestB043_ManyFlipsOfTheStorageVersionMixNothing(t *testing.T) {
	a := newAPI(t)
	second := `,{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":` +
		anySpec + `}}}}]}}`
	a.want(201, "POST "+crds, "", strings.TrimSuffix(definition(anySpec), "]}}")+second)
	const rounds = 30
	for i := range rounds {
		kept := i % 2
		a.want(200, "PATCH "+crds+"/widgets.example.com", jsonPatch, fmt.Sprintf(`[
			{"op":"replace","path":"/spec/versions/0/storage","value":%v},
			{"op":"replace","path":"/spec/versions/1/storage","value":%v}]`, kept == 0, kept == 1))
		name, paths := fmt.Sprintf("w%d", i), []string{widgets, widgets2}
		obj := widget(name, fmt.Sprintf(`"spec":{"n":%d}`, i))
		if i%3 == 0 {
			obj = asV2(obj)
		}
		a.want(201, "POST "+paths[map[bool]int{true: 1, false: 0}[i%3 == 0]], "", obj)
		if i > 0 { // one that was kept otherwise
			a.want(200, fmt.Sprintf("PATCH %s/w%d", paths[i/2%2], i-1), merge, `{"metadata":{"labels":{"l":"1"}}}`)
		}
		for v, path := range paths {
			version := fmt.Sprintf("example.com/v%d", v+1)
			list := a.want(200, "GET "+path, "", "")
			items := tree.List(list.body, "items")
			if len(items) != i+1 || list.str("apiVersion") != version {
				t.Fatalf("%d items as %s, want %d as %s", len(items), list.str("apiVersion"), i+1, version)
			}
			for _, item := range append(items, any(a.want(200, "GET "+path+"/"+name, "", "").body)) {
				item := item.(map[string]any)
				n := fmt.Sprint("w", tree.Get(item, "spec", "n"))
				if tree.Str(item, "apiVersion") != version || n != tree.Str(item, "metadata", "name") {
					t.Fatalf("round %d, as %s: %v", i, version, item)
				}
			}
		}
	}
}

func TestDefinitionsAreThereAfterARestart(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(anySpec))
	a.want(201, "POST "+widgets, "", widget("a", `"spec":{"x":1}`))
	again := newAPI(t, func(o *apiserver.Options) { o.Store = a.store })
	if got := again.want(200, "GET "+widgets+"/a", "", ""); !strings.Contains(got.text, `"spec":{"x":1}`) {
		t.Errorf("got %s", got.text)
	}
}

func TestB045_NothingComesBackWithADefinition(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		ok := func(want int, method, path, body string) reply {
			t.Helper()
			got := s.ask(method, path, body, "Content-Type", "application/json")
			if got.code != want {
				t.Fatalf("%s %s: %d %s", method, path, got.code, got.text)
			}
			return got
		}
		ok(201, "POST", crds, definition(anySpec))
		for _, name := range []string{"a", "b", "c"} {
			ok(201, "POST", widgets, widget(name, `"spec":{}`))
		}
		w := s.watch(widgets + "?watch=1&resourceVersion=0")
		w.seen()
		ok(200, "DELETE", crds+"/widgets.example.com", "")
		got := w.seen()
		for i := range got {
			got[i], _, _ = strings.Cut(got[i], "@")
		}
		if d := cmp.Diff([]string{"DELETED a", "DELETED b", "DELETED c", "end"}, got); d != "" {
			t.Error(d)
		}
		ok(404, "GET", crds+"/widgets.example.com", "")
		ok(201, "POST", crds, definition(anySpec))
		if got := ok(200, "GET", widgets, ""); !strings.Contains(got.text, `"items":[]`) {
			t.Errorf("there are still %s", got.text)
		}
	})
}

func TestB046_DefinitionWaitsForFinalizers(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(anySpec))
	a.want(201, "POST "+widgets, "", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","finalizers":["example.com/f"]}}`)
	a.want(201, "POST "+widgets, "", widget("b"))
	a.want(200, "DELETE "+crds+"/widgets.example.com", "", "")
	waiting := a.want(200, "GET "+crds+"/widgets.example.com", "", "")
	if !strings.Contains(waiting.text, "1 remaining") || !strings.Contains(conditions(waiting), "Terminating=True InstanceDeletionInProgress") {
		t.Errorf("conditions are %s", waiting.text)
	}
	a.want(404, "GET "+widgets+"/b", "", "")
	a.want(405, "POST "+widgets, "", widget("c"))
	a.want(404, "PATCH "+widgets+"/c?fieldManager=m", apply, widget("c"))
	a.want(200, "PATCH "+widgets+"/a", merge, `{"metadata":{"labels":{"still":"writable"}}}`)
	a.want(200, "PATCH "+widgets+"/a", merge, `{"metadata":{"finalizers":null}}`)
	a.want(404, "GET "+crds+"/widgets.example.com", "", "")
	a.want(404, "GET "+widgets, "", "")
}

// A definition may have the names of a kind that is built in. It takes nothing from it: what is served
// stays so, and the objects do not go with the definition.
func TestDefinitionOfABuiltInKindOwnsNothing(t *testing.T) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	for name, version := range map[string]string{"the same version": "v1", "another version": "v9"} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.want(201, "POST "+leases, "", `{"metadata":{"name":"l"},"spec":{"holderIdentity":"me"}}`)
			a.want(201, "POST "+crds, "", strings.NewReplacer("widgets", "leases", "example.com", "coordination.k8s.io",
				"Widget", "Lease", `"v1"`, `"`+version+`"`, `{"metadata":{`, `{"metadata":{"annotations":`+
					`{"api-approved.kubernetes.io":"https://example.com/approved"},`).Replace(definition(anySpec)))
			if version != "v1" {
				a.want(404, "GET "+strings.Replace(leases, "v1", version, 1)+"/l", "", "")
			}
			a.want(422, "PATCH "+leases+"/l", merge, `{"spec":{"leaseDurationSeconds":-1}}`)
			a.want(200, "DELETE "+crds+"/leases.coordination.k8s.io", "", "")
			a.want(404, "GET "+crds+"/leases.coordination.k8s.io", "", "")
			if got := a.want(200, "GET "+leases+"/l", "", ""); !strings.Contains(got.text, `"holderIdentity":"me"`) {
				t.Errorf("got %s", got.text)
			}
		})
	}
}

// A number that cannot be is refused by the name that the definition gives the field, whoever writes it.
func TestScaleOfDeclaredKinds(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(`{"type":"object","properties":{"size":{"type":"integer"}}}`,
		`"subresources":{"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.size"}}`))
	a.want(201, "POST "+widgets, "", widget("a", `"spec":{"size":1}`))
	if got := a.want(200, "PATCH "+widgets+"/a/scale", merge, `{"spec":{"replicas":3}}`); got.str("metadata", "name") != "a" {
		t.Errorf("got %s", got.text)
	}
	if got := a.want(200, "GET "+widgets+"/a", "", ""); !strings.Contains(got.text, `"spec":{"size":3}`) {
		t.Errorf("got %s", got.text)
	}
	const scale = `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":-1}}`
	for line, c := range map[string]struct{ media, body string }{
		"PATCH " + widgets + "/a/scale":                           {merge, `{"spec":{"replicas":-1}}`},
		"PUT " + widgets + "/a/scale":                             {"", scale},
		"PATCH " + widgets + "/a/scale?fieldManager=m&force=true": {apply, scale},
		"PATCH " + widgets + "/a":                                 {merge, `{"spec":{"size":-1}}`},
	} {
		got := a.want(422, line, c.media, c.body)
		const want = `Widget.example.com "a" is invalid: .spec.size: Invalid value: -1: should be a non-negative integer`
		if got.causes() != ".spec.size" || got.str("message") != want {
			t.Errorf("%s: %s", line, got.text)
		}
	}
}

func TestB150_NamesAreNotPathsOfOthers(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(anySpec))
	longer := strings.NewReplacer(`"widgets.`, `"widgetss.`, `"widgets"`, `"widgetss"`, `"Widget"`, `"Sprocket"`).Replace(definition(anySpec))
	a.want(201, "POST "+crds, "", longer)
	a.want(201, "POST "+strings.Replace(widgets, "widgets", "widgetss", 1), "",
		strings.Replace(widget("secret"), `"Widget"`, `"Sprocket"`, 1))
	for _, path := range []string{"", "/secret", "/..%2fwidgetss%2fsecret", "s%2fsecret", "/%2e%2e", "//secret"} {
		if got := a.do("GET "+widgets+path, "", ""); strings.Contains(got.text, "secret") && got.code == 200 {
			t.Errorf("%s: %d %s", path, got.code, got.text)
		}
	}
}
