package daemonset_test

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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/daemonset"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "log"}
)

// world is a DaemonSet, nodes and the controller, stepped by hand; the scheduler is played by the test.
type world struct {
	*testing.T
	client *controllertest.Client
	clock  *clocktesting.FakeClock
	r      *daemonset.Reconciler
}

func node(name string, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "node"}}
	if change != nil {
		change(n)
	}
	return n
}

func newWorld(t *testing.T, change func(*appsv1.DaemonSetSpec), nodes ...*corev1.Node) *world {
	t.Helper()
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "log", Namespace: "ns", UID: "set"},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "log"}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "log"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "one"}}},
			},
		},
	}
	if change != nil {
		change(&set.Spec)
	}
	objects := []client.Object{set}
	for _, n := range nodes {
		objects = append(objects, n)
	}
	clock := controllertest.NewClock()
	c := controllertest.NewClient(t, clock, nil, objects...)
	return &world{t, c, clock, daemonset.NewReconciler(c, c, clock, events.NewFakeRecorder(1000))}
}

func (w *world) pass() reconcile.Result {
	w.Helper()
	result, err := w.r.Reconcile(ctx, reconcile.Request{NamespacedName: key})
	if err != nil {
		w.Fatalf("pass: %v", err)
	}
	return result
}

func (w *world) pods() []corev1.Pod {
	w.Helper()
	var list corev1.PodList
	if err := w.client.List(ctx, &list); err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// expect makes a pass for each line and compares what there is after it, as "node image"; in between all
// pods are scheduled and become ready.
func (w *world) expect(want ...string) {
	w.Helper()
	var got []string
	for range want {
		w.pass()
		var line []string
		for _, p := range w.pods() {
			on := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
			line = append(line, on+" "+p.Spec.Containers[0].Image)
			p.Spec.NodeName = on
			if err := w.client.Update(ctx, &p); err != nil {
				w.Fatal(err)
			}
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if err := w.client.Status().Update(ctx, &p); err != nil {
				w.Fatal(err)
			}
		}
		slices.Sort(line)
		got = append(got, strings.Join(line, ", "))
	}
	if d := cmp.Diff(want, got); d != "" {
		w.Errorf("-want +got:\n%s", d)
	}
}

func (w *world) set() *appsv1.DaemonSet {
	w.Helper()
	var set appsv1.DaemonSet
	if err := w.client.Get(ctx, key, &set); err != nil {
		w.Fatal(err)
	}
	return &set
}

func (w *world) update(change func(*appsv1.DaemonSetSpec)) {
	w.Helper()
	set := w.set()
	change(&set.Spec)
	if err := w.client.Update(ctx, set); err != nil {
		w.Fatal(err)
	}
}

func image(name string) func(*appsv1.DaemonSetSpec) {
	return func(s *appsv1.DaemonSetSpec) { s.Template.Spec.Containers[0].Image = name }
}

func TestOneOnEachNode(t *testing.T) {
	w := newWorld(t, nil, node("a", nil), node("b", nil))
	w.expect("a one, b one", "a one, b one")
	want := appsv1.DaemonSetStatus{
		CurrentNumberScheduled: 2, DesiredNumberScheduled: 2, NumberReady: 2, UpdatedNumberScheduled: 2, NumberAvailable: 2,
	}
	if d := cmp.Diff(want, w.set().Status); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	w.client.Writes()
	if w.pass(); len(w.client.Writes()) > 0 {
		t.Error("a pass over a set that is as declared writes")
	}
	if err := w.client.Create(ctx, node("c", nil)); err != nil {
		t.Fatal(err)
	}
	w.expect("a one, b one, c one")
}

func TestWhichNodesItIsFor(t *testing.T) {
	taint := func(effect corev1.TaintEffect, key string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Labels = map[string]string{"disk": "ssd"}
			n.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}}
		}
	}
	w := newWorld(t, func(s *appsv1.DaemonSetSpec) { s.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"} },
		node("other", nil),
		node("fits", func(n *corev1.Node) { n.Labels = map[string]string{"disk": "ssd"} }),
		node("kept-free", taint(corev1.TaintEffectNoSchedule, "mine")),
		node("cordoned", taint(corev1.TaintEffectNoSchedule, corev1.TaintNodeUnschedulable)),
		node("not-ready", taint(corev1.TaintEffectNoExecute, corev1.TaintNodeNotReady)),
		node("shunned", taint(corev1.TaintEffectNoExecute, "mine")),
	)
	w.expect("cordoned one, fits one, not-ready one")
}

