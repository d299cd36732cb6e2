package job_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// indexedJob has so many indexes, all run at once.
func indexedJob(n int32, change func(*batchv1.JobSpec)) func(*batchv1.JobSpec) {
	return func(s *batchv1.JobSpec) {
		s.Completions, s.Parallelism, s.CompletionMode = &n, &n, ptr.To(batchv1.IndexedCompletion)
		s.BackoffLimit = ptr.To[int32](1 << 30)
		change(s)
	}
}

// running returns the indexes of the pods that have not ended, each with how often its index has failed.
func (w *world) running() (list []string) {
	for _, pod := range w.pods() {
		list = append(list, fmt.Sprintf("%s after %s", pod.Annotations[batchv1.JobCompletionIndexAnnotation],
			pod.Annotations[batchv1.JobIndexFailureCountAnnotation]))
	}
	slices.Sort(list)
	return list
}

// endIndex lets the pod of an index end, with an exit code.
func (w *world) endIndex(index string, code int32) {
	w.Helper()
	for _, pod := range w.pods() {
		if pod.Annotations[batchv1.JobCompletionIndexAnnotation] == index {
			w.end(pod, code)
			return
		}
	}
	w.Fatalf("no pod of index %s", index)
}

func (w *world) expectRunning(what string, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.running()); diff != "" {
		w.Errorf("%s: indexes that run (-want +got):\n%s", what, diff)
	}
}

// TestIndexFailsByItself has index 0 fail twice, which is once too often, and the others go on.
func TestIndexFailsByItself(t *testing.T) {
	w := newWorld(t, indexedJob(3, func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex = ptr.To[int32](1) }))
	w.settle()
	w.expectRunning("at first", "0 after 0", "1 after 0", "2 after 0")
	w.endIndex("0", 1)
	if wait := w.settle().RequeueAfter; wait != 10*time.Second {
		t.Errorf("waits %v before index 0 is tried again, want 10s", wait)
	}
	w.expectRunning("meanwhile", "1 after 0", "2 after 0")
	w.clock.Step(10 * time.Second)
	w.settle()
	w.expectRunning("later", "0 after 1", "1 after 0", "2 after 0")
	w.is("active 3, succeeded 0, failed 1")
	w.endIndex("0", 1)
	w.endIndex("1", 0)
	w.settle()
	if s := w.job().Status; ptr.Deref(s.FailedIndexes, "") != "0" || s.CompletedIndexes != "1" {
		t.Errorf("failed %q and completed %q, want 0 and 1", ptr.Deref(s.FailedIndexes, ""), s.CompletedIndexes)
	}
	w.clock.Step(time.Hour)
	w.settle()
	w.expectRunning("for good", "2 after 0")
	w.endIndex("2", 0)
	w.settle()
	w.is("active 0, succeeded 2, failed 2, FailureTarget: FailedIndexes, Failed: FailedIndexes")
}

// TestFailedPodWaitsForTheNext has a failed pod be deleted before its index is tried again: that it has
// failed is not forgotten.
func TestFailedPodWaitsForTheNext(t *testing.T) {
	w := newWorld(t, indexedJob(1, func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex = ptr.To[int32](2) }))
	w.settle()
	pod := w.pods()[0]
	w.endIndex("0", 1)
	w.settle()
	if err := w.client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(ctx, pod); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.clock.Step(time.Minute)
	w.settle()
	w.expectRunning("after the pause", "0 after 1")
	w.is("active 1, succeeded 0, failed 1")
}

func TestTooManyFailedIndexes(t *testing.T) {
	w := newWorld(t, indexedJob(5, func(s *batchv1.JobSpec) {
		s.BackoffLimitPerIndex, s.MaxFailedIndexes = ptr.To[int32](0), ptr.To[int32](1)
	}))
	w.settle()
	w.endIndex("3", 1)
	w.settle()
	w.is("active 4, succeeded 0, failed 1")
	w.endIndex("1", 1)
	w.settle()
	w.is("active 0, succeeded 0, failed 5, FailureTarget: MaxFailedIndexesExceeded, Failed: MaxFailedIndexesExceeded")
}

// TestRuleGivesUpAnIndex has exit code 42 give up the index, and a disruption not count.
func TestRuleGivesUpAnIndex(t *testing.T) {
	w := newWorld(t, indexedJob(2, func(s *batchv1.JobSpec) {
		s.BackoffLimitPerIndex = ptr.To[int32](5)
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			{Action: batchv1.PodFailurePolicyActionFailIndex, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42},
			}},
			{Action: batchv1.PodFailurePolicyActionIgnore, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{143},
			}},
		}}
	}))
	w.settle()
	w.endIndex("0", 42)
	w.endIndex("1", 143)
	w.settle()
	w.clock.Step(time.Minute)
	w.settle()
	w.expectRunning("then", "1 after 0")
	if pod := w.pods()[0]; pod.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] != "1" {
		t.Errorf("annotations %v, want one failure that does not count", pod.Annotations)
	}
	w.is("active 1, succeeded 0, failed 1")
}

func TestSuccessPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		rule batchv1.SuccessPolicyRule
		ends []string
	}{
		"indexes":          {batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("0,2-3")}, []string{"2", "0", "3"}},
		"a count":          {batchv1.SuccessPolicyRule{SucceededCount: ptr.To[int32](2)}, []string{"4", "1"}},
		"a count of these": {batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("0-2"), SucceededCount: ptr.To[int32](2)}, []string{"4", "1", "2"}},
	} {
		w := newWorld(t, indexedJob(5, func(s *batchv1.JobSpec) {
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{
				{SucceededIndexes: ptr.To("0-4")}, c.rule,
			}}
		}))
		w.settle()
		for i, index := range c.ends {
			if met := slices.ContainsFunc(w.job().Status.Conditions, func(c batchv1.JobCondition) bool {
				return c.Type == batchv1.JobSuccessCriteriaMet
			}); met {
				t.Errorf("%s: met after %v", name, c.ends[:i])
			}
			w.endIndex(index, 0)
			w.settle()
		}
		s := w.job().Status
		if len(s.Conditions) == 0 || s.Conditions[0].Reason != batchv1.JobReasonSuccessPolicy || s.Conditions[0].Message != "Matched rules at index 1" {
			t.Errorf("%s: conditions %+v, want that rule 1 is met", name, s.Conditions)
		}
		if s.Active != 0 || len(w.pods()) != 0 {
			t.Errorf("%s: %d active, %d pods; want that the others are ended", name, s.Active, len(w.pods()))
		}
		if err := w.client.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace("ns")); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if s := w.job().Status; s.CompletionTime == nil {
			t.Errorf("%s: not complete when all pods have ended: %+v", name, s.Conditions)
		}
	}
}
