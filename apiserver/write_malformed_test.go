package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
)

// malformed are requests that are wrong, with the answer each must get and what its message, or the
// fields it names, must say.
var malformed = []struct {
	name, line, contentType, body string
	code                          int
	says                          string
}{
	// Bodies that are no object.
	{"no body", "POST " + cms, "", ``, 400, "unexpected end of JSON input (<empty>)"},
	{"plain text", "POST " + cms, "", `hello`, 400, "invalid character 'h'"},
	{"truncated", "POST " + cms, "", `{"metadata":{"name":"x"`, 400, "unexpected end of JSON input"},
	{"truncated string", "POST " + cms, "", `{"metadata":{"name":"x`, 400, "unexpected end of JSON input"},
	{"trailing comma", "POST " + cms, "", `{"metadata":{"name":"x"},}`, 400, "invalid character"},
	{"two objects", "POST " + cms, "", `{"metadata":{"name":"x"}}{}`, 400, "after top-level value"},
	{"a list", "POST " + cms, "", `[]`, 400, "json: cannot unmarshal array"},
	{"a number", "POST " + cms, "", `7`, 400, "json: cannot unmarshal number"},
	{"bad escape", "POST " + cms, "", `{"metadata":{"name":"\x"}}`, 400, "invalid character 'x'"},
	{"deep nesting", "POST " + cms, "", `{"data":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, 400, ""},
	{"deep YAML", "POST " + cms, "application/yaml", `data: ` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000), 400, ""},
	{"deep CBOR", "POST " + cms, "application/cbor", strings.Repeat("\xa1\x41a", 20000) + "\xf6", 400, "max nested level"},
	{"deep protobuf", "POST " + crds, protobufType, deepMessage, 400, "exceeded max depth"},
	{"deep unknown nesting", "POST " + cms, "", `{"x":` + strings.Repeat(`{"a":`, 20000) + `1` + strings.Repeat("}", 20000) + `}`, 400, ""},
	{"bad YAML", "POST " + cms, "application/yaml", "metadata: [a", 400, "yaml"},
	{"YAML that grows", "POST " + cms, "application/yaml", yamlBomb, 400, "excessive aliasing"},
	{"not protobuf", "POST " + cms, "application/vnd.kubernetes.protobuf", `{}`, 400, "ConfigMap"},
	{"truncated protobuf", "POST " + cms, "application/vnd.kubernetes.protobuf", "k8s\x00\x0a\xff", 400, "ConfigMap"},
	{"huge body", "POST " + cms, "", `{"data":{"k":"` + strings.Repeat("x", 4<<20) + `"}}`, 413, "limit is 3145728"},
	{"huge patch", "PATCH " + cms + "/a", merge, `{"data":{"k":"` + strings.Repeat("x", 4<<20) + `"}}`, 413, "limit is 3145728"},
	{"large data", "POST " + cms, "", `{"metadata":{"name":"x"},"data":{"k":"` + strings.Repeat("x", 1<<20+1) + `"}}`, 422, "1048576"},

	// Content types.
	{"form", "POST " + cms, "application/x-www-form-urlencoded", `a=b`, 415, "application/json"},
	{"broken type", "POST " + cms, "a/b/c", `{}`, 415, "application/json"},
	{"no CBOR", "POST " + cms, "application/cbor", `{}`, 400, "unable to determine group/version/kind"},
	{"plain patch", "PATCH " + cms + "/a", "application/json", `{}`, 415, "Unsupported Media Type"},
	{"untyped patch", "PATCH " + cms + "/a", "", `{}`, 415, "Unsupported Media Type"},

	// Bodies of another kind.
	{"another kind", "POST " + cms, "", `{"apiVersion":"v1","kind":"Gadget"}`, 400, `no kind "Gadget"`},
	{"a known kind elsewhere", "POST " + cms, "", `{"apiVersion":"v1","kind":"Pod"}`, 400, "cannot be handled as a ConfigMap"},
	{"another version", "POST " + cms, "", `{"apiVersion":"v2","kind":"ConfigMap"}`, 400, `version "v2"`},
	{"an impossible version", "POST " + cms, "", `{"apiVersion":"a/b/c","kind":"ConfigMap"}`, 400, "a/b/c"},

	// Wrong types of fields.
	{"number for text", "POST " + cms, "", `{"metadata":{"name":"x"},"data":{"k":7}}`, 400, "ConfigMap.data of type string"},
	{"list for a map", "POST " + cms, "", `{"metadata":{"name":"x","labels":["a"]}}`, 400, "ObjectMeta.metadata.labels"},
	{"text for a number", "POST " + deps, "", strings.Replace(deployment, `"replicas":2`, `"replicas":"two"`, 1), 400, "DeploymentSpec.spec.replicas of type int32"},
	{"fraction", "POST " + deps, "", strings.Replace(deployment, `"replicas":2`, `"replicas":2.5`, 1), 400, "spec.replicas"},
	{"too large a number", "POST " + deps, "", strings.Replace(deployment, `"replicas":2`, `"replicas":99999999999`, 1), 400, "spec.replicas"},
	{"bad quantity", "POST " + pods, "", `{"metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"x","resources":{"limits":{"cpu":"lots"}}}]}}`, 400, "quantities must match"},
	{"bad base64", "POST /api/v1/namespaces/default/secrets", "", `{"metadata":{"name":"x"},"data":{"p":"not base64!"}}`, 400, "illegal base64"},

	// Unknown fields, strictly.
	{"unknown field", "POST " + cms + "?fieldValidation=Strict", "", `{"metadata":{"name":"x"},"nosuch":1}`, 400, `unknown field "nosuch"`},
	{"duplicate field", "POST " + cms + "?fieldValidation=Strict", "", `{"metadata":{"name":"x"},"data":{"k":"1","k":"2"}}`, 400, `duplicate field "data.k"`},
	{"unknown field by patch", "PATCH " + cms + "/a?fieldValidation=Strict", merge, `{"nosuch":1}`, 422, `unknown field "nosuch"`},
	{"unknown field by apply", "PATCH " + cms + "/a?fieldManager=m", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"nosuch":1}`, 500, ".nosuch: field not declared in schema"},

	// Names and metadata.
	{"no name", "POST " + cms, "", `{}`, 422, "name or generateName is required"},
	{"bad name", "POST " + cms, "", `{"metadata":{"name":"A_b"}}`, 422, "metadata.name"},
	{"long name", "POST " + cms, "", `{"metadata":{"name":"` + strings.Repeat("a", 254) + `"}}`, 422, "no more than 253"},
	{"bad label", "POST " + cms, "", `{"metadata":{"name":"x","labels":{"a":"b c"}}}`, 422, "metadata.labels"},
	{"bad annotation", "POST " + cms, "", `{"metadata":{"name":"x","annotations":{"a b":"c"}}}`, 422, "metadata.annotations"},
	{"bad finalizer", "POST " + cms, "", `{"metadata":{"name":"x","finalizers":["Bad Name/x"]}}`, 422, "metadata.finalizers"},
	{"owner without uid", "POST " + cms, "", `{"metadata":{"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n"}]}}`, 422, "metadata.ownerReferences[0].uid"},
	{"another namespace", "POST " + cms, "", `{"metadata":{"name":"x","namespace":"other"}}`, 400, "does not match the namespace"},
	{"another name", "PUT " + cms + "/a", "", `{"metadata":{"name":"b"}}`, 400, "does not match the name on the URL (a)"},
	{"a deletion by update", "PUT " + cms + "/a", "", `{"metadata":{"name":"a","deletionTimestamp":"2001-02-03T04:05:06Z"}}`, 422, "metadata.deletionTimestamp"},
	{"revision on create", "POST " + cms, "", `{"metadata":{"name":"x","resourceVersion":"5"}}`, 500, "resourceVersion should not be set"},
	{"no revision at all", "PUT " + cms + "/a", "", `{"metadata":{"name":"a","resourceVersion":"garbage"}}`, 500, "strconv.ParseUint: parsing \"garbage\""},
	{"stale revision", "PUT " + cms + "/a", "", `{"metadata":{"name":"a","resourceVersion":"1"}}`, 409, "the object has been modified"},
	{"stale revision of a delete", "DELETE " + cms + "/a", "", `{"preconditions":{"resourceVersion":"1"}}`, 409, "ResourceVersion in the precondition (1)"},
	{"another uid", "PATCH " + cms + "/a", merge, `{"metadata":{"uid":"other"}}`, 422, "metadata.uid"},

	// Patches.
	{"patch is no JSON", "PATCH " + cms + "/a", jsonPatch, `[{`, 400, "invalid JSON patch"},
	{"patch is no list", "PATCH " + cms + "/a", jsonPatch, `{}`, 400, "cannot unmarshal object"},
	{"merge is no object", "PATCH " + cms + "/a", merge, `[]`, 400, "cannot unmarshal array"},
	{"patch to a wrong type", "PATCH " + cms + "/a", merge, `{"data":{"k":5}}`, 422, "patch: Invalid value"},
	{"failed test", "PATCH " + cms + "/a", jsonPatch, `[{"op":"test","path":"/data/k","value":"no"}]`, 422, "error in our request"},
	{"strategic list out of order", "PATCH " + deps + "/d", strategic, `{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"s"}],"containers":[{"name":"c","image":"y"}]}}}}`, 500, "$setElementOrder"},
	{"a patch that changes the kind", "PATCH " + cms + "/a", merge, `{"kind":"Secret"}`, 422, "unknown conversion"},
	{"apply without manager", "PATCH " + cms + "/a", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, 422, "fieldManager"},
	{"apply without kind", "PATCH " + cms + "/a?fieldManager=m", apply, `{"apiVersion":"v1","metadata":{"name":"a"}}`, 400, "invalid object type"},
	{"apply of what is no YAML", "PATCH " + cms + "/a?fieldManager=m", apply, `a: [b`, 400, "error encoding patch"},
	{"apply of a list", "PATCH " + cms + "/a?fieldManager=m", apply, `[]`, 400, "error decoding patch"},
	{"apply with owners", "PATCH " + cms + "/a?fieldManager=m", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","managedFields":[{"manager":"x"}]}}`, 400, "metadata.managedFields must be nil"},

	// Options.
	{"dry run of some", "POST " + cms + "?dryRun=Some", "", `{"metadata":{"name":"x"}}`, 422, "dryRun"},
	{"long manager", "POST " + cms + "?fieldManager=" + strings.Repeat("m", 129), "", `{"metadata":{"name":"x"}}`, 422, "fieldManager"},
	{"odd validation", "POST " + cms + "?fieldValidation=Maybe", "", `{"metadata":{"name":"x"}}`, 422, "fieldValidation"},
	{"force without apply", "PATCH " + cms + "/a?force=true", merge, `{}`, 422, "force"},
	{"odd propagation", "DELETE " + cms + "/a?propagationPolicy=Sideways", "", ``, 422, "propagationPolicy"},
	{"both propagations", "DELETE " + cms + "/a", "", `{"orphanDependents":true,"propagationPolicy":"Orphan"}`, 422, "propagationPolicy"},
	{"odd grace", "DELETE " + cms + "/a?gracePeriodSeconds=soon", "", ``, 400, "strconv.ParseInt: parsing"},
	{"broken options", "DELETE " + cms + "/a", "", `{`, 400, "unexpected end of JSON input"},
	{"options of another kind", "DELETE " + cms + "/a", "", `{"kind":"Pod","apiVersion":"v1"}`, 400, "no kind \"Pod\" is registered"},
	{"bad selector", "DELETE " + cms + "?labelSelector=a=b=c", "", ``, 400, "found '='"},

	// Paths.
	{"post to an object", "POST " + cms + "/a", "", `{}`, 405, "does not allow this method"},
	{"patch of a collection", "PATCH " + cms, merge, `{}`, 405, "does not allow this method"},
	{"unknown subresource", "PUT " + cms + "/a/nosuch", "", `{}`, 404, "could not find the requested resource"},
	{"exec", "POST /api/v1/namespaces/default/pods/a/exec?command=ls", "", ``, 404, `pods "a" not found`},
	{"missing namespace", "POST /api/v1/namespaces/none/configmaps", "", `{"metadata":{"name":"x"}}`, 404, `namespaces "none" not found`},
}

