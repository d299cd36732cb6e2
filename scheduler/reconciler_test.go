package scheduler_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/scheduler"
)

// bench is a scheduler with a world around it.
type bench struct {
	*scheduler.Reconciler
	client  client.WithWatch
	clock   *clocktesting.FakeClock
	events  *events.FakeRecorder
	bind    func(*corev1.Binding) error // what the server does with a binding; nil does it
	binds   int
	patches int

	beforePatch func()
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{
		clock:  clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		events: events.NewFakeRecorder(100),
	}
	b.client = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithStatusSubresource(&corev1.Pod{}).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, _ string, obj, sub client.Object, _ ...client.SubResourceCreateOption) error {
			b.binds++
			binding := sub.(*corev1.Binding)
			if b.bind != nil {
				if err := b.bind(binding); err != nil {
					return err
				}
			}
			return b.place(ctx, obj.GetName(), binding.Target.Name)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			b.patches++
			data, err := patch.Data(obj)
			if uid := `"uid":"` + string(obj.GetUID()) + `"`; err != nil || !strings.Contains(string(data), uid) {
				t.Errorf("the patch %s does not say %s: it would change another pod of the name", data, uid)
			}
			if b.beforePatch != nil {
				b.beforePatch()
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	}).Build()
	b.Reconciler = scheduler.NewReconciler(b.client, b.client, b.clock, b.events)
	for _, obj := range objects {
		b.create(obj)
	}
	return b
}

// place is what the server does when it is given a binding.
func (b *bench) place(ctx context.Context, name, node string) error {
	p := &corev1.Pod{}
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, p); err != nil {
		return err
	}
	p.Spec.NodeName = node
	return b.client.Update(ctx, p)
}

func (b *bench) create(obj client.Object) {
	handler := b.PodEvents()
	if _, ok := obj.(*corev1.Node); ok {
		handler = b.NodeEvents()
	}
	handler.Create(context.Background(), event.CreateEvent{Object: obj}, discard{})
}

func deleteOf(obj client.Object) event.DeleteEvent { return event.DeleteEvent{Object: obj} }

func (b *bench) reconcile(t *testing.T, name string) (reconcile.Result, error) {
	t.Helper()
	return b.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: name}})
}

func (b *bench) get(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPodIsBound(t *testing.T) {
	b := newBench(t, node("a", "1"), pod("p", "1"))
	if _, err := b.reconcile(t, "p"); err != nil {
		t.Fatal(err)
	}
	if got := b.get(t, "p").Spec.NodeName; got != "a" {
		t.Errorf("bound to %q, want a", got)
	}
	if got, want := <-b.events.Events, "Normal Scheduled Successfully assigned default/p to a"; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	if _, err := b.reconcile(t, "p"); err != nil || b.binds != 1 {
		t.Errorf("a placed pod was bound again: %d bindings, %v", b.binds, err)
	}
}

// TestOthersPodsAreLeftAlone has pods that are nobody's business here.
func TestOthersPodsAreLeftAlone(t *testing.T) {
	for about, change := range map[string]func(*corev1.Pod){
		"another scheduler's": func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" },
		"gated":               func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} },
		"ended":               func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"placed":              on("b"),
		"being deleted": func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"f/f"}
		},
	} {
		t.Run(about, func(t *testing.T) {
			b := newBench(t, node("a", "1"), pod("p", "", change))
			if _, err := b.reconcile(t, "p"); err != nil || b.binds+b.patches != 0 {
				t.Errorf("%d bindings, %d patches, %v; want none", b.binds, b.patches, err)
			}
		})
	}
}

// TestRefusedPodIsToldOnce writes the reason when it changes, and not again.
func TestRefusedPodIsToldOnce(t *testing.T) {
	b := newBench(t, node("a", "1"), pod("p", "2"))
	for range 3 {
		if _, err := b.reconcile(t, "p"); err != nil {
			t.Fatal(err)
		}
		b.clock.Step(time.Minute)
	}
	conditions := b.get(t, "p").Status.Conditions
	if len(conditions) != 1 || conditions[0].Type != corev1.PodScheduled || conditions[0].Status != corev1.ConditionFalse ||
		conditions[0].Reason != "Unschedulable" || conditions[0].Message != "0/1 nodes are available: 1 Insufficient cpu." {
		t.Errorf("conditions %+v", conditions)
	}
	if b.patches != 1 || len(b.events.Events) != 1 {
		t.Errorf("%d status writes and %d events, want one of each", b.patches, len(b.events.Events))
	}
	b.create(node("b", "1"))
	if _, err := b.reconcile(t, "p"); err != nil {
		t.Fatal(err)
	}
	if got := b.get(t, "p").Status.Conditions[0].Message; got != "0/2 nodes are available: 2 Insufficient cpu." {
		t.Errorf("after another node came: %q", got)
	}
}

