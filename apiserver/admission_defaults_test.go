package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func (a *api) limits(name, limits string) {
	a.t.Helper()
	a.want(201, "POST /api/v1/namespaces/default/limitranges", "",
		fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"limits":[%s]}}`, name, limits))
}

func TestLimitRange_DefaultsAndBounds(t *testing.T) {
	a := newAPI(t)
	a.limits("l", `{"type":"Container","min":{"cpu":"100m"},"max":{"cpu":"2"},"default":{"cpu":"1"},
		"defaultRequest":{"cpu":"500m"},"maxLimitRequestRatio":{"cpu":"4"}},
		{"type":"Pod","max":{"cpu":"3"}},{"type":"PersistentVolumeClaim","max":{"storage":"2Gi"}}`)
	got := a.want(201, "POST "+pods, "", `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	c := tree.List(got.body, "spec", "containers")[0].(map[string]any)
	if tree.Str(c, "resources", "requests", "cpu") != "500m" || tree.Str(c, "resources", "limits", "cpu") != "1" {
		t.Errorf("resources %v", c["resources"])
	}
	const set = "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
	if said := tree.Str(got.body, "metadata", "annotations", "kubernetes.io/limit-ranger"); said != set {
		t.Errorf("annotation %q, want %q", said, set)
	}
	body := func(request, limit string, n int) string {
		one := fmt.Sprintf(`"image":"i","resources":{"requests":{"cpu":%q},"limits":{"cpu":%q}}}`, request, limit)
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"name":"c%d",%s`, i, one))
		}
		return `{"metadata":{"name":"b"},"spec":{"containers":[` + strings.Join(all, ",") + `]}}`
	}
	for said, body := range map[string]string{
		"minimum cpu usage per Container is 100m, but request is 50m":                        body("50m", "200m", 1),
		"maximum cpu usage per Container is 2, but limit is 2500m":                           body("2", "2500m", 1),
		"maximum cpu usage per Pod is 3, but limit is 4":                                     body("1", "2", 2),
		"cpu max limit to request ratio per Container is 4, but provided ratio is 10.000000": body("100m", "1", 1),
	} {
		if got := a.want(403, "POST "+pods, "", body); !strings.Contains(got.str("message"), `pods "b" is forbidden: `) ||
			!strings.Contains(got.str("message"), said) {
			t.Errorf("got %s, want %s", got.str("message"), said)
		}
	}
	got = a.want(403, "POST /api/v1/namespaces/default/persistentvolumeclaims", "", claimOf("3Gi"))
	const over = `persistentvolumeclaims "c" is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi`
	if got.str("message") != over {
		t.Errorf("got %s, want %s", got.str("message"), over)
	}
}

func claimOf(storage string) string {
	return `{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"` + storage + `"}}}}`
}

func TestDefaults_ComeFromClasses(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST /apis/storage.k8s.io/v1/storageclasses", "", `{"metadata":{"name":"fast",
		"annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"example.com/p"}`)
	a.want(201, "POST /apis/scheduling.k8s.io/v1/priorityclasses", "", `{"metadata":{"name":"usual"},"value":7,"globalDefault":true}`)
	a.want(201, "POST /apis/node.k8s.io/v1/runtimeclasses", "", `{"metadata":{"name":"vm"},"handler":"vm",
		"overhead":{"podFixed":{"memory":"64Mi"}},"scheduling":{"nodeSelector":{"vm":"yes"}}}`)
	claim := a.want(201, "POST /api/v1/namespaces/default/persistentvolumeclaims", "", claimOf("1Gi"))
	if class := claim.str("spec", "storageClassName"); class != "fast" {
		t.Errorf("the claim's class is %q", class)
	}
	const volume = `{"metadata":{"name":"v","finalizers":["example.com/own"]},"spec":{"capacity":{"storage":"1Gi"},
		"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/v"}}}`
	made := a.want(201, "POST /api/v1/persistentvolumes", "", volume)
	for want, obj := range map[string]map[string]any{
		"[kubernetes.io/pvc-protection]": claim.body, "[example.com/own kubernetes.io/pv-protection]": made.body,
	} {
		if got := fmt.Sprint(tree.Strings(obj, "metadata", "finalizers")); got != want {
			t.Errorf("finalizers %s, want %s", got, want)
		}
	}
	p := a.want(201, "POST "+pods, "", quotaPod("a", `,"runtimeClassName":"vm"`))
	if p.str("spec", "priorityClassName") != "usual" || fmt.Sprint(tree.Get(p.body, "spec", "priority")) != "7" ||
		p.str("spec", "overhead", "memory") != "64Mi" || p.str("spec", "nodeSelector", "vm") != "yes" {
		t.Errorf("got %s", p.text)
	}
	for said, more := range map[string]string{
		`pod rejected: RuntimeClass "nosuch" not found`:                                   `,"runtimeClassName":"nosuch"`,
		"pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead":      `,"runtimeClassName":"vm","overhead":{"memory":"1Mi"}`,
		"pod rejected: Pod Overhead set without corresponding RuntimeClass defined":       `,"overhead":{"memory":"1Mi"}`,
		"conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector": `,"runtimeClassName":"vm","nodeSelector":{"vm":"no"}`,
	} {
		if got := a.want(403, "POST "+pods, "", quotaPod("b", more)); !strings.Contains(got.str("message"), said) {
			t.Errorf("got %s, want %s", got.str("message"), said)
		}
	}
}