// deepMessage is a definition whose schema is nested deeper than anything is read.
var deepMessage = func() string {
	var message []byte
	field := func(number protowire.Number) {
		message = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), message)
	}
	for range 10100 {
		field(28) // not
	}
	for _, number := range []protowire.Number{1, 4, 7, 2} { // openAPIV3Schema, schema, versions, spec
		field(number)
	}
	return string(compiled.AppendEnvelope(nil, "apiextensions.k8s.io/v1", "CustomResourceDefinition", message))
}()

// yamlBomb is a short text that stands for ten to the ninth strings.
var yamlBomb = func() string {
	text := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 9; i++ {
		list := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ",")
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, list)
	}
	return text
}()

func TestMalformedRequests(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	a.want(201, "POST "+deps, "", deployment)
	before := a.store.Revision()
	for _, m := range malformed {
		t.Run(m.name, func(t *testing.T) {
			got := a.do(m.line, m.contentType, m.body)
			if got.code != m.code || !strings.Contains(got.str("message"), m.says) {
				t.Errorf("got %d, want %d with %q: %.600s", got.code, m.code, m.says, got.text)
			}
			if got.str("kind") != "Status" || got.str("status") != "Failure" {
				t.Errorf("not a Status: %.200s", got.text)
			}
		})
	}
	if after := a.store.Revision(); after != before {
		t.Errorf("refused requests moved the store from revision %d to %d", before, after)
	}
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"still-alive"}}`)
}
