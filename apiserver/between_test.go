package apiserver_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// newBetween makes a server, and what has something happen once, when the next request has read its
// object and is about to commit.
func newBetween(t *testing.T) (a *api, between func(happens func())) {
	t.Helper()
	var s *interrupted
	a = newAPI(t, func(o *apiserver.Options) {
		s = &interrupted{Store: o.Store}
		o.Store = s
	})
	return a, func(happens func()) { s.before = happens }
}

// mortal is an object that can be deleted, and how it goes.
type mortal struct {
	posts, path, object string
	erase               string // the query of its DELETE
	waits               bool   // that DELETE leaves it a grace period
	guarded             bool   // a PUT has to name the revision
}

func mortals() map[string]mortal {
	const containers = `"containers":[{"name":"c","image":"x"}]}}`
	const bound = `{"metadata":{"name":"p"},"spec":{"nodeName":"n",` + containers
	return map[string]mortal{
		"config map":      {posts: cms, path: cms + "/a", object: `{"metadata":{"name":"a"}}`},
		"pod":             {posts: pods, path: pods + "/p", object: bound, waits: true},
		"pod at once":     {posts: pods, path: pods + "/p", object: bound, erase: "?gracePeriodSeconds=0"},
		"pod of no node":  {posts: pods, path: pods + "/p", object: `{"metadata":{"name":"p"},"spec":{` + containers},
		"deployment":      {posts: deps, path: deps + "/d", object: deployment},
		"declared widget": {posts: widgets, path: widgets + "/w", object: widget("w"), guarded: true},
	}
}

// make creates the object.
func (m mortal) make(a *api) answer {
	a.t.Helper()
	if m.posts == widgets {
		a.want(201, "POST "+crds, "", definition(anySpec))
	}
	return a.want(201, "POST "+m.posts, "", m.object)
}

// sent is an object as a client sends it that has read it and changes it.
func sent(read answer, change func(obj map[string]any)) string {
	obj := tree.CopyMap(read.body)
	delete(tree.Map(obj, "metadata"), "managedFields")
	change(obj)
	text, _ := json.Marshal(obj)
	return string(text)
}

// ways are those in which an object can be written.
func (m mortal) ways() []string {
	if m.posts == widgets {
		return []string{"put", "merge", "json"}
	}
	return []string{"put", "merge", "json", "strategic"}
}

// finalizers has an object that was read have these finalizers, written in one of the ways.
func (m mortal) finalizers(a *api, way string, read answer, finalizers ...string) answer {
	list := []any{}
	for _, f := range finalizers {
		list = append(list, f)
	}
	value, _ := json.Marshal(list)
	switch patch := "PATCH " + m.path; way {
	case "put":
		return a.do("PUT "+m.path, "", sent(read, func(obj map[string]any) {
			tree.Set(obj, list, "metadata", "finalizers")
			if !m.guarded {
				delete(tree.Map(obj, "metadata"), "resourceVersion")
			}
		}))
	case "merge":
		return a.do(patch, merge, `{"metadata":{"finalizers":`+string(value)+`}}`)
	case "json":
		return a.do(patch, jsonPatch, `[{"op":"add","path":"/metadata/finalizers","value":`+string(value)+`}]`)
	default:
		gone := slices.DeleteFunc(tree.Strings(read.body, "metadata", "finalizers"), func(f string) bool {
			return slices.Contains(finalizers, f)
		})
		drop := ""
		if len(gone) > 0 {
			names, _ := json.Marshal(gone)
			drop = `"$deleteFromPrimitiveList/finalizers":` + string(names) + `,`
		}
		return a.do(patch, strategic, `{"metadata":{`+drop+`"finalizers":`+string(value)+`}}`)
	}
}

// finalizersOf are an object's, and whether it is being deleted.
func finalizersOf(got answer) string {
	return fmt.Sprint(tree.Strings(got.body, "metadata", "finalizers"), tree.Has(got.body, "metadata", "deletionTimestamp"))
}

