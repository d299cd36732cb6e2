package apiserver_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/admission"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const quotas = "/api/v1/namespaces/default/resourcequotas"

func (a *api) quota(name, hard string) {
	a.t.Helper()
	a.want(201, "POST "+quotas, "", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{%s}}`, name, hard))
}

// used is what the status of a quota says of a resource: "used/hard".
func (a *api) used(quota, resource string) string {
	a.t.Helper()
	got := a.want(200, "GET "+quotas+"/"+quota, "", "")
	return tree.Str(got.body, "status", "used", resource) + "/" + tree.Str(got.body, "status", "hard", resource)
}

func (a *api) wantUsed(quota, resource, want string) {
	a.t.Helper()
	if got := a.used(quota, resource); got != want {
		a.t.Errorf("used of %s in %s: %s, want %s", resource, quota, got, want)
	}
}

func quotaPod(name, more string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"i",
		"resources":{"requests":{"cpu":"500m","memory":"1Gi"},"limits":{"cpu":"1","memory":"2Gi"}}}]%s}}`, name, more)
}

func TestQuota_CountsWithEveryWrite(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+pods, "", quotaPod("before", ""))
	a.quota("q", `"hard":{"pods":"3","requests.cpu":"1500m","limits.memory":"5Gi","count/configmaps":"2"}`)
	a.wantUsed("q", "pods", "1/3")
	a.wantUsed("q", "requests.cpu", "500m/1500m")
	a.want(201, "POST "+pods, "", quotaPod("a", ""))
	a.wantUsed("q", "requests.cpu", "1/1500m")
	got := a.want(403, "POST "+pods, "", quotaPod("b", ""))
	const said = `pods "b" is forbidden: exceeded quota: q, requested: limits.memory=2Gi, used: limits.memory=4Gi, limited: limits.memory=5Gi`
	if got.str("message") != said {
		t.Errorf("got %s, want %s", got.str("message"), said)
	}
	a.want(200, "PATCH "+pods+"/before/status", merge, `{"status":{"phase":"Succeeded"}}`)
	a.wantUsed("q", "pods", "1/3")
	a.want(201, "POST "+pods, "", quotaPod("b", ""))
	a.want(200, "DELETE "+pods+"/before", "", `{"gracePeriodSeconds":0}`)
	a.want(200, "DELETE "+pods+"/a", "", `{"gracePeriodSeconds":0}`)
	a.wantUsed("q", "pods", "1/3")
	a.wantUsed("q", "requests.cpu", "500m/1500m")
	got = a.want(403, "POST "+pods, "", `{"metadata":{"name":"c"},"spec":{"containers":[{"name":"x","image":"i"}]}}`)
	if !strings.HasSuffix(got.str("message"), "failed quota: q: must specify limits.memory for: x; requests.cpu for: x") {
		t.Errorf("got %s", got.str("message"))
	}
	// What is limited later is counted then.
	a.want(200, "PATCH "+quotas+"/q", merge, `{"spec":{"hard":{"secrets":"1","count/configmaps":null}}}`)
	a.wantUsed("q", "secrets", "0/1")
	a.wantUsed("q", "count/configmaps", "/")
}

func TestQuota_Scopes(t *testing.T) {
	a := newAPI(t)
	a.quota("ending", `"hard":{"pods":"1"},"scopes":["Terminating"]`)
	a.quota("rest", `"hard":{"pods":"5"},"scopes":["NotTerminating"]`)
	a.quota("critical", `"hard":{"pods":"1"},"scopeSelector":{"matchExpressions":[
		{"scopeName":"PriorityClass","operator":"In","values":["system-node-critical"]}]}`)
	a.want(201, "POST "+pods, "", quotaPod("a", `,"activeDeadlineSeconds":10`))
	a.want(403, "POST "+pods, "", quotaPod("b", `,"activeDeadlineSeconds":10`))
	a.want(201, "POST "+pods, "", quotaPod("b", `,"priorityClassName":"system-node-critical"`))
	a.want(403, "POST "+pods, "", quotaPod("c", `,"priorityClassName":"system-node-critical"`))
	a.wantUsed("ending", "pods", "1/1")
	a.wantUsed("rest", "pods", "1/5")
	a.wantUsed("critical", "pods", "1/1")
}

