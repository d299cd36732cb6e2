package statefulset_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
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
	return &world{t, c, statefulset.NewReconciler(c, c, clock, events.NewFakeRecorder(1000))}
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
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
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

func TestReplacesWhatEnded(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.expect("db-0 one?")
	var p corev1.Pod
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "db-0"}, &p); err != nil {
		t.Fatal(err)
	}
	p.Status.Phase = corev1.PodFailed
	if err := w.client.Status().Update(ctx, &p); err != nil {
		t.Fatal(err)
	}
	w.expect("", "db-0 one?")
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