func TestATaintLetsStayWhatIsThere(t *testing.T) {
	w := newWorld(t, nil, node("a", nil))
	w.expect("a one")
	for _, step := range []struct {
		effect corev1.TaintEffect
		want   string
	}{{corev1.TaintEffectNoSchedule, "a one"}, {corev1.TaintEffectNoExecute, ""}} {
		n := &corev1.Node{}
		if err := w.client.Get(ctx, client.ObjectKey{Name: "a"}, n); err != nil {
			t.Fatal(err)
		}
		n.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: step.effect}}
		if err := w.client.Update(ctx, n); err != nil {
			t.Fatal(err)
		}
		w.expect(step.want)
	}
}

func TestRollsOutOneNodeAfterTheOther(t *testing.T) {
	w := newWorld(t, nil, node("a", nil), node("b", nil))
	w.expect("a one, b one")
	w.update(image("two"))
	w.expect("b one", "a two, b one", "a two", "a two, b two", "a two, b two")
}

func TestSurgesWhereThatIsAllowed(t *testing.T) {
	w := newWorld(t, func(s *appsv1.DaemonSetSpec) {
		s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{
			MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		}
	}, node("a", nil), node("b", nil))
	w.expect("a one, b one")
	w.update(image("two"))
	w.expect("a one, a two, b one", "a two, b one", "a two, b one, b two", "a two, b two")
}

func TestOnDelete(t *testing.T) {
	w := newWorld(t, func(s *appsv1.DaemonSetSpec) { s.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType },
		node("a", nil))
	w.expect("a one")
	w.update(image("two"))
	w.expect("a one", "a one")
	pods := w.pods()
	if err := w.client.Delete(ctx, &pods[0]); err != nil {
		t.Fatal(err)
	}
	w.expect("a two")
}

// TestB085_RefusedPodsAreReplacedMoreAndMoreSlowly has a node end every pod as soon as it comes, for four
// hours; then the template changes.
func TestB085_RefusedPodsAreReplacedMoreAndMoreSlowly(t *testing.T) {
	w := newWorld(t, nil, node("a", nil), node("b", nil))
	// refuse ends the pods of node a, and makes those of b ready.
	refuse := func() {
		for _, p := range w.pods() {
			p.Status.Phase = corev1.PodRunning
			if on := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.
				NodeSelectorTerms[0].MatchFields[0].Values[0]; on == "a" {
				p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
			}
			if err := w.client.Status().Update(ctx, &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	made, last := map[string]bool{}, time.Duration(0)
	for end := w.clock.Now().Add(4 * time.Hour); w.clock.Now().Before(end) && len(made) <= 30; {
		result := w.pass()
		for _, p := range w.pods() {
			made[p.Name] = true
		}
		refuse()
		if result.RequeueAfter > 0 {
			last = result.RequeueAfter
		}
		w.clock.Step(max(result.RequeueAfter, time.Second))
	}
	// One on b; on a ten while the pause doubles up to 15 minutes, and then four an hour.
	if len(made) < 20 || len(made) > 30 || last < 14*time.Minute || last > 15*time.Minute {
		t.Errorf("%d pods were made in four hours, the last pause was %s; want 20 to 30, and 14 to 15m", len(made), last)
	}
	w.update(image("two"))
	w.pass() // deletes what is left of the old template
	w.pass()
	refuse()
	if wait := w.pass().RequeueAfter; wait != time.Second {
		t.Errorf("the first failure of a new template is left for %s, want 1s", wait)
	}
}
