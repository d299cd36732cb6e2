package statefulset_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/statefulset"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "db"}
)

// world is a StatefulSet, its pods and the controller, stepped by hand.
type world struct {
	*testing.T
	client *controllertest.Client
	clock  *clocktesting.FakeClock
	r      *statefulset.Reconciler
}

func newWorld(t *testing.T, replicas int32, change func(*appsv1.StatefulSetSpec)) *world {
	t.Helper()
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "ns", UID: "set"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "svc",
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "one"}}},
			},
		},
	}
	if change != nil {
		change(&set.Spec)
	}
	clock := controllertest.NewClock()
	c := controllertest.NewClient(t, clock, nil, set)
	return &world{t, c, clock, statefulset.NewReconciler(c, c, clock, events.NewFakeRecorder(1000))}
}

func (w *world) pass() {
	w.Helper()
	if _, err := w.r.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err != nil {
		w.Fatalf("pass: %v", err)
	}
}

// step makes a pass and returns the pods as "db-0 one", those that are not ready with a question mark.
func (w *world) step() string {
	w.Helper()
	w.pass()
	var list corev1.PodList
	if err := w.client.List(ctx, &list); err != nil {
		w.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		p := &list.Items[i]
		text := p.Name + " " + p.Spec.Containers[0].Image
		if len(p.Status.Conditions) == 0 {
			text += "?"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// ready makes all pods ready but those named.
func (w *world) ready(but ...string) {
	w.Helper()
	var list corev1.PodList
	if err := w.client.List(ctx, &list); err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if slices.Contains(but, p.Name) {
			continue
		}
		p.Status.Phase = corev1.PodRunning
		if len(p.Status.Conditions) > 0 {
			continue
		}
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.clock.Now()),
		}}
		if err := w.client.Status().Update(ctx, p); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) set() *appsv1.StatefulSet {
	w.Helper()
	var set appsv1.StatefulSet
	if err := w.client.Get(ctx, key, &set); err != nil {
		w.Fatal(err)
	}
	return &set
}

func (w *world) update(change func(*appsv1.StatefulSetSpec)) {
	w.Helper()
	set := w.set()
	change(&set.Spec)
	if err := w.client.Update(ctx, set); err != nil {
		w.Fatal(err)
	}
}

// expect makes a pass for each line and compares what there is after it; all become ready in between.
func (w *world) expect(want ...string) {
	w.Helper()
	var got []string
	for range want {
		got = append(got, w.step())
		w.ready()
	}
	if d := cmp.Diff(want, got); d != "" {
		w.Errorf("-want +got:\n%s", d)
	}
}

func image(name string) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) { s.Template.Spec.Containers[0].Image = name }
}

func replicas(n int32) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) { s.Replicas = &n }
}

func TestComesOneByOneAndGoesInReverse(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.expect("db-0 one?", "db-0 one, db-1 one?", "db-0 one, db-1 one, db-2 one?", "db-0 one, db-1 one, db-2 one")
	w.client.Writes()
	if w.pass(); len(w.client.Writes()) > 0 {
		t.Error("a pass over a set that is as declared writes")
	}
	w.update(replicas(1))
	w.expect("db-0 one, db-1 one", "db-0 one", "db-0 one")
}

func TestWaitsForWhatIsNotReady(t *testing.T) {
	w := newWorld(t, 2, nil)
	for range 3 {
		if got := w.step(); got != "db-0 one?" {
			t.Errorf("there are %s", got)
		}
	}
}

func TestParallel(t *testing.T) {
	w := newWorld(t, 3, func(s *appsv1.StatefulSetSpec) { s.PodManagementPolicy = appsv1.ParallelPodManagement })
	w.expect("db-0 one?, db-1 one?, db-2 one?")
	w.update(replicas(0))
	w.expect("")
}

func TestRollsOutFromTheLast(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.expect("db-0 one?", "db-0 one, db-1 one?", "db-0 one, db-1 one")
	before := w.set().Status.CurrentRevision
	w.update(image("two"))
	w.expect("db-0 one", "db-0 one, db-1 two?")
	if s := w.set().Status; s.CurrentRevision != before || s.UpdateRevision == before || s.CurrentReplicas != 1 || s.UpdatedReplicas != 1 {
		t.Errorf("half way the status is %+v", s)
	}
	w.expect("db-1 two", "db-0 two?, db-1 two", "db-0 two, db-1 two")
	if s := w.set().Status; s.CurrentRevision == before || s.CurrentRevision != s.UpdateRevision || s.CurrentReplicas != 2 {
		t.Errorf("at the end the status is %+v", s)
	}
	w.update(image("one"))
	w.pass()
	if s := w.set().Status; s.UpdateRevision != before {
		t.Errorf("what was there before is %s again, want %s", s.UpdateRevision, before)
	}
}

func TestPartition(t *testing.T) {
	w := newWorld(t, 2, func(s *appsv1.StatefulSetSpec) {
		s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](1)}
	})
	w.expect("db-0 one?", "db-0 one, db-1 one?", "db-0 one, db-1 one")
	w.update(image("two"))
	w.expect("db-0 one", "db-0 one, db-1 two?", "db-0 one, db-1 two")
	first := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", Namespace: "ns"}}
	if err := w.client.Delete(ctx, first); err != nil {
		t.Fatal(err)
	}
	w.expect("db-0 one?, db-1 two") // held back, so made of the revision before
}

