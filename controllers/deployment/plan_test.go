package deployment_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/deployment"
)

// world is a deployment, its sets and the time. Its sets' pods become available when told to.
type world struct {
	d    *appsv1.Deployment
	sets []*appsv1.ReplicaSet
	now  time.Time
	last deployment.Actions
}

func newWorld(replicas int32, surge, unavailable string) *world {
	labels := map[string]string{"app": "web"}
	return &world{now: controllertest.Start, d: &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "deployment", Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxSurge: ptr.To(intstr.Parse(surge)), MaxUnavailable: ptr.To(intstr.Parse(unavailable)),
				},
			},
			RevisionHistoryLimit:    ptr.To(int32(10)),
			ProgressDeadlineSeconds: ptr.To(int32(600)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
			},
		},
	}}
}

// pass plans once and does what was planned, and says whether that was anything.
func (w *world) pass(pods ...*corev1.Pod) bool {
	act := deployment.Plan(deployment.Snapshot{
		Deployment: w.d, Sets: w.sets, Pods: pods, Now: w.now,
		Hash: deployment.HashTemplate(&w.d.Spec.Template, w.d.Status.CollisionCount),
	})
	w.last = act
	changed := !cmp.Equal(w.d.Status, act.Status) || act.Create != nil || len(act.Update)+len(act.Remove) > 0 ||
		act.Revision != w.d.Annotations["deployment.kubernetes.io/revision"]
	if act.Create != nil {
		set := act.Create.DeepCopy()
		set.UID, set.CreationTimestamp, set.Generation = types.UID(set.Name), metav1.NewTime(w.now), 1
		w.sets = append(w.sets, set)
	}
	for _, c := range act.Update {
		set := c.To.DeepCopy()
		if *set.Spec.Replicas != *c.From.Spec.Replicas {
			set.Generation++
		}
		w.sets[slices.Index(w.sets, c.From)] = set
	}
	for _, set := range act.Remove {
		w.sets = slices.DeleteFunc(w.sets, func(s *appsv1.ReplicaSet) bool { return s == set })
	}
	w.d.Status = act.Status
	metav1.SetMetaDataAnnotation(&w.d.ObjectMeta, "deployment.kubernetes.io/revision", act.Revision)
	w.now = w.now.Add(time.Second)
	return changed
}

// run has every set do as told, its pods available at once, until a pass changes nothing.
func (w *world) run(t *testing.T) {
	t.Helper()
	for range 200 {
		changed := w.pass()
		for i := range w.sets {
			changed = w.serve(i, *w.sets[i].Spec.Replicas) || changed
		}
		if !changed {
			return
		}
	}
	t.Fatalf("no fixed point: the last pass planned %d updates, status %+v", len(w.last.Update), w.last.Status)
}

// serve has a set's controller report its pods, so many of them available.
func (w *world) serve(i int, available int32) bool {
	set := w.sets[i].DeepCopy()
	n := *set.Spec.Replicas
	set.Status = appsv1.ReplicaSetStatus{
		Replicas: n, FullyLabeledReplicas: n, ReadyReplicas: min(n, available), AvailableReplicas: min(n, available),
		ObservedGeneration: set.Generation, TerminatingReplicas: ptr.To(int32(0)),
	}
	changed := !cmp.Equal(set.Status, w.sets[i].Status)
	w.sets[i] = set
	return changed
}

func (w *world) setImage(image string) {
	w.d = w.d.DeepCopy()
	w.d.Spec.Template.Spec.Containers[0].Image = image
	w.d.Generation++
}

func (w *world) set(image string) *appsv1.ReplicaSet {
	for _, set := range w.sets {
		if set.Spec.Template.Spec.Containers[0].Image == image {
			return set
		}
	}
	return nil
}

func (w *world) progressing() appsv1.DeploymentCondition {
	for _, c := range w.d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing {
			return c
		}
	}
	return appsv1.DeploymentCondition{}
}

