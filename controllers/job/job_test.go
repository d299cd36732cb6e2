package job_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/job"
)

var ctx = context.Background()

// world is a Job, its pods and the controller, stepped by hand.
type world struct {
	*testing.T
	client *controllertest.Client
	clock  *clocktesting.FakeClock
	r      *job.Reconciler
}

func newWorld(t *testing.T, change func(*batchv1.JobSpec)) *world {
	t.Helper()
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "ns", UID: "job"},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To[int32](1), Completions: ptr.To[int32](1), BackoffLimit: ptr.To[int32](6),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": "j"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"job": "j"}},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "x"}}},
			},
		},
	}
	change(&j.Spec)
	clock := controllertest.NewClock()
	c := controllertest.NewClient(t, clock, nil, j)
	return &world{t, c, clock, job.NewReconciler(c, c, clock, events.NewFakeRecorder(1000))}
}

func (w *world) pass() reconcile.Result {
	w.Helper()
	result, err := w.r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "j"}})
	if err != nil {
		w.Fatalf("pass: %v", err)
	}
	return result
}

// settle makes passes until one writes nothing.
func (w *world) settle() reconcile.Result {
	w.Helper()
	for range 20 {
		w.client.Writes()
		result := w.pass()
		if len(w.client.Writes()) == 0 {
			return result
		}
	}
	w.Fatal("the controller goes on writing")
	return reconcile.Result{}
}

func (w *world) job() *batchv1.Job {
	w.Helper()
	var j batchv1.Job
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "j"}, &j); err != nil {
		w.Fatal(err)
	}
	return &j
}

func (w *world) update(change func(*batchv1.Job)) {
	w.Helper()
	j := w.job()
	change(j)
	if err := w.client.Update(ctx, j); err != nil {
		w.Fatal(err)
	}
}

// pods returns those that have not ended, by name.
func (w *world) pods() (active []*corev1.Pod) {
	w.Helper()
	var list corev1.PodList
	if err := w.client.List(ctx, &list); err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			active = append(active, p)
		}
	}
	return active
}

// end lets a pod end, with an exit code.
func (w *world) end(pod *corev1.Pod, code int32) {
	w.Helper()
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(w.clock.Now())},
	}}}
	if err := w.client.Status().Update(ctx, pod); err != nil {
		w.Fatal(err)
	}
}

// is compares what the status says: counts, and the conditions that are true with their reasons.
func (w *world) is(want string) {
	w.Helper()
	s := w.job().Status
	got := fmt.Sprintf("active %d, succeeded %d, failed %d", s.Active, s.Succeeded, s.Failed)
	for _, c := range s.Conditions {
		if c.Status == corev1.ConditionTrue {
			got += fmt.Sprintf(", %s: %s", c.Type, c.Reason)
		}
	}
	if got != want {
		w.Errorf("the status is\n  %s\nwant\n  %s", got, want)
	}
}

const complete = ", SuccessCriteriaMet: CompletionsReached, Complete: CompletionsReached"

func TestRunsToCompletion(t *testing.T) {
	w := newWorld(t, func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = ptr.To[int32](3), ptr.To[int32](2) })
	w.settle()
	w.is("active 2, succeeded 0, failed 0")
	for _, pod := range w.pods() {
		w.end(pod, 0)
	}
	w.settle()
	w.is("active 1, succeeded 2, failed 0")
	w.clock.Step(time.Minute)
	w.end(w.pods()[0], 0)
	w.settle()
	w.is("active 0, succeeded 3, failed 0" + complete)
	s := w.job().Status
	if s.StartTime == nil || s.CompletionTime.Sub(s.StartTime.Time) != time.Minute {
		t.Errorf("it ran from %v to %v", s.StartTime, s.CompletionTime)
	}
}

// TestCountsEachEndOnce deletes pods as soon as they have ended, and loses answers on the way.
func TestCountsEachEndOnce(t *testing.T) {
	const n = 20
	rnd := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex // guards rnd: pods are made and deleted side by side
	w := newWorld(t, func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = ptr.To[int32](n), ptr.To[int32](4) })
	w.client.After = func(string, client.Object) error {
		mu.Lock()
		defer mu.Unlock()
		if rnd.IntN(4) == 0 {
			return apierrors.NewInternalError(fmt.Errorf("the answer was lost"))
		}
		return nil
	}
	ended := 0
	for i := 0; i < 1000 && w.job().Status.CompletionTime == nil; i++ {
		_, _ = w.r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "j"}})
		lost := w.client.After
		w.client.After = nil
		if pods := w.pods(); len(pods) > 0 && rnd.IntN(2) == 0 {
			w.end(pods[rnd.IntN(len(pods))], 0)
			ended++
		}
		var list corev1.PodList
		if err := w.client.List(ctx, &list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.Status.Phase == corev1.PodSucceeded && rnd.IntN(2) == 0 {
				_ = w.client.Delete(ctx, p)
			}
		}
		w.client.After = lost
	}
	if s := w.job().Status; int(s.Succeeded) != ended || s.CompletionTime == nil {
		t.Errorf("%d pods ended, %d are counted, done at %v", ended, s.Succeeded, s.CompletionTime)
	}
}

