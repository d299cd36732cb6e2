package cronjob_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/cronjob"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "c"}
)

// world is a CronJob that runs every five minutes, and the controller, stepped by hand.
type world struct {
	*testing.T
	client   *controllertest.Client
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	r        *cronjob.Reconciler
}

func newWorld(t *testing.T, change func(*batchv1.CronJobSpec)) *world {
	t.Helper()
	cron := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "c", UID: "cron", CreationTimestamp: metav1.NewTime(controllertest.Start),
		},
		Spec: batchv1.CronJobSpec{
			Schedule: "*/5 * * * *", ConcurrencyPolicy: batchv1.AllowConcurrent,
			SuccessfulJobsHistoryLimit: ptr.To[int32](3), FailedJobsHistoryLimit: ptr.To[int32](1),
			JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}},
		},
	}
	change(&cron.Spec)
	clock := controllertest.NewClock()
	c := controllertest.NewClient(t, clock, []controllertest.Index{
		{Object: &batchv1.Job{}, Field: cache.ControllerField, Func: cache.ControllerUID},
	}, cron, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "x"}})
	recorder := events.NewFakeRecorder(10000)
	return &world{t, c, clock, recorder, cronjob.NewReconciler(c, c, clock, recorder)}
}

func (w *world) pass() reconcile.Result {
	w.Helper()
	result, err := w.r.Reconcile(ctx, reconcile.Request{NamespacedName: key})
	if err != nil {
		w.Fatalf("pass: %v", err)
	}
	return result
}

// until makes passes when the controller asks for them, for a while.
func (w *world) until(d time.Duration) {
	w.Helper()
	for end := w.clock.Now().Add(d); ; {
		wait := w.pass().RequeueAfter
		if wait == 0 || w.clock.Now().Add(wait).After(end) {
			w.clock.SetTime(end)
			w.pass()
			return
		}
		w.clock.Step(wait)
	}
}

func (w *world) cron() *batchv1.CronJob {
	w.Helper()
	var cron batchv1.CronJob
	if err := w.client.Get(ctx, key, &cron); err != nil {
		w.Fatal(err)
	}
	return &cron
}

func (w *world) change(change func(*batchv1.CronJobSpec)) {
	w.Helper()
	cron := w.cron()
	change(&cron.Spec)
	if err := w.client.Update(ctx, cron); err != nil {
		w.Fatal(err)
	}
	w.client.Writes()
}

func (w *world) jobs() []batchv1.Job {
	w.Helper()
	var list batchv1.JobList
	if err := w.client.List(ctx, &list, client.InNamespace("ns")); err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// end lets all Jobs that run end.
func (w *world) end(kind batchv1.JobConditionType) {
	w.Helper()
	for _, job := range w.jobs() {
		if len(job.Status.Conditions) > 0 {
			continue
		}
		job.Status.StartTime = &job.CreationTimestamp
		job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue}}
		if kind == batchv1.JobComplete {
			job.Status.CompletionTime = ptr.To(metav1.NewTime(w.clock.Now()))
		}
		if err := w.client.Status().Update(ctx, &job); err != nil {
			w.Fatal(err)
		}
	}
}

// runs returns when the runs that there are were due, by the hour and minute.
func (w *world) runs() (due []string) {
	w.Helper()
	for _, job := range w.jobs() {
		at, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		if err != nil {
			w.Fatal(err)
		}
		if want := fmt.Sprintf("c-%d", at.Unix()/60); job.Name != want {
			w.Errorf("the job of %v is called %s, want %s", at, job.Name, want)
		}
		due = append(due, at.Format("15:04"))
	}
	slices.Sort(due)
	return due
}

func (w *world) expect(what string, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.runs()); diff != "" {
		w.Errorf("%s: runs (-want +got):\n%s", what, diff)
	}
}

// told returns the reasons of the events since the last call.
func (w *world) told() (reasons []string) {
	for {
		select {
		case e := <-w.recorder.Events:
			reasons = append(reasons, strings.Fields(e)[1])
		default:
			return reasons
		}
	}
}