func (w *world) sizes() string {
	var texts []string
	for _, set := range w.sets {
		texts = append(texts, fmt.Sprintf("%s:%d", set.Spec.Template.Spec.Containers[0].Image, *set.Spec.Replicas))
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

func revision(set *appsv1.ReplicaSet) string {
	return set.Annotations["deployment.kubernetes.io/revision"]
}

func TestFirstRolloutEndsAvailable(t *testing.T) {
	w := newWorld(3, "25%", "25%")
	w.d.Annotations = map[string]string{"note": "x", corev1.LastAppliedConfigAnnotation: "{}"}
	w.run(t)
	if got, want := w.sizes(), "v1:3"; got != want {
		t.Errorf("sets %q, want %q", got, want)
	}
	want := map[string]string{
		"note": "x", "deployment.kubernetes.io/revision": "1",
		"deployment.kubernetes.io/desired-replicas": "3", "deployment.kubernetes.io/max-replicas": "4",
	}
	if diff := cmp.Diff(want, w.sets[0].Annotations); diff != "" {
		t.Errorf("the set's annotations (-want +got):\n%s", diff)
	}
	if c := w.progressing(); c.Reason != "NewReplicaSetAvailable" || c.Status != corev1.ConditionTrue {
		t.Errorf("Progressing is %s/%s, want True/NewReplicaSetAvailable", c.Status, c.Reason)
	}
	var types []appsv1.DeploymentConditionType
	for _, c := range w.d.Status.Conditions {
		types = append(types, c.Type)
	}
	if diff := cmp.Diff([]appsv1.DeploymentConditionType{"Available", "Progressing"}, types); diff != "" {
		t.Errorf("conditions in order (-want +got):\n%s", diff)
	}
}

// TestRollingUpdateKeepsItsBounds rolls deployments of random size and bounds, with pods that become
// available in random order, and checks the bounds after every pass.
func TestRollingUpdateKeepsItsBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 120 {
		replicas := int32(1 + random.IntN(12))
		surge, unavailable := random.IntN(4), random.IntN(4)
		if surge+unavailable == 0 {
			surge = 1
		}
		w := newWorld(replicas, fmt.Sprint(surge), fmt.Sprint(unavailable))
		w.run(t)
		w.setImage("v2")
		floor := max(0, replicas-int32(unavailable))
		for steps := 0; ; steps++ {
			if steps > 500 {
				t.Fatalf("replicas %d surge %d unavailable %d: the rollout does not end: %s", replicas, surge, unavailable, w.sizes())
			}
			w.pass()
			var total, available int32
			for _, set := range w.sets {
				total += *set.Spec.Replicas
				available += min(*set.Spec.Replicas, set.Status.AvailableReplicas)
			}
			if total > replicas+int32(surge) || available < floor {
				t.Fatalf("replicas %d surge %d unavailable %d: %d pods, %d available (%s)", replicas, surge, unavailable, total, available, w.sizes())
			}
			done := true
			for i, set := range w.sets {
				want := *set.Spec.Replicas
				was := min(want, set.Status.AvailableReplicas)
				w.serve(i, was+int32(random.IntN(int(want-was)+1)))
				done = done && w.sets[i].Status.AvailableReplicas == want
			}
			if done && w.sizes() == fmt.Sprintf("v1:0 v2:%d", replicas) {
				break
			}
		}
		w.run(t)
	}
}

// TestFlippedTemplateKeepsItsFloor changes the template to and fro in the middle of rollouts, with
// sets whose status tells what was before they acted, as a set's controller writes it, and late.
func TestFlippedTemplateKeepsItsFloor(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		replicas, unavailable := int32(2+random.IntN(5)), int32(random.IntN(2))
		w := newWorld(replicas, fmt.Sprint(1-unavailable+int32(random.IntN(2))), fmt.Sprint(unavailable))
		w.run(t)
		pods := map[types.UID]int32{w.sets[0].UID: replicas} // available in truth
		for step := range 150 {
			if random.IntN(8) == 0 {
				w.setImage(fmt.Sprint("v", 1+random.IntN(3)))
			}
			w.pass()
			for i, set := range w.sets {
				switch random.IntN(3) {
				case 0: // the controller counts, acts, and tells what it counted
					w.serve(i, 0)
					w.sets[i].Status.AvailableReplicas = pods[set.UID]
					pods[set.UID] = min(pods[set.UID], *set.Spec.Replicas)
				case 1: // one more of its pods becomes available, if it made one
					made := set.Status.ObservedGeneration == set.Generation
					if made && pods[set.UID] < *set.Spec.Replicas {
						pods[set.UID]++
					}
				}
			}
			var total int32
			for _, n := range pods {
				total += n
			}
			if floor := replicas - unavailable; total < floor {
				t.Fatalf("step %d: %d pods of %d are available, %d may be missing (%s)",
					step, total, replicas, unavailable, w.sizes())
			}
		}
	}
}

