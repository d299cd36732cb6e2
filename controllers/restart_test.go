package controllers_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/job"
	"github.com/setpoint-dev/setpoint/controllers/statefulset"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

// TestB078_RestartsMakeNoRevisions updates a set whose template has maps, amounts and defaults three times,
// and then starts its controller fifty times: neither revisions nor pods change.
func TestB078_RestartsMakeNoRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := setpointtest.Start(t, setpointtest.Nodes(1), setpointtest.Controllers("-statefulset"))
		trial := setpointtest.Trial{Setup: func(mgr *controller.Manager) error {
			return statefulset.Setup(mgr, statefulset.Options{})
		}}
		labels := map[string]string{"app": "db"}
		set := &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
			Spec: appsv1.StatefulSetSpec{
				Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"z": "1", "a": "2", "m": "3"}},
					Spec: corev1.PodSpec{
						Containers: []corev1.Container{{Name: "c", Image: "v0", Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{"cpu": resource.MustParse("0.1"), "memory": resource.MustParse("1024Ki")},
							Limits:   corev1.ResourceList{"memory": resource.MustParse("0.5Gi"), "cpu": resource.MustParse("1000m")},
						}}},
					},
				},
			},
		}
		stop := start(t, cp, trial, nil)
		if err := cp.Client.Create(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		over := func() bool {
			s := set.Status
			return s.ObservedGeneration == set.Generation && s.AvailableReplicas == 2 && s.UpdatedReplicas == 2 &&
				s.CurrentRevision == s.UpdateRevision
		}
		cp.Await(set, "it runs", over)
		for i := range 3 {
			set.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("v", i+1)
			if err := cp.Client.Update(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			cp.Await(set, "it is rolled out", over)
		}
		stop()
		before := uids(t, cp)
		if len(before) != 4+2 {
			t.Fatalf("there are %q, want four revisions and two pods", before)
		}
		for range 50 {
			stop := start(t, cp, trial, nil)
			<-time.After(time.Minute)
			synctest.Wait()
			stop()
		}
		if d := cmp.Diff(before, uids(t, cp)); d != "" {
			t.Errorf("revisions and pods after fifty restarts (-want +got):\n%s", d)
		}
		if err := cp.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil || !over() {
			t.Errorf("error %v, status %+v", err, set.Status)
		}
	})
}

// uids are those of all pods and revisions.
func uids(t *testing.T, cp *setpointtest.ControlPlane) (all []string) {
	t.Helper()
	var revisions appsv1.ControllerRevisionList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&revisions, &pods} {
		if err := cp.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range revisions.Items {
		all = append(all, "revision "+o.Name+" "+string(o.UID))
	}
	for _, o := range pods.Items {
		all = append(all, "pod "+o.Name+" "+string(o.UID))
	}
	slices.Sort(all)
	return all
}

// lasting is a job whose pods do not end by themselves.
func lasting(seconds int64) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j"},
		Spec: batchv1.JobSpec{
			ActiveDeadlineSeconds: &seconds,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			}},
		},
	}
}

// awaitDeadline waits until the job has failed for its deadline, and returns how long it ran.
func awaitDeadline(cp *setpointtest.ControlPlane, j *batchv1.Job) time.Duration {
	var failed metav1.Time
	cp.Await(j, "it is past its deadline", func() bool {
		for _, c := range j.Status.Conditions {
			if c.Type == batchv1.JobFailureTarget && c.Status == corev1.ConditionTrue && c.Reason == "DeadlineExceeded" {
				failed = c.LastTransitionTime
			}
		}
		return !failed.IsZero()
	})
	return failed.Sub(j.Status.StartTime.Time)
}

// TestB090_JobMadeAgainHasItsOwnDeadline deletes a job that runs and makes another of its name.
func TestB090_JobMadeAgainHasItsOwnDeadline(t *testing.T) {
	for _, again := range []int64{20, 50} {
		synctest.Test(t, func(t *testing.T) {
			cp := setpointtest.Start(t, setpointtest.Nodes(1))
			first, second := lasting(60), lasting(again)
			if err := cp.Client.Create(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			<-time.After(30 * time.Second)
			if err := cp.Client.Delete(t.Context(), first, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
				t.Fatal(err)
			}
			if err := cp.Client.Create(t.Context(), second); err != nil {
				t.Fatal(err)
			}
			if ran := awaitDeadline(cp, second); ran < time.Duration(again)*time.Second || ran > time.Duration(again+1)*time.Second {
				t.Errorf("the second job ran for %s, want %d s", ran, again)
			}
		})
	}
}

// TestB091_DeadlineIsWhatTheJobSays changes a deadline while the job runs, and starts the controller anew.
func TestB091_DeadlineIsWhatTheJobSays(t *testing.T) {
	for _, c := range []struct{ first, then int64 }{{600, 60}, {60, 80}, {60, 60}} {
		synctest.Test(t, func(t *testing.T) {
			cp := setpointtest.Start(t, setpointtest.Nodes(1), setpointtest.Controllers("-job"))
			trial := setpointtest.Trial{Setup: func(mgr *controller.Manager) error { return job.Setup(mgr, job.Options{}) }}
			stop := start(t, cp, trial, nil)
			j := lasting(c.first)
			if err := cp.Client.Create(t.Context(), j); err != nil {
				t.Fatal(err)
			}
			<-time.After(20 * time.Second)
			synctest.Wait()
			stop()
			stop = start(t, cp, trial, nil)
			defer func() { stop() }()
			<-time.After(20 * time.Second)
			if err := cp.Client.Get(t.Context(), client.ObjectKeyFromObject(j), j); err != nil {
				t.Fatal(err)
			}
			j.Spec.ActiveDeadlineSeconds = &c.then
			if err := cp.Client.Update(t.Context(), j); err != nil {
				t.Fatal(err)
			}
			want := time.Duration(c.then) * time.Second
			if ran := awaitDeadline(cp, j); ran < want || ran > want+time.Second {
				t.Errorf("%d s, then %d s: it ran for %s", c.first, c.then, ran)
			}
		})
	}
}