// TestRunsWhenDue starts at 03:04:05.
func TestRunsWhenDue(t *testing.T) {
	w := newWorld(t, func(*batchv1.CronJobSpec) {})
	if wait := w.pass().RequeueAfter; wait != 55*time.Second {
		t.Errorf("waits %v, want 55s", wait)
	}
	w.expect("before")
	w.until(10 * time.Minute)
	w.expect("after ten minutes", "03:05", "03:10")
	s := w.cron().Status
	if len(s.Active) != 2 || s.LastScheduleTime.UTC().Format("15:04:05") != "03:10:00" {
		t.Errorf("status: %+v, want two active, the last scheduled at 03:10", s)
	}
	w.end(batchv1.JobComplete)
	w.pass()
	s = w.cron().Status
	if len(s.Active) != 0 || s.LastSuccessfulTime == nil || !s.LastSuccessfulTime.Time.Equal(w.clock.Now()) {
		t.Errorf("status: %+v, want none active and the last success now", s)
	}
	if diff := cmp.Diff([]string{"SuccessfulCreate", "SuccessfulCreate", "SawCompletedJob", "SawCompletedJob"}, w.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	w.client.Writes()
	w.pass()
	if writes := w.client.Writes(); len(writes) > 0 {
		t.Errorf("nothing has changed, wrote %v", writes)
	}
	job := w.jobs()[0]
	if job.Labels["a"] != "b" || !metav1.IsControlledBy(&job, w.cron()) {
		t.Errorf("the job is %+v", job.ObjectMeta)
	}
}

func TestSuspendedStartsNothingAndMakesUpForTheLast(t *testing.T) {
	w := newWorld(t, func(s *batchv1.CronJobSpec) { s.Suspend = ptr.To(true) })
	w.until(time.Hour)
	w.expect("suspended")
	w.change(func(s *batchv1.CronJobSpec) { s.Suspend = nil })
	w.pass()
	w.expect("resumed", "04:00")
}

func TestRunsAtTheSameTime(t *testing.T) {
	for policy, want := range map[batchv1.ConcurrencyPolicy][]string{
		batchv1.AllowConcurrent:   {"03:05", "03:10", "03:15"},
		batchv1.ForbidConcurrent:  {"03:05"},
		batchv1.ReplaceConcurrent: {"03:15"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t, func(s *batchv1.CronJobSpec) { s.ConcurrencyPolicy = policy })
			w.until(12 * time.Minute)
			w.expect("meanwhile", want...)
			if n := len(w.cron().Status.Active); n != len(want) {
				t.Errorf("%d active, want %d", n, len(want))
			}
			if policy == batchv1.ForbidConcurrent {
				w.end(batchv1.JobComplete)
				w.pass()
				w.expect("as soon as the first has ended", "03:05", "03:15")
			}
		})
	}
}

func TestTooLateIsNotStarted(t *testing.T) {
	for deadline, want := range map[int64][]string{30: nil, 90: {"03:10"}, 1 << 62: {"03:10"}} {
		w := newWorld(t, func(s *batchv1.CronJobSpec) { s.StartingDeadlineSeconds = &deadline })
		w.clock.SetTime(controllertest.Start.Add(6*time.Minute + 55*time.Second)) // 03:11
		w.pass()
		w.expect(fmt.Sprint(deadline, " s"), want...)
	}
}

// TestManyMissedRuns has the controller be away for a year.
func TestManyMissedRuns(t *testing.T) {
	for schedule, want := range map[string]string{
		"*/5 * * * *": "03:00", "30 2 * * *": "02:30", "0 0 1 * *": "00:00", "@every 2m": "03:04",
	} {
		w := newWorld(t, func(s *batchv1.CronJobSpec) { s.Schedule = schedule })
		w.clock.SetTime(controllertest.Start.Add(365 * 24 * time.Hour))
		w.pass()
		w.expect(schedule, want)
		few := schedule == "0 0 1 * *"
		if told := slices.Contains(w.told(), "TooManyMissedTimes"); told == few {
			t.Errorf("%s: that runs were missed is told: %v", schedule, told)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	w := newWorld(t, func(*batchv1.CronJobSpec) {})
	for i := range 8 {
		w.until(5 * time.Minute)
		w.end([]batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed}[i%2])
	}
	w.pass()
	w.expect("three that succeeded and one that failed", "03:15", "03:25", "03:35", "03:40")
}

// TestB093_TerminatingJobIsNotDeletedAgain has a Job that is kept by a finalizer be one too many.
func TestB093_TerminatingJobIsNotDeletedAgain(t *testing.T) {
	w := newWorld(t, func(s *batchv1.CronJobSpec) { s.SuccessfulJobsHistoryLimit = ptr.To[int32](0) })
	w.until(time.Minute)
	job := w.jobs()[0]
	job.Finalizers = []string{"orphan"}
	if err := w.client.Update(ctx, &job); err != nil {
		t.Fatal(err)
	}
	w.end(batchv1.JobComplete)
	w.client.Writes()
	w.pass()
	w.pass()
	w.pass()
	deletes := slices.DeleteFunc(w.client.Writes(), func(s string) bool { return !strings.HasPrefix(s, "delete") })
	if len(deletes) != 1 {
		t.Errorf("deleted %d times, want once", len(deletes))
	}
}

// TestB095_ShortDeadlineMissesNothing runs once a day for a year, with ten seconds to start in.
func TestB095_ShortDeadlineMissesNothing(t *testing.T) {
	w := newWorld(t, func(s *batchv1.CronJobSpec) {
		s.Schedule, s.StartingDeadlineSeconds = "0 12 * * *", ptr.To[int64](10)
	})
	created := 0
	w.client.After = func(verb string, object client.Object) error {
		if _, ok := object.(*batchv1.Job); ok && verb == "create" {
			created++
		}
		return nil
	}
	for range 365 {
		w.until(24 * time.Hour)
		w.end(batchv1.JobComplete)
	}
	if created != 365 {
		t.Errorf("%d runs in 365 days", created)
	}
}

// TestB096_ClocksGoForthAndBack asks when runs are due in Berlin in 2030: on March 31 there is no 02:30,
// and on October 27 there are two.
func TestB096_ClocksGoForthAndBack(t *testing.T) {
	for _, c := range []struct {
		schedule, from string
		want           []string
	}{
		{"30 2 * * *", "2030-03-30T12:00:00Z", []string{"04-01T02:30:00+02:00", "04-02T02:30:00+02:00"}},
		{"30 2 * * *", "2030-10-26T12:00:00Z", []string{"10-27T02:30:00+02:00", "10-28T02:30:00+01:00"}},
		{"0 */2 * * *", "2030-10-26T23:30:00Z", []string{"10-27T02:00:00+02:00", "10-27T04:00:00+01:00"}},
		{"30 * * * *", "2030-10-27T00:00:00Z", []string{"10-27T02:30:00+02:00", "10-27T02:30:00+01:00", "10-27T03:30:00+01:00"}},
		{"@every 90m", "2030-10-27T00:00:00Z", []string{"10-27T02:30:00+01:00", "10-27T04:00:00+01:00"}},
	} {
		from, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		cron := &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Name: "c", CreationTimestamp: metav1.NewTime(from)},
			Spec:       batchv1.CronJobSpec{Schedule: c.schedule, TimeZone: ptr.To("Europe/Berlin")},
		}
		now := from
		var got []string
		for range c.want {
			act := cronjob.Plan(cronjob.Snapshot{CronJob: cron, Now: now})
			now = now.Add(act.Wait)
			due := cronjob.Plan(cronjob.Snapshot{CronJob: cron, Now: now})
			at := due.Start.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
			got = append(got, strings.TrimPrefix(at, "2030-"))
			cron.Status.LastScheduleTime = ptr.To(metav1.NewTime(now))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s from %s (-want +got):\n%s", c.schedule, c.from, diff)
		}
	}
}

