package schema_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

type object = map[string]any

func decode(t testing.TB, s *schema.Schema, body string) object {
	t.Helper()
	got, err := s.DecodeJSON([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return got.Object
}

func TestDefault_SetsWhatTheTypesDeclare(t *testing.T) {
	pod := schema.Builtin("io.k8s.api.core.v1.Pod")
	got := decode(t, pod, `{"spec":{
		"volumes":[{"name":"a","rbd":{"image":"i"}},{"name":"b"}],
		"containers":[{"name":"c","ports":[{"containerPort":1},{"containerPort":2,"protocol":"UDP"}]}]}}`)
	want := decode(t, pod, `{"spec":{
		"volumes":[{"name":"a","rbd":{"image":"i","pool":"rbd","user":"admin","keyring":"/etc/ceph/keyring"}},{"name":"b"}],
		"containers":[{"name":"c","ports":[{"containerPort":1,"protocol":"TCP"},{"containerPort":2,"protocol":"UDP"}]}]}}`)
	pod.Default(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWithDefaults(t *testing.T) {
	deployment := schema.Builtin("io.k8s.api.apps.v1.Deployment").WithDefaults(object{
		"spec.replicas": 1,
		"spec.template.spec.containers[*].terminationMessagePath": "/dev/termination-log",
		"spec.template.spec.containers[*].ports[*].protocol":      "SCTP", // before the type's own
		"spec.template.spec.securityContext":                      object{},
	}).WithDefaults(object{
		"spec.strategy.rollingUpdate.maxSurge": "25%",
	})
	got := decode(t, deployment, `{"spec":{"template":{"spec":{"containers":[
		{"name":"a","ports":[{"containerPort":1}]},{"name":"b","terminationMessagePath":"/x"}]}}}}`)
	want := decode(t, deployment, `{"spec":{"replicas":1,"template":{"spec":{"securityContext":{},"containers":[
		{"name":"a","ports":[{"containerPort":1,"protocol":"SCTP"}],"terminationMessagePath":"/dev/termination-log"},
		{"name":"b","terminationMessagePath":"/x"}]}}}}`)
	deployment.Default(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	t.Run("is not applied where the parent is missing, and is where it is there", func(t *testing.T) {
		got := decode(t, deployment, `{"spec":{"strategy":{"rollingUpdate":{}},"replicas":0}}`)
		deployment.Default(got)
		spec := got["spec"].(object)
		if diff := cmp.Diff(object{"rollingUpdate": object{"maxSurge": "25%"}}, spec["strategy"]); diff != "" {
			t.Error(diff)
		}
		if spec["replicas"] != int64(0) {
			t.Errorf("replicas: got %v, want the 0 that was given", spec["replicas"])
		}
	})
	t.Run("gives each object a value of its own", func(t *testing.T) {
		a, b := decode(t, deployment, `{}`), decode(t, deployment, `{}`)
		deployment.Default(a)
		deployment.Default(b)
		podSpec(a)["securityContext"].(object)["runAsUser"] = int64(1)
		if got := podSpec(b)["securityContext"].(object); len(got) > 0 {
			t.Errorf("a change of one object reached another: %v", got)
		}
	})
	t.Run("leaves the schema it came from alone", func(t *testing.T) {
		plain := schema.Builtin("io.k8s.api.apps.v1.Deployment")
		got := decode(t, plain, `{}`)
		plain.Default(got)
		if v, there := got["spec"].(object)["replicas"]; there {
			t.Errorf("replicas: %v", v)
		}
	})
}

func podSpec(deployment object) object {
	return deployment["spec"].(object)["template"].(object)["spec"].(object)
}

func TestWithDefaults_RefusesMistakes(t *testing.T) {
	for path, c := range map[string]struct {
		value any
		text  string
	}{
		"spec.nosuch":                         {"x", `no field "nosuch"`},
		"spec.replicas.x":                     {"x", `no field "x"`},
		"spec.template.spec.containers.image": {"x", `must be written "containers[*]"`},
		"spec.replicas":                       {"one", "cannot unmarshal string"},
		"spec.template.spec.securityContext":  {object{"nosuch": true}, "unknown field"},
		"":                                    {"x", "without a path"},
	} {
		t.Run(path, func(t *testing.T) {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, c.text) {
					t.Errorf("got %q, want it to say %q", got, c.text)
				}
			}()
			schema.Builtin("io.k8s.api.apps.v1.Deployment").WithDefaults(object{path: c.value})
			t.Error("no panic")
		})
	}
}
