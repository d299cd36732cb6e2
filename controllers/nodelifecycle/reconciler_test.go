package nodelifecycle_test

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/nodelifecycle"
)

var nodeRequest = reconcile.Request{NamespacedName: client.ObjectKey{Name: "n1"}}

type fixture struct {
	t     *testing.T
	clock *clocktesting.FakeClock
	c     *controllertest.Client
	live  client.Reader
	r     *nodelifecycle.NodeReconciler
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	clock := controllertest.NewClock()
	c := controllertest.NewClient(t, clock, []controllertest.Index{
		{Object: &corev1.Pod{}, Field: nodelifecycle.PodsByNode, Func: nodelifecycle.NodeName},
	}, objects...)
	f := &fixture{t: t, clock: clock, c: c, live: c}
	f.restart()
	return f
}

// restart is a new process.
func (f *fixture) restart() {
	f.r = nodelifecycle.NewNodeReconciler(f.c, f.live, f.clock, events.NewFakeRecorder(100), nodelifecycle.Options{}.WithDefaults())
}

func (f *fixture) pass() reconcile.Result {
	f.t.Helper()
	result, err := f.r.Reconcile(context.Background(), nodeRequest)
	if err != nil {
		f.t.Fatal(err)
	}
	return result
}

func (f *fixture) renew() {
	f.t.Helper()
	lease := &coordinationv1.Lease{}
	if err := f.c.Get(context.Background(), types.NamespacedName{Namespace: "kube-node-lease", Name: "n1"}, lease); err != nil {
		f.t.Fatal(err)
	}
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(f.clock.Now()))
	if err := f.c.Update(context.Background(), lease); err != nil {
		f.t.Fatal(err)
	}
	f.c.Writes()
}

func (f *fixture) tainted() bool {
	f.t.Helper()
	node := &corev1.Node{}
	if err := f.c.Get(context.Background(), nodeRequest.NamespacedName, node); err != nil {
		f.t.Fatal(err)
	}
	return len(node.Spec.Taints) > 0
}

func lease(renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n1"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(renewed))},
	}
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func TestSilentNodeIsTaintedAfterTheGracePeriod(t *testing.T) {
	f := newFixture(t, newNode(corev1.ConditionTrue), lease(start), pod("p", "n1"))
	for range 5 {
		if result := f.pass(); result.RequeueAfter != 40*time.Second {
			t.Fatalf("look again in %v, want 40s", result.RequeueAfter)
		}
		f.clock.Step(10 * time.Second)
		f.renew()
	}
	f.pass()
	if writes := f.c.Writes(); len(writes) != 0 {
		t.Fatalf("a living node has %v written", writes)
	}
	f.clock.Step(40 * time.Second)
	f.pass()
	got := strings.Join(f.c.Writes(), ", ")
	if want := "status Node n1, patch Node n1, status Pod ns/p"; got != want {
		t.Errorf("writes %q, want %q", got, want)
	}
	f.pass()
	if writes := f.c.Writes(); len(writes) != 0 {
		t.Errorf("a second pass over a silent node writes %v", writes)
	}
}

// woken renews a lease and returns how many nodes are to be looked at because of it.
func (f *fixture) woken(name string) int {
	f.t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	before, after := lease(start), lease(f.clock.Now())
	before.Name, after.Name = name, name
	f.r.OnLease().Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
	return queue.Len()
}

// TestHeartbeatsNeedNoPass counts the passes that renewals make, and has each of them count all the
// same: the grace period begins with the last one and not with the last pass.
func TestHeartbeatsNeedNoPass(t *testing.T) {
	f := newFixture(t, newNode(corev1.ConditionTrue), lease(start))
	f.pass()
	for range 3 {
		f.clock.Step(10 * time.Second)
		if n := f.woken("n1"); n != 0 {
			t.Errorf("the renewal of a living node's lease makes %d passes, want none", n)
		}
	}
	if n := f.woken("of no node"); n != 0 {
		t.Errorf("the renewal of a lease of no node makes %d passes, want none", n)
	}
	f.clock.Step(10 * time.Second)
	if result := f.pass(); result.RequeueAfter != 30*time.Second || f.tainted() {
		t.Errorf("10s after the last heartbeat: look again in %v, tainted %v; want 30s, not", result.RequeueAfter, f.tainted())
	}
	f.clock.Step(30 * time.Second)
	if f.pass(); !f.tainted() {
		t.Error("a node that was silent for the grace period is not tainted")
	}
	if n := f.woken("n1"); n != 1 {
		t.Errorf("a sign of life of a silent node makes %d passes, want one", n)
	}
}