func TestFailsWhenPodsFailTooOften(t *testing.T) {
	w := newWorld(t, func(s *batchv1.JobSpec) { s.BackoffLimit = ptr.To[int32](1) })
	w.settle()
	w.end(w.pods()[0], 1)
	if wait := w.settle().RequeueAfter; wait != 10*time.Second || len(w.pods()) != 0 {
		t.Errorf("a failed pod is replaced after %v, and there are %d", wait, len(w.pods()))
	}
	w.clock.Step(10 * time.Second)
	w.settle()
	w.end(w.pods()[0], 1)
	w.settle()
	w.is("active 0, succeeded 0, failed 2, FailureTarget: BackoffLimitExceeded, Failed: BackoffLimitExceeded")
}

// TestB086_ExactlyAsManyFailuresAsAreAllowed has all pods fail, the controller's process be a new one at each
// pass, and now and then a pod succeed: what counts is how many pods have failed.
func TestB086_ExactlyAsManyFailuresAsAreAllowed(t *testing.T) {
	for _, c := range []struct{ limit, parallelism, least, most int32 }{
		{10, 1, 11, 11}, {6, 1, 7, 7}, {1, 1, 2, 2}, {0, 1, 1, 1}, {4, 3, 5, 7},
	} {
		t.Run(fmt.Sprintf("limit %d, %d at once", c.limit, c.parallelism), func(t *testing.T) {
			w := newWorld(t, func(s *batchv1.JobSpec) {
				s.BackoffLimit, s.Parallelism, s.Completions = &c.limit, &c.parallelism, ptr.To[int32](100)
			})
			failed, succeeded := int32(0), int32(0)
			for i := 0; i < 200 && len(w.job().Status.Conditions) == 0; i++ {
				w.r = job.NewReconciler(w.client, w.client, w.clock, events.NewFakeRecorder(1000))
				wait := w.pass().RequeueAfter
				for _, pod := range w.pods() {
					if i%5 == 4 {
						w.end(pod, 0)
						succeeded++
						continue
					}
					w.end(pod, 1)
					failed++
				}
				w.clock.Step(wait)
			}
			w.settle()
			if failed < c.least || failed > c.most {
				t.Errorf("%d pods failed, want %d to %d", failed, c.least, c.most)
			}
			w.is(fmt.Sprintf("active 0, succeeded %d, failed %d", succeeded, failed) +
				", FailureTarget: BackoffLimitExceeded, Failed: BackoffLimitExceeded")
		})
	}
}

// TestB088_EndIsCountedOnceWhateverIsSeen has the process die between the status that notes an ended pod and
// the removal of the pod's finalizer, and the pod then be seen to have ended otherwise.
func TestB088_EndIsCountedOnceWhateverIsSeen(t *testing.T) {
	w := newWorld(t, func(s *batchv1.JobSpec) { s.Completions, s.BackoffLimit = ptr.To[int32](2), ptr.To[int32](3) })
	w.settle()
	pod := w.pods()[0]
	w.end(pod, 0)
	w.client.Before = func(verb string, o client.Object) error {
		if _, ok := o.(*corev1.Pod); ok && verb != "create" {
			return apierrors.NewInternalError(errors.New("the process died"))
		}
		return nil
	}
	_, err := w.r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "j"}})
	if err == nil || len(w.job().Status.UncountedTerminatedPods.Succeeded) != 1 {
		t.Fatalf("error %v, %+v; want the pod noted, and its finalizer there", err, w.job().Status)
	}
	w.client.Before = nil
	for _, code := range []int32{1, 0, 1} {
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		w.end(pod, code)
		w.r = job.NewReconciler(w.client, w.client, w.clock, events.NewFakeRecorder(1000))
		w.settle()
		w.is("active 1, succeeded 1, failed 0")
		if u := w.job().Status.UncountedTerminatedPods; u != nil && len(u.Succeeded)+len(u.Failed) > 0 {
			t.Errorf("waiting to be counted: %+v", u)
		}
	}
}

func TestStopsAtItsDeadline(t *testing.T) {
	w := newWorld(t, func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = ptr.To[int64](30) })
	if wait := w.settle().RequeueAfter; wait != 30*time.Second {
		t.Errorf("it looks again after %v", wait)
	}
	w.clock.Step(30 * time.Second)
	w.settle()
	w.is("active 0, succeeded 0, failed 1, FailureTarget: DeadlineExceeded, Failed: DeadlineExceeded")
	if pods := w.pods(); len(pods) != 0 {
		t.Errorf("%d pods still run", len(pods))
	}
}