func TestBoundsRoundAsKubernetesDoes(t *testing.T) {
	for _, c := range []struct {
		replicas           int32
		surge, unavailable string
		first              string // sizes after the first pass of a rollout
	}{
		{10, "25%", "25%", "v1:8 v2:3"},
		{10, "30%", "0", "v1:10 v2:3"},
		{1, "0", "1%", "v1:0 v2:0"}, // both come to nothing: one may be unavailable
		{3, "100%", "0", "v1:3 v2:3"},
	} {
		w := newWorld(c.replicas, c.surge, c.unavailable)
		w.run(t)
		w.setImage("v2")
		w.pass()
		if got := w.sizes(); got != c.first {
			t.Errorf("%d replicas, surge %s, unavailable %s: %q, want %q", c.replicas, c.surge, c.unavailable, got, c.first)
		}
	}
}

func TestSickOldPodsGoFirst(t *testing.T) {
	w := newWorld(4, "0", "1")
	w.run(t)
	w.serve(0, 2) // two old pods are unavailable: below the floor already
	w.setImage("v2")
	w.pass()
	if got, want := w.sizes(), "v1:3 v2:0"; got != want {
		t.Errorf("sets %q, want %q: a sick pod may go, a healthy one may not", got, want)
	}
}

func TestB068_DeletingDeploymentWritesOnlyItsStatus(t *testing.T) {
	w := newWorld(3, "1", "1")
	w.run(t)
	w.setImage("v2")
	w.d.DeletionTimestamp = ptr.To(metav1.NewTime(w.now))
	w.pass()
	if act := w.last; act.Create != nil || len(act.Update) > 0 || len(act.Remove) > 0 {
		t.Errorf("a deployment that is being deleted plans %+v", act)
	}
}

func TestB071_PausedTimeDoesNotCount(t *testing.T) {
	w := newWorld(2, "1", "0")
	w.d.Spec.ProgressDeadlineSeconds = ptr.To(int32(30))
	w.pass()
	w.serve(0, 0)
	w.pass()
	w.d.Spec.Paused = true
	w.pass()
	if c := w.progressing(); c.Status != corev1.ConditionUnknown || c.Reason != "DeploymentPaused" {
		t.Fatalf("Progressing is %s/%s, want Unknown/DeploymentPaused", c.Status, c.Reason)
	}
	w.now = w.now.Add(120 * time.Second)
	if w.pass(); w.last.Wait != 0 {
		t.Errorf("a paused deployment waits %v for its deadline", w.last.Wait)
	}
	w.d.Spec.Paused = false
	w.pass()
	if c := w.progressing(); c.Reason != "DeploymentResumed" {
		t.Errorf("after the pause Progressing is %s, want DeploymentResumed", c.Reason)
	}
	w.now = w.now.Add(29 * time.Second)
	if w.pass(); w.progressing().Reason != "DeploymentResumed" {
		t.Errorf("30 s after the pause Progressing is %s, want DeploymentResumed", w.progressing().Reason)
	}
	w.now = w.now.Add(w.last.Wait)
	if w.pass(); w.progressing().Reason != "ProgressDeadlineExceeded" {
		t.Errorf("after the deadline Progressing is %s, want ProgressDeadlineExceeded", w.progressing().Reason)
	}
}

func TestPausedDeploymentScalesButDoesNotRoll(t *testing.T) {
	w := newWorld(3, "1", "0")
	w.run(t)
	w.d.Spec.Paused = true
	w.setImage("v2")
	w.run(t)
	w.d.Spec.Replicas = ptr.To(int32(5))
	w.run(t)
	if got, want := w.sizes(), "v1:5"; got != want {
		t.Errorf("sets %q, want %q", got, want)
	}
}

