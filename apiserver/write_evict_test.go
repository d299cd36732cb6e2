package apiserver_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"

const (
	mergePatch = "application/merge-patch+json"
	running    = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
)

// runningPods makes pods that are ready, p0 and so on, on a node, so that they have a grace period.
func runningPods(a *api, n int) {
	for i := range n {
		a.want(201, "POST "+pods, "", fmt.Sprintf(
			`{"metadata":{"name":"p%d","labels":{"app":"web"}},"spec":{"nodeName":"n","containers":[{"name":"c","image":"x"}]}}`, i))
		a.want(200, fmt.Sprintf("PATCH %s/p%d/status", pods, i), mergePatch, running)
	}
}

func evict(a *api, pod, query string) answer {
	return a.do("POST "+pods+"/"+pod+"/eviction"+query, "", `{"metadata":{"name":"`+pod+`"}}`)
}

// TestEvictionSpendsTheBudget evicts eight pods at once, of which the budget allows three.
func TestEvictionSpendsTheBudget(t *testing.T) {
	a := newAPI(t)
	runningPods(a, 8)
	a.want(201, "POST "+budgets, "", `{"metadata":{"name":"b"},"spec":{"minAvailable":5,"selector":{"matchLabels":{"app":"web"}}}}`)
	if got := evict(a, "p0", ""); got.code != 429 {
		t.Errorf("before the budget is counted: %d, want 429", got.code)
	}
	a.want(200, "PATCH "+budgets+"/b/status", mergePatch,
		`{"status":{"observedGeneration":1,"disruptionsAllowed":3,"currentHealthy":8,"desiredHealthy":5,"expectedPods":8}}`)
	if got := evict(a, "p0", "?dryRun=All"); got.code != 201 {
		t.Errorf("dry run: %d, want 201", got.code)
	}
	codes := make([]int, 8)
	var all sync.WaitGroup
	for i := range codes {
		all.Go(func() { codes[i] = evict(a, fmt.Sprint("p", i), "").code })
	}
	all.Wait()
	count := map[int]int{}
	for _, code := range codes {
		count[code]++
	}
	if count[201] != 3 || count[429] != 5 {
		t.Errorf("answers: %v, want 201 three times and 429 five times", count)
	}
	b := a.do("GET "+budgets+"/b", "", "").body
	noted := tree.Map(b, "status", "disruptedPods")
	if tree.Int(b, "status", "disruptionsAllowed") != 0 || len(noted) != 3 {
		t.Errorf("status: %v, want that nothing is left and three are noted", b["status"])
	}
	allowed := tree.Find(tree.List(b, "status", "conditions"), "type", "DisruptionAllowed")
	if tree.Str(allowed, "status") != "False" {
		t.Errorf("condition: %v, want that no disruption is allowed", allowed)
	}
	for i, code := range codes {
		pod := a.do(fmt.Sprintf("GET %s/p%d", pods, i), "", "").body
		target := tree.Find(tree.List(pod, "status", "conditions"), "type", "DisruptionTarget")
		if evicted := code == 201; tree.Has(pod, "metadata", "deletionTimestamp") != evicted || (target != nil) != evicted {
			t.Errorf("p%d was answered %d; deleted at %v, condition %v", i, code, tree.Get(pod, "metadata", "deletionTimestamp"), target)
		}
	}
	for i, code := range codes {
		if code == 201 {
			if got := evict(a, fmt.Sprint("p", i), ""); got.code != 201 {
				t.Errorf("a pod that is going is evicted again: %d, want 201, for nothing", got.code)
			}
			break
		}
	}
}

// TestEvictionSaysWhyNot is refused for want of a healthy pod, and because two budgets cover it.
func TestEvictionSaysWhyNot(t *testing.T) {
	a := newAPI(t)
	runningPods(a, 1)
	a.want(201, "POST "+budgets, "", `{"metadata":{"name":"b"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}}`)
	a.want(200, "PATCH "+budgets+"/b/status", mergePatch,
		`{"status":{"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}}`)
	got := evict(a, "p0", "")
	cause := tree.Find(tree.List(got.body, "details", "causes"), "reason", "DisruptionBudget")
	want := "The disruption budget b needs 1 healthy pods and has 1 currently"
	if got.code != 429 || tree.Str(cause, "message") != want {
		t.Errorf("%d %s, want 429 with the cause %q", got.code, got.text, want)
	}
	a.want(201, "POST "+budgets, "", `{"metadata":{"name":"all"},"spec":{"minAvailable":1,"selector":{}}}`)
	if got := evict(a, "p0", ""); got.code != 500 {
		t.Errorf("with two budgets: %d, want 500", got.code)
	}
	a.want(404, "POST "+pods+"/none/eviction", "", `{"metadata":{"name":"none"}}`)
}