// A finalizer that was accepted holds the object, however close a deletion was; and what was deleted
// takes none.
func TestB048_FinalizerBetweenReadAndCommitOfADeletion(t *testing.T) {
	for name, m := range mortals() {
		for _, way := range m.ways() {
			t.Run(name+"/"+way, func(t *testing.T) {
				a, between := newBetween(t)
				made := m.make(a)
				between(func() {
					if got := m.finalizers(a, way, made, "example.com/f"); got.code != 200 {
						t.Errorf("the finalizer: %d %s", got.code, got.text)
					}
				})
				a.want(200, "DELETE "+m.path+m.erase, "", "")
				if got := finalizersOf(a.want(200, "GET "+m.path, "", "")); got != "[example.com/f] true" {
					t.Errorf("finalizers and whether it is being deleted: %s", got)
				}
				a.want(200, "PATCH "+m.path, merge, `{"metadata":{"finalizers":null}}`)
				if m.waits {
					a.want(200, "DELETE "+m.path+"?gracePeriodSeconds=0", "", "")
				}
				a.want(404, "GET "+m.path, "", "")
			})
			t.Run(name+"/"+way+" too late", func(t *testing.T) {
				a, between := newBetween(t)
				made := m.make(a)
				between(func() { a.want(200, "DELETE "+m.path+m.erase, "", "") })
				got := m.finalizers(a, way, made, "example.com/f")
				if !m.waits {
					if got.code != 404 {
						t.Errorf("the finalizer: %d %s", got.code, got.text)
					}
					a.want(404, "GET "+m.path, "", "")
					return
				}
				if got.code != 422 {
					t.Errorf("the finalizer: %d %s", got.code, got.text)
				}
				if got := finalizersOf(a.want(200, "GET "+m.path, "", "")); got != "[] true" {
					t.Errorf("finalizers and whether it is being deleted: %s", got)
				}
			})
		}
	}
}

// A pod that is to end at once and is ended by somebody else meanwhile has been deleted, as whoever
// asked for it is told. What has no grace period, or was to have one, was not there.
func TestB048_WhatVanishesBetweenReadAndCommitOfItsDeletion(t *testing.T) {
	for name, m := range mortals() {
		t.Run(name, func(t *testing.T) {
			a, between := newBetween(t)
			made := m.make(a)
			between(func() { a.want(200, "DELETE "+m.path+"?gracePeriodSeconds=0", "", "") })
			if m.posts != pods || m.waits {
				a.want(404, "DELETE "+m.path+m.erase, "", "")
				return
			}
			got := a.want(200, "DELETE "+m.path+m.erase, "", "")
			if got.str("kind") != "Pod" || got.str("metadata", "uid") != made.str("metadata", "uid") ||
				!tree.Has(got.body, "metadata", "deletionTimestamp") {
				t.Errorf("answered with %s", got.text)
			}
			a.want(404, "DELETE "+m.path+m.erase, "", "")
		})
	}
}

// A deletion of one object is not one of its successor.
func TestB050_SuccessorBetweenReadAndCommitOfADeletion(t *testing.T) {
	for name, m := range mortals() {
		t.Run(name, func(t *testing.T) {
			a, between := newBetween(t)
			made := m.make(a)
			var successor answer
			between(func() {
				a.want(200, "DELETE "+m.path+"?gracePeriodSeconds=0", "", "")
				successor = a.want(201, "POST "+m.posts, "", m.object)
			})
			a.want(409, "DELETE "+m.path+m.erase, "", `{"preconditions":{"uid":"`+made.str("metadata", "uid")+`"}}`)
			if got := a.want(200, "GET "+m.path, "", ""); got.text != successor.text {
				t.Error(cmp.Diff(successor.body, got.body))
			}
		})
	}
}

