package apiserver_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const registration = "/apis/admissionregistration.k8s.io/v1/"

// rulesFor match all writes of resources of a group.
func rulesFor(group string, resources ...string) string {
	text, _ := json.Marshal(resources)
	return fmt.Sprintf(`"matchConstraints":{"resourceRules":[{"apiGroups":[%q],"apiVersions":["*"],`+
		`"operations":["*"],"resources":%s}]}`, group, text)
}

// policy makes a ValidatingAdmissionPolicy and binds it; spec is the rest of the policy's, bound that of
// the binding's.
func (a *api) policy(name, spec, bound string) {
	a.t.Helper()
	a.want(201, "POST "+registration+"validatingadmissionpolicies", "",
		fmt.Sprintf(`{"metadata":{"name":%q},"spec":{%s}}`, name, spec))
	a.want(201, "POST "+registration+"validatingadmissionpolicybindings", "",
		fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"policyName":%[1]q,%s}}`, name, bound))
}

// mutation makes a MutatingAdmissionPolicy and binds it.
func (a *api) mutation(name, spec string) {
	a.t.Helper()
	a.want(201, "POST "+registration+"mutatingadmissionpolicies", "",
		fmt.Sprintf(`{"metadata":{"name":%q},"spec":{%s}}`, name, spec))
	a.want(201, "POST "+registration+"mutatingadmissionpolicybindings", "",
		fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"policyName":%[1]q}}`, name))
}

const deny, warns = `"validationActions":["Deny"]`, `"validationActions":["Warn","Audit"]`

func TestValidatingPolicy_Refuses(t *testing.T) {
	a := newAPI(t)
	a.policy("small", rulesFor("", "configmaps")+`,
		"variables":[{"name":"n","expression":"has(object.data) ? size(object.data) : 0"}],
		"matchConditions":[{"name":"not-free","expression":"!object.metadata.name.startsWith('free')"}],
		"validations":[
			{"expression":"variables.n <= 1","messageExpression":"'has ' + string(variables.n) + ' keys in ' + namespaceObject.metadata.name"},
			{"expression":"object.metadata.name != 'odd'","message":"no odd ones","reason":"Forbidden"}]`, deny)
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	got := a.want(422, "POST "+cms, "", `{"metadata":{"name":"b"},"data":{"k":"v","l":"w"}}`)
	const said = `configmaps "b" is forbidden: ValidatingAdmissionPolicy 'small' with binding 'small' denied request: has 2 keys in default`
	if got.str("message") != said || got.str("reason") != "Invalid" {
		t.Errorf("got %s (%s), want %s", got.str("message"), got.str("reason"), said)
	}
	got = a.want(403, "POST "+cms, "", `{"metadata":{"name":"odd"}}`)
	if !strings.HasSuffix(got.str("message"), "denied request: no odd ones") {
		t.Errorf("got %s", got.str("message"))
	}
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"free"},"data":{"k":"v","l":"w"}}`)
	a.want(422, "PATCH "+cms+"/a", merge, `{"data":{"l":"w"}}`)
	a.want(200, "DELETE "+registration+"validatingadmissionpolicybindings/small", "", "")
	a.want(200, "PATCH "+cms+"/a", merge, `{"data":{"l":"w"}}`)
}

func TestValidatingPolicy_ActionsAndMistakes(t *testing.T) {
	a := newAPI(t)
	a.policy("loud", rulesFor("", "configmaps")+`,"auditAnnotations":[{"key":"who","valueExpression":"request.userInfo.username"}],
		"validations":[{"expression":"false","message":"never"}]`, warns)
	got := a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"}}`)
	const said = "Validation failed for ValidatingAdmissionPolicy 'loud' with binding 'loud': never"
	if len(got.warnings) != 1 || !strings.Contains(got.warnings[0], said) {
		t.Errorf("warnings %q, want %s", got.warnings, said)
	}
	history := a.want(200, "GET /setpoint.dev/v1/history"+cms+"/a", "", "").text
	for _, want := range []string{`"loud/who":"admin"`, `validation.policy.admission.k8s.io/validation_failure`} {
		if !strings.Contains(history, want) {
			t.Errorf("the history says nothing of %s: %s", want, history)
		}
	}
	for policy, code := range map[string]int{"Fail": 422, "Ignore": 201} {
		name := strings.ToLower(policy)
		a.policy(name, rulesFor("", "secrets")+`,"failurePolicy":"`+policy+`",
			"matchConditions":[{"name":"mine","expression":"object.metadata.name == '`+name+`'"}],
			"validations":[{"expression":"object.data.nosuch == 'x'"}]`, deny)
		got := a.want(code, "POST /api/v1/namespaces/default/secrets", "", `{"metadata":{"name":"`+name+`"},"data":{"a":"eA=="}}`)
		if code == 422 && !strings.Contains(got.str("message"), "no such key: nosuch") {
			t.Errorf("got %s", got.str("message"))
		}
	}
}