func TestSuspendsAndResumes(t *testing.T) {
	w := newWorld(t, func(s *batchv1.JobSpec) { s.Parallelism, s.Completions = ptr.To[int32](2), ptr.To[int32](2) })
	w.settle()
	w.update(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) })
	w.settle()
	w.is("active 0, succeeded 0, failed 0, Suspended: JobSuspended")
	w.clock.Step(time.Hour)
	w.update(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(false) })
	w.settle()
	w.is("active 2, succeeded 0, failed 0")
	if start := w.job().Status.StartTime; !start.Time.Equal(w.clock.Now()) {
		t.Errorf("it runs since %v, want since it was resumed", start)
	}
}

func TestIndexes(t *testing.T) {
	w := newWorld(t, func(s *batchv1.JobSpec) {
		s.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		s.Completions, s.Parallelism = ptr.To[int32](4), ptr.To[int32](3)
	})
	w.settle()
	index := func(p *corev1.Pod) string { return p.Annotations[batchv1.JobCompletionIndexAnnotation] }
	var got []string
	for _, p := range w.pods() {
		got = append(got, index(p)+" "+p.Spec.Hostname+" "+p.Spec.Containers[0].Env[0].Name)
		switch index(p) {
		case "0", "2":
			w.end(p, 0)
		}
	}
	slices.Sort(got)
	if d := cmp.Diff([]string{"0 j-0 JOB_COMPLETION_INDEX", "1 j-1 JOB_COMPLETION_INDEX", "2 j-2 JOB_COMPLETION_INDEX"}, got); d != "" {
		t.Error(d)
	}
	w.settle()
	if s := w.job().Status; s.CompletedIndexes != "0,2" || s.Succeeded != 2 {
		t.Errorf("%d are done, %q", s.Succeeded, s.CompletedIndexes)
	}
	for _, p := range w.pods() {
		w.end(p, 0)
	}
	w.settle()
	if s := w.job().Status; s.CompletedIndexes != "0-3" {
		t.Errorf("done are %q", s.CompletedIndexes)
	}
	w.is("active 0, succeeded 4, failed 0" + complete)
}

func TestFailurePolicy(t *testing.T) {
	policy := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{Action: batchv1.PodFailurePolicyActionIgnore, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{3},
		}},
		{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: batchv1.PodFailurePolicyOnExitCodesOpNotIn, Values: []int32{1},
		}},
	}}
	for code, want := range map[int32]string{
		1: "active 0, succeeded 0, failed 1",
		3: "active 0, succeeded 0, failed 0",
		4: "active 0, succeeded 0, failed 1, FailureTarget: PodFailurePolicy, Failed: PodFailurePolicy",
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			w := newWorld(t, func(s *batchv1.JobSpec) { s.PodFailurePolicy = policy })
			w.settle()
			w.end(w.pods()[0], code)
			w.settle()
			w.is(want)
		})
	}
}

func TestScalesDown(t *testing.T) {
	w := newWorld(t, func(s *batchv1.JobSpec) { s.Parallelism, s.Completions = ptr.To[int32](3), nil })
	w.settle()
	w.update(func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](1) })
	w.settle()
	w.is("active 1, succeeded 0, failed 0")
	w.end(w.pods()[0], 0)
	w.settle()
	w.is("active 0, succeeded 1, failed 0" + complete)
}

func TestExpires(t *testing.T) {
	w := newWorld(t, func(s *batchv1.JobSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](60) })
	w.settle()
	w.end(w.pods()[0], 0)
	if wait := w.settle().RequeueAfter; wait != time.Minute {
		t.Errorf("it is kept for %v", wait)
	}
	w.clock.Step(time.Minute)
	w.pass()
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "j"}, &batchv1.Job{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestLetsGoOfPodsWhoseJobIsGone(t *testing.T) {
	w := newWorld(t, func(*batchv1.JobSpec) {})
	w.settle()
	if err := w.client.Delete(ctx, w.job()); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if pods := w.pods(); len(pods) != 1 || len(pods[0].Finalizers) != 0 {
		t.Errorf("pods are held: %v", pods)
	}
}

func TestLeavesWhatAnotherManages(t *testing.T) {
	w := newWorld(t, func(s *batchv1.JobSpec) { s.ManagedBy = ptr.To("example.com/x") })
	w.settle()
	if pods := w.pods(); len(pods) != 0 {
		t.Errorf("it made %d pods", len(pods))
	}
}

// TestSpans compares a set of indexes with a map, and reads its text back.
func TestSpans(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var s job.Spans
		model := map[int]bool{}
		for range rnd.IntN(60) {
			n := rnd.IntN(40)
			s.Add(n)
			model[n] = true
		}
		if s.Size() != len(model) {
			t.Fatalf("%v has %d, want %d", s, s.Size(), len(model))
		}
		for n := range 41 {
			if s.Has(n) != model[n] {
				t.Fatalf("%v has %d: %t", s, n, s.Has(n))
			}
		}
	}
}
