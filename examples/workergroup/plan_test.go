package workergroup_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/examples/workergroup"
)

// worker makes a pod in a state: "ready", "started", "scheduled", "existing", "going" or "failed".
func worker(name, state string) *corev1.Pod {
	w := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	switch state {
	case "ready":
		w.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		fallthrough
	case "started":
		w.Status.Phase = corev1.PodRunning
		fallthrough
	case "scheduled":
		w.Spec.NodeName = "n1"
	case "going":
		w.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	case "failed":
		w.Status.Phase = corev1.PodFailed
	}
	return w
}

func names(pods []*corev1.Pod) (all []string) {
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return all
}

// TestPlan looks at what is missing and what is too much.
func TestPlan(t *testing.T) {
	type pods = map[string]string
	for name, test := range map[string]struct {
		replicas       int32
		workers        pods
		create, delete []string
	}{
		"nothing yet":             {2, pods{}, []string{"web-0", "web-1"}, nil},
		"five desired, three":     {5, pods{"web-0": "ready", "web-2": "ready", "web-4": "existing"}, []string{"web-1", "web-3"}, nil},
		"as it should be":         {2, pods{"web-0": "ready", "web-1": "existing"}, nil, nil},
		"too many":                {1, pods{"web-0": "ready", "web-1": "ready", "web-2": "ready"}, nil, []string{"web-1", "web-2"}},
		"too many, one going":     {1, pods{"web-0": "ready", "web-1": "going"}, nil, nil},
		"a name that is not free": {2, pods{"web-0": "ready", "web-1": "going"}, nil, nil},
		"one has failed":          {2, pods{"web-0": "ready", "web-1": "failed"}, nil, []string{"web-1"}},
		"none any more":           {0, pods{"web-0": "ready"}, nil, []string{"web-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			var workers []*corev1.Pod
			for name, state := range test.workers {
				workers = append(workers, worker(name, state))
			}
			plan := workergroup.MakePlan(group(test.replicas), workers)
			if diff := cmp.Diff(test.create, names(plan.Create)); diff != "" {
				t.Errorf("create (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.delete, names(plan.Delete)); diff != "" {
				t.Errorf("delete (-want +got):\n%s", diff)
			}
		})
	}
}

// TestObserve counts each milestone.
func TestObserve(t *testing.T) {
	var workers []*corev1.Pod
	for _, state := range []string{"existing", "scheduled", "started", "ready", "ready", "going", "failed"} {
		workers = append(workers, worker(state, state))
	}
	want := workergroup.Status{Existing: 5, Scheduled: 4, Started: 3, Ready: 2}
	if diff := cmp.Diff(want, workergroup.Observe(group(5), workers)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}