func TestPausedDeploymentWithoutSetsRests(t *testing.T) {
	w := newWorld(3, "1", "0")
	w.run(t)
	w.d.Spec.Paused = true
	w.d.Generation++
	w.sets = nil // somebody deleted it
	w.run(t)
	if got, want := w.d.Status.ObservedGeneration, w.d.Generation; got != want {
		t.Errorf("status.observedGeneration = %d, want %d", got, want)
	}
	w.d.Spec.Paused = false
	w.run(t)
	if got, want := w.sizes(), "v1:3"; got != want {
		t.Errorf("after the pause: sets %q, want %q", got, want)
	}
}

func TestB075_TerminatingPodsAreReportedAndNotCounted(t *testing.T) {
	w := newWorld(4, "1", "1")
	w.run(t)
	w.sets[0].Status.TerminatingReplicas = ptr.To(int32(3))
	w.setImage("v2")
	w.pass()
	if got := ptr.Deref(w.d.Status.TerminatingReplicas, -1); got != 3 {
		t.Errorf("status.terminatingReplicas = %d, want 3", got)
	}
	if got, want := w.sizes(), "v1:3 v2:1"; got != want {
		t.Errorf("sets %q, want %q", got, want)
	}
	w.sets[0].Status.TerminatingReplicas = nil
	if w.pass(); w.d.Status.TerminatingReplicas != nil {
		t.Error("status.terminatingReplicas is given though a set does not say")
	}
}

func TestB076_RevisionsAreNumbers(t *testing.T) {
	w := newWorld(1, "1", "0")
	for i := 1; i <= 12; i++ {
		w.setImage(fmt.Sprint("v", i))
		w.run(t)
	}
	if got := revision(w.set("v12")); got != "12" {
		t.Errorf("revision of the twelfth template is %s", got)
	}
	w.setImage("v9")
	w.run(t)
	w.setImage("v3")
	w.run(t)
	if got := revision(w.set("v9")); got != "13" {
		t.Errorf("revision after going back to v9 is %s, want 13", got)
	}
	if got := w.set("v9").Annotations["deployment.kubernetes.io/revision-history"]; got != "9" {
		t.Errorf("revision-history of v9 is %q, want 9", got)
	}
	if got := w.d.Annotations["deployment.kubernetes.io/revision"]; got != "14" {
		t.Errorf("the deployment's revision is %s, want 14", got)
	}
}

func TestB076_HistoryDropsTheLowestRevision(t *testing.T) {
	w := newWorld(1, "1", "0")
	w.d.Spec.RevisionHistoryLimit = ptr.To(int32(2))
	for _, image := range []string{"A", "B", "A", "C", "D"} {
		w.setImage(image)
		w.run(t)
	}
	if got, want := w.sizes(), "A:0 C:0 D:1"; got != want {
		t.Errorf("sets %q, want %q: B has the lowest revision though A is older", got, want)
	}
}

func TestRecreateEndsOldPodsFirst(t *testing.T) {
	w := newWorld(2, "1", "1")
	w.d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	w.run(t)
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		DeletionTimestamp: ptr.To(metav1.NewTime(w.now)),
		OwnerReferences:   []metav1.OwnerReference{{UID: w.sets[0].UID, Controller: ptr.To(true)}},
	}}
	w.setImage("v2")
	w.pass(old)
	w.serve(0, 0)
	w.pass(old)
	if got, want := w.sizes(), "v1:0"; got != want {
		t.Errorf("with an old pod terminating: sets %q, want %q", got, want)
	}
	w.run(t)
	if got, want := w.sizes(), "v1:0 v2:2"; got != want {
		t.Errorf("at the end: sets %q, want %q", got, want)
	}
}