func TestValidatingPolicy_Params(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"limits","labels":{"p":"q"}},"data":{"max":"2"}}`)
	spec := rulesFor("apps", "deployments", "deployments/scale") + `,"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},
		"validations":[{"expression":"params == null || object.spec.replicas <= int(params.data.max)"}]`
	a.policy("by-name", spec, deny+`,"paramRef":{"name":"limits","parameterNotFoundAction":"Deny"}`)
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	body := func(replicas int) string {
		return fmt.Sprintf(`{"metadata":{"name":"web"},"spec":{"replicas":%d,"selector":{"matchLabels":{"a":"b"}},`+
			`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, replicas)
	}
	got := a.want(422, "POST "+deployments, "", body(3))
	if !strings.Contains(got.str("message"), "failed expression: params == null") {
		t.Errorf("got %s", got.str("message"))
	}
	a.want(201, "POST "+deployments, "", body(2))
	a.want(422, "PATCH "+deployments+"/web/scale", merge, `{"spec":{"replicas":3}}`)
	a.want(200, "PATCH "+deployments+"/web/scale", merge, `{"spec":{"replicas":1}}`)
	a.want(200, "DELETE "+cms+"/limits", "", "")
	got = a.want(422, "PATCH "+deployments+"/web/scale", merge, `{"spec":{"replicas":2}}`)
	if !strings.Contains(got.str("message"), "no params found for policy binding with `Deny` parameterNotFoundAction") {
		t.Errorf("got %s", got.str("message"))
	}
}