func TestUnreadableScheduleIsTold(t *testing.T) {
	for want, change := range map[string]func(*batchv1.CronJobSpec){
		"UnparseableSchedule": func(s *batchv1.CronJobSpec) { s.Schedule = "61 * * * *" },
		"UnknownTimeZone":     func(s *batchv1.CronJobSpec) { s.TimeZone = ptr.To("Europe/Nowhere") },
	} {
		w := newWorld(t, change)
		if wait := w.pass().RequeueAfter; wait != 0 {
			t.Errorf("%s: waits %v, want never", want, wait)
		}
		if diff := cmp.Diff([]string{want}, w.told()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	}
	w := newWorld(t, func(s *batchv1.CronJobSpec) { s.Schedule = "TZ=" })
	w.pass()
	w = newWorld(t, func(s *batchv1.CronJobSpec) { s.Schedule = "0 0 30 2 *" })
	if wait := w.pass().RequeueAfter; wait != 0 {
		t.Errorf("on February 30: waits %v, want never", wait)
	}
}

// TestLostAnswerStartsNoSecondRun loses the answer of a create, and then of the status.
func TestLostAnswerStartsNoSecondRun(t *testing.T) {
	for _, lost := range []string{"create", "status"} {
		w := newWorld(t, func(*batchv1.CronJobSpec) {})
		w.clock.Step(time.Minute)
		fail := true
		w.client.After = func(verb string, _ client.Object) error {
			if verb == lost && fail {
				fail = false
				return apierrors.NewInternalError(fmt.Errorf("the answer was lost"))
			}
			return nil
		}
		if _, err := w.r.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err == nil {
			t.Fatalf("%s: no error", lost)
		}
		w.pass()
		w.expect(lost, "03:05")
		if s := w.cron().Status; len(s.Active) != 1 || s.LastScheduleTime == nil {
			t.Errorf("%s: status %+v, want one active", lost, s)
		}
	}
}

// TestNamesakeOfSomebodyElseIsLeftAlone has the name of the next run be taken.
func TestNamesakeOfSomebodyElseIsLeftAlone(t *testing.T) {
	w := newWorld(t, func(*batchv1.CronJobSpec) {})
	w.clock.Step(time.Minute)
	taken := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: fmt.Sprintf("c-%d", w.clock.Now().Truncate(5*time.Minute).Unix()/60),
	}}
	if err := w.client.Create(ctx, taken); err != nil {
		t.Fatal(err)
	}
	if wait := w.pass().RequeueAfter; wait == 0 || len(w.cron().Status.Active) != 0 {
		t.Errorf("waits %v with %v active, want until the next run, and none", wait, w.cron().Status.Active)
	}
	if diff := cmp.Diff([]string{"FailedCreate"}, w.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestMissingJobIsForgotten deletes a Job that runs, behind the controller's back.
func TestMissingJobIsForgotten(t *testing.T) {
	w := newWorld(t, func(*batchv1.CronJobSpec) {})
	w.until(time.Minute)
	job := w.jobs()[0]
	if err := w.client.Delete(ctx, &job); err != nil {
		t.Fatal(err)
	}
	w.told()
	w.pass()
	if n := len(w.cron().Status.Active); n != 0 {
		t.Errorf("%d active, want none", n)
	}
	if diff := cmp.Diff([]string{"MissingJob"}, w.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