func TestOnDelete(t *testing.T) {
	w := newWorld(t, 1, func(s *appsv1.StatefulSetSpec) { s.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType })
	w.expect("db-0 one?")
	w.update(image("two"))
	w.expect("db-0 one", "db-0 one")
}

// phase has a pod come into a phase.
func (w *world) phase(name string, phase corev1.PodPhase) {
	w.Helper()
	var p corev1.Pod
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, &p); err != nil {
		w.Fatal(err)
	}
	p.Status.Phase = phase
	if err := w.client.Status().Update(ctx, &p); err != nil {
		w.Fatal(err)
	}
}

// TestB080_RolloutWaitsForMinReadySeconds looks at each second of a rollout.
func TestB080_RolloutWaitsForMinReadySeconds(t *testing.T) {
	w := newWorld(t, 2, func(s *appsv1.StatefulSetSpec) { s.MinReadySeconds = 10 })
	// become has all pods ready and expects them to be as they are until ten seconds are over.
	become := func(next string) {
		t.Helper()
		w.ready()
		before := w.step()
		for range 9 {
			w.clock.Step(time.Second)
			if got := w.step(); got != before {
				t.Fatalf("before ten seconds are over there are %s, want still %s", got, before)
			}
			if s := w.set().Status; s.CurrentRevision == s.UpdateRevision && strings.Contains(before, "two") {
				t.Fatal("the rollout is said to be over before its last pod is available")
			}
		}
		w.clock.Step(time.Second)
		if got := w.step(); got != next {
			t.Fatalf("after ten seconds there are %s, want %s", got, next)
		}
	}
	w.pass()
	become("db-0 one, db-1 one?")
	become("db-0 one, db-1 one")
	w.update(image("two"))
	if got := w.step(); got != "db-0 one" {
		t.Fatalf("there are %s, want db-1 away", got)
	}
	w.pass()
	become("db-1 two")
	w.pass()
	become("db-0 two, db-1 two")
	if s := w.set().Status; s.CurrentRevision != s.UpdateRevision {
		t.Errorf("at the end the rollout is not over: %+v", s)
	}
}

// TestB081_EndedPodsAreReplacedAndSickSetsScaleToNone has pods fail and succeed, and then a set whose
// pods never get well go.
func TestB081_EndedPodsAreReplacedAndSickSetsScaleToNone(t *testing.T) {
	for _, end := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded} {
		w := newWorld(t, 1, nil)
		w.expect("db-0 one?")
		w.phase("db-0", end)
		w.expect("", "db-0 one?")
	}
	w := newWorld(t, 3, nil)
	w.expect("db-0 one?", "db-0 one, db-1 one?", "db-0 one, db-1 one, db-2 one?")
	for _, name := range []string{"db-0", "db-1", "db-2"} {
		w.unready(name)
	}
	w.update(replicas(0))
	var got []string
	for range 4 {
		got = append(got, w.step())
	}
	if d := cmp.Diff([]string{"db-0 one, db-1 one", "db-0 one", "", ""}, got); d != "" {
		t.Errorf("a sick set goes (-want +got):\n%s", d)
	}
}

func (w *world) unready(name string) {
	w.Helper()
	var p corev1.Pod
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, &p); err != nil {
		w.Fatal(err)
	}
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	if err := w.client.Status().Update(ctx, &p); err != nil {
		w.Fatal(err)
	}
}

// TestB083_OneIdentityIsOnePod has the node of a pod that is being deleted be out of reach: for as long as
// the pod's object is there it has no successor, whoever asks.
func TestB083_OneIdentityIsOnePod(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.expect("db-0 one?", "db-0 one")
	var p corev1.Pod
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "db-0"}, &p); err != nil {
		t.Fatal(err)
	}
	p.Finalizers = []string{"example.com/node-is-away"}
	if err := w.client.Update(ctx, &p); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(ctx, &p); err != nil {
		t.Fatal(err)
	}
	w.client.Writes()
	for range 3 {
		w.clock.Step(time.Hour)
		w.r = statefulset.NewReconciler(w.client, w.client, w.clock, events.NewFakeRecorder(10)) // a new process
		w.pass()
	}
	for _, write := range w.client.Writes() {
		if strings.Contains(write, "Pod") {
			t.Errorf("%s, though the pod's object is there", write)
		}
	}
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "db-0"}, &p); err != nil {
		t.Fatal(err)
	}
	p.Finalizers = nil
	if err := w.client.Update(ctx, &p); err != nil {
		t.Fatal(err)
	}
	w.expect("db-0 one?")
}

func TestIdentity(t *testing.T) {
	w := newWorld(t, 1, func(s *appsv1.StatefulSetSpec) {
		s.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5}
		s.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	})
	w.pass()
	var p corev1.Pod
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "db-5"}, &p); err != nil {
		t.Fatal(err)
	}
	got := []string{
		p.Spec.Hostname, p.Spec.Subdomain, p.Labels["statefulset.kubernetes.io/pod-name"],
		p.Labels["apps.kubernetes.io/pod-index"], p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName,
	}
	if d := cmp.Diff([]string{"db-5", "svc", "db-5", "5", "data-db-5"}, got); d != "" {
		t.Error(d)
	}
	var claim corev1.PersistentVolumeClaim
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "data-db-5"}, &claim); err != nil {
		t.Fatal(err)
	}
	if claim.Labels["app"] != "db" || len(claim.OwnerReferences) > 0 {
		t.Errorf("the claim is %+v", claim.ObjectMeta)
	}
}