// Who takes the last finalizer off an object that is being deleted takes the object away, in that
// request, whatever its kind and however it is written; one that others hold stays.
func TestB046_ObjectGoesWithItsLastFinalizer(t *testing.T) {
	all := mortals()
	all["definition"] = mortal{posts: crds, path: crds + "/widgets.example.com", object: definition(anySpec), guarded: true}
	all["node"] = mortal{posts: "/api/v1/nodes", path: "/api/v1/nodes/n", object: `{"metadata":{"name":"n"}}`}
	for name, m := range all {
		for _, way := range m.ways() {
			t.Run(name+"/"+way, func(t *testing.T) {
				a := newAPI(t)
				m.make(a)
				a.want(200, "PATCH "+m.path, merge, `{"metadata":{"finalizers":["example.com/f","example.com/g"]}}`)
				a.want(200, "DELETE "+m.path+"?gracePeriodSeconds=0", "", "")
				read := a.want(200, "GET "+m.path, "", "")
				if got := m.finalizers(a, way, read, "example.com/g"); got.code != 200 {
					t.Fatalf("one of two: %d %s", got.code, got.text)
				}
				read = a.want(200, "GET "+m.path, "", "")
				if got := finalizersOf(read); got != "[example.com/g] true" {
					t.Errorf("finalizers and whether it is being deleted: %s", got)
				}
				if got := m.finalizers(a, way, read); got.code != 200 {
					t.Fatalf("the last: %d %s", got.code, got.text)
				}
				a.want(404, "GET "+m.path, "", "")
			})
		}
		t.Run(name+"/apply", func(t *testing.T) {
			a := newAPI(t)
			made := m.make(a)
			wish := func(finalizers string) string {
				text, _ := json.Marshal(kinds.Object{"apiVersion": made.str("apiVersion"), "kind": made.str("kind"),
					"metadata": map[string]any{"name": made.str("metadata", "name"), "finalizers": json.RawMessage(finalizers)}})
				return string(text)
			}
			line := "PATCH " + m.path + "?fieldManager=m"
			a.want(200, line, apply, wish(`["example.com/f"]`))
			a.want(200, "DELETE "+m.path+"?gracePeriodSeconds=0", "", "")
			a.want(200, "GET "+m.path, "", "")
			a.want(200, line, apply, wish(`[]`))
			a.want(404, "GET "+m.path, "", "")
		})
	}
}

// What a policy says of the stored object holds for the one that is replaced, not for one that a
// request had read before.
func TestB151_PoliciesSeeWhatGotBetweenReadAndCommit(t *testing.T) {
	const data = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"l":"y"}}`
	for name, c := range map[string]struct {
		absent      bool // until something gets in between
		line, media string
		body        string
	}{
		"put":             {line: "PUT " + cms + "/a", body: data},
		"merge":           {line: "PATCH " + cms + "/a", media: merge, body: data},
		"strategic":       {line: "PATCH " + cms + "/a", media: strategic, body: data},
		"json":            {line: "PATCH " + cms + "/a", media: jsonPatch, body: `[{"op":"add","path":"/data","value":{"l":"y"}}]`},
		"apply":           {line: "PATCH " + cms + "/a?fieldManager=m&force=true", media: apply, body: data},
		"apply to create": {absent: true, line: "PATCH " + cms + "/a?fieldManager=m&force=true", media: apply, body: data},
		"delete":          {line: "DELETE " + cms + "/a"},
	} {
		t.Run(name, func(t *testing.T) {
			a, between := newBetween(t)
			a.policy("kept", rulesFor("", "configmaps")+`,"validations":[{"message":"l is kept","expression":
				"oldObject == null || !has(oldObject.data) || !('l' in oldObject.data) || (object != null && object.data.l == oldObject.data.l)"}]`, deny)
			if !c.absent {
				a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"}}`)
			}
			between(func() {
				a.want(map[bool]int{true: 201, false: 200}[c.absent], "PATCH "+cms+"/a?fieldManager=other", apply,
					`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"l":"x"}}`)
			})
			a.want(422, c.line, c.media, c.body)
			if got := a.want(200, "GET "+cms+"/a", "", ""); got.str("data", "l") != "x" {
				t.Errorf("l is %q", got.str("data", "l"))
			}
		})
	}
	t.Run("scale", func(t *testing.T) {
		a, between := newBetween(t)
		a.policy("slowly", rulesFor("apps", "deployments/scale")+`,"validations":[{"message":"one at a time",
			"expression":"object.spec.replicas <= oldObject.spec.replicas + 1"}]`, deny)
		a.want(201, "POST "+deps, "", deployment)
		between(func() { a.want(200, "PATCH "+deps+"/d", merge, `{"spec":{"replicas":1}}`) })
		a.want(422, "PATCH "+deps+"/d/scale", merge, `{"spec":{"replicas":3}}`)
		if got := a.want(200, "GET "+deps+"/d/scale", "", ""); fmt.Sprint(tree.Get(got.body, "spec", "replicas")) != "1" {
			t.Errorf("got %s", got.text)
		}
	})
}
