package deployment_test

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/deployment"
)

var request = reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "web"}}

func setup(t *testing.T, objects ...client.Object) (*controllertest.Client, *deployment.Reconciler, *events.FakeRecorder) {
	t.Helper()
	clock := controllertest.NewClock()
	c := controllertest.NewClient(t, clock, nil, append(objects, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "elsewhere"}})...)
	recorder := events.NewFakeRecorder(100)
	return c, deployment.NewReconciler(c, c, clock, recorder), recorder
}

func sets(t *testing.T, c client.Reader) []appsv1.ReplicaSet {
	t.Helper()
	var list appsv1.ReplicaSetList
	if err := c.List(context.Background(), &list, client.InNamespace("ns")); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestReconcileMakesASetAndThenRests(t *testing.T) {
	d := newWorld(2, "1", "0").d
	c, r, recorder := setup(t, d)
	for range 3 {
		if _, err := r.Reconcile(context.Background(), request); err != nil {
			t.Fatal(err)
		}
	}
	made := sets(t, c)
	if len(made) != 1 || !metav1.IsControlledBy(&made[0], d) || *made[0].Spec.Replicas != 2 {
		t.Fatalf("sets %+v, want one of 2 replicas that the deployment controls", made)
	}
	hash := made[0].Labels["pod-template-hash"]
	if made[0].Name != "web-"+hash || made[0].Spec.Selector.MatchLabels["pod-template-hash"] != hash ||
		made[0].Spec.Template.Labels["pod-template-hash"] != hash {
		t.Errorf("name, selector and template do not all carry the hash %q: %+v", hash, made[0])
	}
	if event := <-recorder.Events; !strings.Contains(event, "Scaled up replica set web-"+hash+" from 0 to 2") {
		t.Errorf("event %q", event)
	}
	c.Writes()
	if _, err := r.Reconcile(context.Background(), request); err != nil {
		t.Fatal(err)
	}
	if writes := c.Writes(); len(writes) != 0 {
		t.Errorf("a pass that has nothing to do writes %v", writes)
	}
}

// TestB070_CollidingHashMakesANewName has the hash depend on nothing but the collision count.
func TestB070_CollidingHashMakesANewName(t *testing.T) {
	d := newWorld(2, "1", "0").d
	taken := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "ns", UID: "taken"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
	}
	c, r, _ := setup(t, d, taken)
	r.SetHash(func(_ *corev1.PodTemplateSpec, collisions *int32) string {
		return string('0' + byte(ptr.Deref(collisions, 0)))
	})
	if _, err := r.Reconcile(context.Background(), request); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("first pass: %v, want that the name is taken", err)
	}
	if _, err := r.Reconcile(context.Background(), request); err != nil {
		t.Fatalf("second pass: %v", err)
	}
	found := &appsv1.ReplicaSet{}
	if err := c.Get(context.Background(), client.ObjectKey{Namespace: "ns", Name: "web-1"}, found); err != nil {
		t.Fatalf("no set under the new name: %v", err)
	}
	for _, write := range c.Writes() {
		if strings.Contains(write, "web-0") {
			t.Errorf("the set whose name collided was touched: %s", write)
		}
	}
}

// TestB070_LostAnswerIsFoundAgain creates the set, loses the answer, and has the cache not see it.
func TestB070_LostAnswerIsFoundAgain(t *testing.T) {
	d := newWorld(2, "1", "0").d
	c, r, _ := setup(t, d)
	c.After = func(verb string, _ client.Object) error {
		if verb == "create" {
			return apierrors.NewTimeoutError("the answer did not come", 1)
		}
		return nil
	}
	if _, err := r.Reconcile(context.Background(), request); err == nil {
		t.Fatal("a lost answer is not an error")
	}
	c.After = nil
	blind := deployment.NewReconciler(noSets{c}, c, controllertest.NewClock(), events.NewFakeRecorder(10))
	if _, err := blind.Reconcile(context.Background(), request); err != nil {
		t.Fatalf("pass that meets the set: %v", err)
	}
	got := &appsv1.Deployment{}
	if err := c.Get(context.Background(), request.NamespacedName, got); err != nil {
		t.Fatal(err)
	}
	if got.Status.CollisionCount != nil || len(sets(t, c)) != 1 {
		t.Errorf("collisionCount %v and %d sets, want none and one", got.Status.CollisionCount, len(sets(t, c)))
	}
}

// noSets is a client whose cache shows no ReplicaSet.
type noSets struct{ client.Client }

func (n noSets) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*appsv1.ReplicaSetList); ok {
		return nil
	}
	return n.Client.List(ctx, list, opts...)
}

func TestCreateErrorIsReported(t *testing.T) {
	c, r, _ := setup(t, newWorld(2, "1", "0").d)
	c.Before = func(verb string, _ client.Object) error {
		if verb == "create" {
			return apierrors.NewForbidden(appsv1.Resource("replicasets"), "web", nil)
		}
		return nil
	}
	for range 2 {
		if _, err := r.Reconcile(context.Background(), request); err == nil {
			t.Fatal("a refused create is not an error")
		}
	}
	if writes := c.Writes(); len(writes) != 1 {
		t.Errorf("two passes that fail alike wrote %v, want one status", writes)
	}
}