// TestB108_UnknownBindIsAskedAbout has bindings fail in each of the ways they can.
func TestB108_UnknownBindIsAskedAbout(t *testing.T) {
	timeout := apierrors.NewTimeoutError("no answer", 0)
	t.Run("it happened", func(t *testing.T) {
		b := newBench(t, node("a", "1"), node("b", "1"), pod("p", "1"))
		b.bind = func(binding *corev1.Binding) error {
			return errors.Join(b.place(t.Context(), "p", binding.Target.Name), timeout)
		}
		if _, err := b.reconcile(t, "p"); err != nil {
			t.Fatalf("%v; want none, the pod has its node", err)
		}
		if _, err := b.reconcile(t, "p"); err != nil || b.binds != 1 {
			t.Errorf("%d bindings, %v; want one", b.binds, err)
		}
	})
	t.Run("it did not happen", func(t *testing.T) {
		b := newBench(t, node("a", "1"), pod("p", "1"), pod("q", "1"))
		b.bind = func(*corev1.Binding) error { return timeout }
		if _, err := b.reconcile(t, "p"); err == nil {
			t.Fatal("no error; want one, so that it is tried again")
		}
		b.bind = nil
		if _, err := b.reconcile(t, "q"); err != nil || b.get(t, "q").Spec.NodeName != "a" {
			t.Errorf("the place of a failed binding is not free again: %v", err)
		}
	})
	t.Run("nobody knows", func(t *testing.T) {
		b := newBench(t, node("a", "1"), pod("p", "1"), pod("q", "1"))
		b.bind = func(*corev1.Binding) error { return timeout }
		down := interceptor.NewClient(b.client, interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return timeout
			},
		})
		b.Reconciler = scheduler.NewReconciler(b.client, down, b.clock, b.events)
		b.create(node("a", "1"))
		if _, err := b.reconcile(t, "p"); err == nil {
			t.Fatal("no error; want one, so that it is tried again")
		}
		b.bind = nil
		if _, err := b.reconcile(t, "q"); err != nil || b.get(t, "q").Spec.NodeName != "" {
			t.Errorf("q got the place that p may have: %v", err)
		}
		if _, err := b.reconcile(t, "p"); err != nil || b.get(t, "p").Spec.NodeName != "a" {
			t.Errorf("p was not bound when the server was back: %v", err)
		}
	})
	t.Run("the pod is gone", func(t *testing.T) {
		b := newBench(t, node("a", "1"), pod("p", "1"), pod("q", "1"))
		b.bind = func(*corev1.Binding) error {
			return errors.Join(b.client.Delete(t.Context(), pod("p", "")), timeout)
		}
		if _, err := b.reconcile(t, "p"); err != nil {
			t.Fatal(err)
		}
		b.bind = nil
		if _, err := b.reconcile(t, "q"); err != nil || b.get(t, "q").Spec.NodeName != "a" {
			t.Errorf("the place of a pod that is gone is not free: %v", err)
		}
	})
}

// TestB110_RefusedPodBacksOffWhateverHappens counts how often a pod that fits nowhere is looked at
// while every event says that something changed.
func TestB110_RefusedPodBacksOffWhateverHappens(t *testing.T) {
	b := newBench(t, node("a", "1"), pod("p", "2"))
	looked := 0
	for range 600 { // a minute with ten events a second
		result, err := b.reconcile(t, "p")
		if err != nil {
			t.Fatal(err)
		}
		if result.RequeueAfter > 10*time.Second { // it was refused, not told to wait
			looked++
		}
		b.clock.Step(100 * time.Millisecond)
	}
	if looked < 5 || looked > 10 {
		t.Errorf("looked at %d times in a minute, want 1 s doubling to 10 s between", looked)
	}
}

// TestB111_ReasonsAreOfTheLastTry has an error after a refusal; the next event still helps.
func TestB111_ReasonsAreOfTheLastTry(t *testing.T) {
	b := newBench(t, node("a", "1"), pod("p", "2"))
	if _, err := b.reconcile(t, "p"); err != nil {
		t.Fatal(err)
	}
	b.clock.Step(time.Minute)
	b.create(node("b", "2"))
	b.bind = func(*corev1.Binding) error { return apierrors.NewTimeoutError("no answer", 0) }
	if _, err := b.reconcile(t, "p"); err == nil {
		t.Fatal("no error; want one, so that it is tried again")
	}
	b.bind = nil
	if _, err := b.reconcile(t, "p"); err != nil || b.get(t, "p").Spec.NodeName != "b" {
		t.Errorf("not placed after the error: %v", err)
	}
}