func TestMutatingPolicy_Changes(t *testing.T) {
	a := newAPI(t)
	a.mutation("fields", rulesFor("", "configmaps")+`,"reinvocationPolicy":"IfNeeded","mutations":[
		{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":
			"Object{metadata: Object.metadata{labels: {'seen': string(has(object.data) ? size(object.data) : 0)}}}"}}]`)
	a.mutation("patch", rulesFor("", "configmaps")+`,"reinvocationPolicy":"Never","mutations":[
		{"patchType":"JSONPatch","jsonPatch":{"expression":
			"[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a.b'), value: 'x'}]"}}]`)
	got := a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	if tree.Str(got.body, "data", "a.b") != "x" {
		t.Errorf("the patch did nothing: %s", got.text)
	}
	// The first policy is called again, because the second changed what it had seen.
	if seen := got.str("metadata", "labels", "seen"); seen != "2" {
		t.Errorf("the first policy last saw %s keys, want 2", seen)
	}
	a.mutation("whole", rulesFor("", "pods")+`,"reinvocationPolicy":"Never","mutations":[
		{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":
			"Object{spec: Object.spec{nodeSelector: {'a': 'b'}}}"}}]`)
	refused := a.want(403, "POST /api/v1/namespaces/default/pods", "",
		`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	if !strings.Contains(refused.str("message"), "may not mutate atomic arrays, maps or structs: .spec.nodeSelector") {
		t.Errorf("got %s", refused.str("message"))
	}
}

// patches are mutations by expressions for JSON patches.
func patches(expressions ...string) string {
	all := make([]string, len(expressions))
	for i, e := range expressions {
		all[i] = fmt.Sprintf(`{"patchType":"JSONPatch","jsonPatch":{"expression":%q}}`, e)
	}
	return `,"mutations":[` + strings.Join(all, ",") + `]`
}

// A policy that wants to be called again sees what it made itself, too.
func TestMutatingPolicy_IsCalledAgainAfterItself(t *testing.T) {
	const more = "[JSONPatch{op: 'add', path: '/data/n', value: has(object.data.n) ? object.data.n + 'x' : 'x'}]"
	for policy, want := range map[string]string{"IfNeeded": "xx", "Never": "x"} {
		a := newAPI(t)
		a.mutation("more", rulesFor("", "configmaps")+`,"reinvocationPolicy":"`+policy+`"`+patches(more))
		got := a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
		if n := tree.Str(got.body, "data", "n"); n != want {
			t.Errorf("%s: n is %q, want %q", policy, n, want)
		}
	}
}

// A mutation that fails does not keep the next from being made.
func TestMutatingPolicy_MutationsFailByThemselves(t *testing.T) {
	spec := rulesFor("", "configmaps") + `,"reinvocationPolicy":"Never"` + patches(
		"[JSONPatch{op: 'remove', path: '/data/gone'}]", "[JSONPatch{op: 'add', path: '/data/s', value: 'p'}]",
		"[JSONPatch{op: 'move', from: '/data/gone', path: '/data/t'}]")
	a := newAPI(t)
	a.mutation("lenient", `"failurePolicy":"Ignore",`+spec)
	got := a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	if tree.Str(got.body, "data", "s") != "p" {
		t.Errorf("the second mutation was not made: %s", got.text)
	}
	a.mutation("strict", `"failurePolicy":"Fail",`+spec)
	got = a.want(403, "POST "+cms, "", `{"metadata":{"name":"b"},"data":{"k":"v"}}`)
	if causes := tree.List(got.body, "details", "causes"); len(causes) != 2 || got.str("reason") != "Invalid" {
		t.Errorf("want a cause for each mutation that failed: %s", got.text)
	}
}

// Who has parameters of a kind that is not known cannot be asked about any write.
func TestPolicies_ParamsOfNoKind(t *testing.T) {
	const nobody = `"metadata":{"name":"a"}}`
	spec := `"paramKind":{"apiVersion":"v1","kind":"Nosuch"},` + rulesFor("", "configmaps")
	const want = "denied request: failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nosuch'"

	a := newAPI(t)
	a.mutation("mutating", spec+`,"reinvocationPolicy":"Never"`+patches("[JSONPatch{op: 'add', path: '/data', value: {'a': 'b'}}]"))
	got := a.want(403, "POST "+cms, "", "{"+nobody)
	if got.str("message") != `policy "mutating" `+want || got.str("reason") != "Forbidden" {
		t.Errorf("got %s", got.text)
	}
	a = newAPI(t)
	a.policy("validating", spec+`,"validations":[{"expression":"true"}]`, deny)
	got = a.want(422, "POST "+cms, "", "{"+nobody)
	if !strings.HasSuffix(got.str("message"), "ValidatingAdmissionPolicy 'validating' "+want) {
		t.Errorf("got %s", got.text)
	}
}

// Whatever the way of a write, oldObject is what is stored.
func TestB151_AdmissionSeesTheStoredObject(t *testing.T) {
	a := newAPI(t)
	a.policy("kept", rulesFor("apps", "deployments", "deployments/status")+`,"validations":[{"expression":
		"oldObject == null || (has(oldObject.metadata.labels) ? oldObject.metadata.labels.l : '') == (has(object.metadata.labels) && 'l' in object.metadata.labels ? object.metadata.labels.l : '')",
		"message":"l is immutable"}]`, deny)
	a.policy("scaled", rulesFor("apps", "deployments/scale")+`,"validations":[{"expression":
		"object.spec.replicas <= oldObject.spec.replicas + 1","message":"one at a time"}]`, deny)
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	body := func(l string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"l":"` + l + `"}},` +
			`"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` +
			`"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	}
	const one = deployments + "/web"
	a.want(201, "PATCH "+one+"?fieldManager=m", apply, body("x"))
	for _, w := range []struct{ line, kind, body string }{
		{"PUT " + one, "", body("y")},
		{"PATCH " + one, merge, `{"metadata":{"labels":{"l":"y"}}}`},
		{"PATCH " + one, "application/strategic-merge-patch+json", `{"metadata":{"labels":{"l":"y"}}}`},
		{"PATCH " + one, "application/json-patch+json", `[{"op":"replace","path":"/metadata/labels/l","value":"y"}]`},
		{"PATCH " + one + "?fieldManager=m", apply, body("y")},
	} {
		if got := a.want(422, w.line, w.kind, w.body); !strings.Contains(got.str("message"), "l is immutable") {
			t.Errorf("%s %s: %s", w.line, w.kind, got.str("message"))
		}
	}
	a.want(200, "PATCH "+one+"/status", merge, `{"metadata":{"labels":{"l":"y"}},"status":{"replicas":1}}`)
	a.want(200, "PATCH "+one, merge, `{"spec":{"replicas":2}}`)
	a.want(422, "PATCH "+one+"/scale", merge, `{"spec":{"replicas":4}}`)
	a.want(422, "PUT "+one+"/scale", "", `{"metadata":{"name":"web"},"spec":{"replicas":4}}`)
	a.want(200, "PUT "+one+"/scale", "", `{"metadata":{"name":"web"},"spec":{"replicas":3}}`)
	if got := a.want(200, "GET "+one, "", ""); got.str("metadata", "labels", "l") != "x" {
		t.Errorf("the label is %s", got.str("metadata", "labels", "l"))
	}
}