// A create that comes to nothing, for whatever reason, uses nothing and moves no allocator.
func TestB160_FailedCreatesUseNothing(t *testing.T) {
	a := newAPI(t, func(o *apiserver.Options) {
		o.Validators = append(o.Validators, validator(func(a *admission.Attributes) error {
			if strings.HasPrefix(a.Name, "refused") {
				return fmt.Errorf("no")
			}
			return nil
		}))
	})
	a.quota("q", `"hard":{"services":"5","services.nodeports":"2"}`)
	const spec = `"spec":{"type":"NodePort","ports":[{"port":80}]}`
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"a"},`+spec+`}`)
	before := a.store.Revision()
	for i := range 1000 {
		switch i % 5 {
		case 0:
			a.want(409, "POST "+svcs, "", `{"metadata":{"name":"a"},`+spec+`}`)
		case 1:
			a.want(403, "POST "+svcs, "", `{"metadata":{"name":"b"},"spec":{"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81}]}}`)
		case 2:
			a.want(422, "POST "+svcs, "", `{"metadata":{"name":"-"},`+spec+`}`)
		case 3:
			a.want(201, "POST "+svcs+"?dryRun=All", "", `{"metadata":{"name":"b"},`+spec+`}`)
		case 4:
			a.want(500, "POST "+svcs, "", `{"metadata":{"name":"refused"},`+spec+`}`)
		}
	}
	if now := a.store.Revision(); now != before {
		t.Errorf("the store went from %d to %d", before, now)
	}
	a.wantUsed("q", "services", "2/5") // with the API's own
	a.wantUsed("q", "services.nodeports", "1/2")
}

// Many who want the last of a quota get exactly that, through two servers on one store; and what is
// over a lowered limit does not stop those who use nothing of it.
func TestB161_QuotaChargesWhatIsAsked(t *testing.T) {
	all, _ := newAPIs(t, 2)
	all[0].quota("q", `"hard":{"count/configmaps":"10"}`)
	var made atomic.Int32
	together(all, 40, 25, func(a *api, n int) {
		switch got := a.do("POST "+cms, "", fmt.Sprintf(`{"metadata":{"name":"c-%d"}}`, n)); got.code {
		case 201:
			made.Add(1)
		case 403:
		default:
			t.Errorf("got %d: %s", got.code, got.text)
		}
	})
	if made.Load() != 10 {
		t.Errorf("made %d, want 10", made.Load())
	}
	all[1].wantUsed("q", "count/configmaps", "10/10")

	a := all[1]
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"ports"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
	a.quota("low", `"hard":{"services":"5","services.nodeports":"0"}`)
	a.wantUsed("low", "services.nodeports", "1/0")
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"none"},"spec":{"ports":[{"port":80}]}}`)
	a.want(403, "POST "+svcs, "", `{"metadata":{"name":"more"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
}

// A quota that is made while objects are made counts them all.
func TestQuota_MadeWhileObjectsAreMade(t *testing.T) {
	all, _ := newAPIs(t, 2)
	var made atomic.Int32
	together(all, 40, 8, func(a *api, n int) {
		if n == 11 {
			a.expect(201, "POST "+quotas, `{"metadata":{"name":"q"},"spec":{"hard":{"count/configmaps":"1000"}}}`)
		}
		a.expect(201, "POST "+cms, fmt.Sprintf(`{"metadata":{"name":"c-%d"}}`, n))
		made.Add(1)
	})
	all[0].wantUsed("q", "count/configmaps", fmt.Sprintf("%d/1k", made.Load()))
}