func TestAnOldLeaseIsNotBelievedAtTheStart(t *testing.T) {
	f := newFixture(t, newNode(corev1.ConditionTrue), lease(start.Add(-time.Hour)))
	if result := f.pass(); result.RequeueAfter != 40*time.Second || f.tainted() {
		t.Errorf("a process that has just started looks again in %v, tainted %v; want to wait the whole grace period", result.RequeueAfter, f.tainted())
	}
}

// TestLaggingCacheKillsNoNode has the server know a renewal that the cache has not seen.
func TestLaggingCacheKillsNoNode(t *testing.T) {
	f := newFixture(t, newNode(corev1.ConditionTrue), lease(start))
	other := controllertest.NewClient(t, f.clock, nil, lease(start.Add(35*time.Second)))
	f.live = other
	f.restart()
	f.pass()
	f.clock.Step(time.Minute)
	if result := f.pass(); result.RequeueAfter == 0 || f.tainted() {
		t.Errorf("look again in %v, tainted %v; want soon and not", result.RequeueAfter, f.tainted())
	}
}

func TestB103_OrphanedPodsEndAfterQuarantineAndALiveCheck(t *testing.T) {
	f := newFixture(t, pod("orphan", "n1"), pod("bystander", "n2"))
	if result := f.pass(); result.RequeueAfter != 40*time.Second {
		t.Fatalf("look again in %v, want 40s", result.RequeueAfter)
	}
	f.clock.Step(40 * time.Second)
	f.live = controllertest.NewClient(t, f.clock, nil, newNode(corev1.ConditionTrue))
	missing := f.r
	f.restart()
	f.pass()
	f.clock.Step(40 * time.Second)
	f.pass()
	if writes := f.c.Writes(); len(writes) != 0 {
		t.Errorf("wrote %v though the server has the node", writes)
	}
	f.r = missing
	f.pass()
	if got, want := strings.Join(f.c.Writes(), ", "), "status Pod ns/orphan, delete Pod ns/orphan"; got != want {
		t.Errorf("writes %q, want %q", got, want)
	}
}

func TestB103_AFlappingNodeStartsTheQuarantineAnew(t *testing.T) {
	f := newFixture(t, pod("p", "n1"))
	f.pass()
	f.clock.Step(30 * time.Second)
	node := newNode(corev1.ConditionTrue)
	if err := f.c.Create(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	f.pass()
	if err := f.c.Delete(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(30 * time.Second)
	f.c.Writes()
	if result := f.pass(); result.RequeueAfter != 40*time.Second || len(f.c.Writes()) != 0 {
		t.Errorf("look again in %v, want the whole quarantine", result.RequeueAfter)
	}
}

func TestB103_DoubtKeepsOrphans(t *testing.T) {
	f := newFixture(t, pod("p", "n1"))
	f.live = failing{f.c}
	f.restart()
	f.pass()
	f.clock.Step(time.Minute)
	if _, err := f.r.Reconcile(context.Background(), nodeRequest); err == nil {
		t.Error("a node that cannot be asked for is no error")
	}
	if writes := f.c.Writes(); len(writes) != 0 {
		t.Errorf("wrote %v, want nothing", writes)
	}
}

// failing is a server that does not answer.
type failing struct{ client.Reader }

func (failing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewServiceUnavailable("later")
}

func TestEvictionSaysWhy(t *testing.T) {
	node := newNode(corev1.ConditionUnknown)
	node.Spec.Taints = []corev1.Taint{taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute, time.Minute)}
	f := newFixture(t, node, pod("p", "n1"))
	var why corev1.PodCondition
	f.c.Before = func(verb string, o client.Object) error {
		if verb == "status" {
			conditions := o.(*corev1.Pod).Status.Conditions
			why = conditions[len(conditions)-1]
		}
		return nil
	}
	r := nodelifecycle.NewPodReconciler(f.c, f.clock, events.NewFakeRecorder(10))
	if _, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(f.c.Writes(), ", "), "status Pod ns/p, delete Pod ns/p"; got != want {
		t.Errorf("writes %q, want %q", got, want)
	}
	if why.Type != corev1.DisruptionTarget || why.Reason != "DeletionByTaintManager" {
		t.Errorf("the pod says %s/%s, want DisruptionTarget/DeletionByTaintManager", why.Type, why.Reason)
	}
}
