package ownership_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/ownership"
)

var (
	kind     = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	selector = labels.SelectorFromSet(labels.Set{"app": "web"})
)

func owner(uid string) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: types.UID(uid)}}
}

func pod(name, controller string, matches bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if matches {
		p.Labels = map[string]string{"app": "web"}
	}
	if controller != "" {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner(controller), kind)}
	}
	return p
}

func names(pods []*corev1.Pod) string {
	text := ""
	for _, p := range pods {
		text += p.Name + " "
	}
	return text
}

func TestSort(t *testing.T) {
	dying := pod("dying", "", true)
	dying.DeletionTimestamp = ptr.To(metav1.NewTime(controllertest.Start))
	pods := []*corev1.Pod{
		pod("mine", "a", true), pod("strayed", "a", false), pod("others", "b", true), pod("orphan", "", true), pod("unrelated", "", false), dying,
	}
	deleting := owner("a")
	deleting.DeletionTimestamp = ptr.To(metav1.NewTime(controllertest.Start))
	for name, c := range map[string]struct {
		owner client.Object
		want  [3]string // owned, adopt, release
	}{
		"alive":    {owner("a"), [3]string{"mine ", "orphan ", "strayed "}},
		"deleting": {deleting, [3]string{"mine ", "", ""}},
	} {
		got := ownership.Sort(c.owner, selector, pods)
		if diff := cmp.Diff(c.want, [3]string{names(got.Owned), names(got.Adopt), names(got.Release)}); diff != "" {
			t.Errorf("owner %s: owned, adopt, release (-want +got):\n%s", name, diff)
		}
	}
}

// TestClaimRefusesANamesakeOfTheOwner has the server know an owner of another uid by that name.
func TestClaimRefusesANamesakeOfTheOwner(t *testing.T) {
	clock := controllertest.NewClock()
	orphan := pod("orphan", "", true)
	c := controllertest.NewClient(t, clock, nil, owner("a"), orphan)
	live := controllertest.NewClient(t, clock, nil, owner("b"))
	if _, err := ownership.Claim(context.Background(), ownership.Claimer{Client: c, Live: live}, owner("a"), kind, selector, []*corev1.Pod{orphan}); err == nil {
		t.Error("a former owner adopts")
	}
	if writes := c.Writes(); len(writes) != 0 {
		t.Errorf("wrote %v, want nothing", writes)
	}
}

// TestClaimDecidedOnAnOldStateIsRefused adopts a pod that has changed since it was read.
func TestClaimDecidedOnAnOldStateIsRefused(t *testing.T) {
	c := controllertest.NewClient(t, controllertest.NewClock(), nil, owner("a"), pod("orphan", "", true))
	ctx := context.Background()
	read := func() *corev1.Pod {
		found := &corev1.Pod{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "orphan"}, found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	stale, fresh := read(), read()
	fresh.Labels["more"] = "x"
	if err := c.Update(ctx, fresh); err != nil {
		t.Fatal(err)
	}
	_, err := ownership.Claim(ctx, ownership.Claimer{Client: c, Live: c}, owner("a"), kind, selector, []*corev1.Pod{stale})
	if !apierrors.IsConflict(err) && (err == nil || !cmp.Equal(read().OwnerReferences, []metav1.OwnerReference(nil))) {
		t.Errorf("error %v, owners %v; want a conflict and none", err, read().OwnerReferences)
	}
	owned, err := ownership.Claim(ctx, ownership.Claimer{Client: c, Live: c}, owner("a"), kind, selector, []*corev1.Pod{read()})
	if err != nil || len(owned) != 1 || !metav1.IsControlledBy(owned[0], owner("a")) {
		t.Errorf("read again: owned %q, error %v; want the orphan", names(owned), err)
	}
}

// TestAdopters asks which owners an object wakes.
func TestAdopters(t *testing.T) {
	set := func(namespace, name string, labels map[string]string) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
		}
	}
	match := map[string]string{"app": "web"}
	c := controllertest.NewClient(t, controllertest.NewClock(), nil,
		set("ns", "matches", match), set("ns", "other", map[string]string{"app": "db"}),
		set("ns", "empty", nil), set("elsewhere", "matches", match))
	adopters := ownership.Adopters(c, func() client.ObjectList { return &appsv1.ReplicaSetList{} },
		func(s *appsv1.ReplicaSet) *metav1.LabelSelector { return s.Spec.Selector })
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: match}}
	owned, going := orphan.DeepCopy(), orphan.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{UID: "u", Controller: ptr.To(true)}}
	going.DeletionTimestamp = ptr.To(metav1.Now())
	for _, test := range []struct {
		pod  *corev1.Pod
		want []reconcile.Request
	}{
		{orphan, []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "matches"}}}},
		{owned, nil},
		{going, nil},
	} {
		if diff := cmp.Diff(test.want, adopters(t.Context(), test.pod)); diff != "" {
			t.Errorf("woken (-want +got):\n%s", diff)
		}
	}
}