// TestB073_DeadlineIsOfRolloutsOnly scales a deployment whose rollout is over from none to three, and no pod
// ever becomes ready: that is for the condition Available to tell.
func TestB073_DeadlineIsOfRolloutsOnly(t *testing.T) {
	w := newWorld(0, "1", "0")
	w.run(t)
	w.d.Spec.Replicas = ptr.To[int32](3)
	w.d.Generation++
	for range 5 {
		w.pass()
		w.serve(0, 0)
		w.now = w.now.Add(time.Hour)
	}
	got := map[appsv1.DeploymentConditionType]string{}
	for _, c := range w.d.Status.Conditions {
		got[c.Type] = string(c.Status) + " " + c.Reason
	}
	want := map[appsv1.DeploymentConditionType]string{
		appsv1.DeploymentProgressing: "True NewReplicaSetAvailable",
		appsv1.DeploymentAvailable:   "False MinimumReplicasUnavailable",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("conditions (-want +got):\n%s", d)
	}
}

func TestScalingInARolloutIsProportional(t *testing.T) {
	w := newWorld(10, "3", "2")
	w.run(t)
	w.setImage("v2")
	w.pass()
	for i := range w.sets {
		if w.sets[i].Spec.Template.Spec.Containers[0].Image == "v2" {
			w.serve(i, 0) // the new image does not start
		} else {
			w.serve(i, 100)
		}
	}
	w.pass()
	before := w.sizes()
	w.d.Spec.Replicas = ptr.To(int32(20))
	w.pass()
	if got, want := before+" → "+w.sizes(), "v1:8 v2:5 → v1:14 v2:9"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestProgressDeadlineIsReported(t *testing.T) {
	w := newWorld(1, "1", "0")
	w.d.Spec.ProgressDeadlineSeconds = ptr.To(int32(60))
	w.pass()
	w.serve(0, 0)
	w.pass()
	w.pass()
	if w.last.Wait == 0 {
		t.Fatal("a rollout that stands still is not looked at again")
	}
	w.now = w.now.Add(w.last.Wait)
	w.pass()
	if c := w.progressing(); c.Reason != "ProgressDeadlineExceeded" || c.Status != corev1.ConditionFalse {
		t.Errorf("Progressing is %s/%s, want False/ProgressDeadlineExceeded", c.Status, c.Reason)
	}
	if w.pass() {
		t.Error("after the deadline a pass still changes something")
	}
	w.run(t)
	if c := w.progressing(); c.Reason != "NewReplicaSetAvailable" {
		t.Errorf("a late success leaves Progressing at %s", c.Reason)
	}
}

func TestHistoryAnnotationIsBounded(t *testing.T) {
	history := ""
	for i := range 2000 {
		history = deployment.AppendHistory(history, fmt.Sprint(i))
	}
	if len(history) > 2000 || !strings.HasSuffix(history, ",1999") {
		t.Errorf("history is %d characters long and ends in %q", len(history), history[len(history)-5:])
	}
}

func TestHashIsOfTheTemplateAlone(t *testing.T) {
	w := newWorld(1, "1", "0")
	template := w.d.Spec.Template.DeepCopy()
	hash := deployment.HashTemplate(template, nil)
	template.Labels["pod-template-hash"] = "x"
	if got := deployment.HashTemplate(template, nil); got != hash {
		t.Errorf("the hash label changes the hash: %s, %s", got, hash)
	}
	if got := deployment.HashTemplate(template, ptr.To(int32(1))); got == hash {
		t.Error("a collision does not change the hash")
	}
	template.Spec.Containers[0].Image = "v2"
	if got := deployment.HashTemplate(template, nil); got == hash || len(got) != 10 {
		t.Errorf("another template has the hash %s, the first %s", got, hash)
	}
}

// TestNewPodsThatDoNotStartHoldTheOldOnes has a rollout whose new pods do not start: an old pod that
// falls ill then stays, for it may recover, which the new ones have not shown that they can.
func TestNewPodsThatDoNotStartHoldTheOldOnes(t *testing.T) {
	w := newWorld(10, "3", "2")
	w.run(t)
	w.setImage("v2")
	for range 4 {
		w.pass()
		w.serve(0, 100)
		w.serve(1, 0)
	}
	before := w.sizes()
	w.serve(0, *w.sets[0].Spec.Replicas-1)
	w.pass()
	if got, want := before+" → "+w.sizes(), "v1:8 v2:5 → v1:8 v2:5"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
