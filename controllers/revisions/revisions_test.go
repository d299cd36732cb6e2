package revisions_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/revisions"
)

const hashLabel = "hash"

// world is an owner and the history of its template.
type world struct {
	*testing.T
	client  *controllertest.Client
	history revisions.History
	owner   revisions.Owner
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "log", Namespace: "ns", UID: "set"}}
	c := controllertest.NewClient(t, controllertest.NewClock(), nil, append(objects, set)...)
	return &world{t, c, revisions.History{Client: c, Live: c}, revisions.Owner{
		Object: set, Kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), HashLabel: hashLabel,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "log"}},
	}}
}

// sync makes the template one of an image, and returns the current revision and how many there are.
func (w *world) sync(image string) (*appsv1.ControllerRevision, []*appsv1.ControllerRevision) {
	w.Helper()
	w.owner.Template = &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "log"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
	current, all, err := w.history.Sync(w.Context(), &w.owner)
	if err != nil {
		w.Fatalf("sync %s: %v", image, err)
	}
	return current, all
}

// wantImages compares the images of revisions, the oldest first.
func (w *world) wantImages(all []*appsv1.ControllerRevision, want ...string) {
	w.Helper()
	var got []string
	for _, r := range all {
		template, err := revisions.Template(r)
		if err != nil {
			w.Fatal(err)
		}
		got = append(got, template.Spec.Containers[0].Image)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("revisions (-want +got):\n%s", diff)
	}
}

func TestEachTemplateHasARevision(t *testing.T) {
	w := newWorld(t)
	first, _ := w.sync("one")
	if !metav1.IsControlledBy(first, w.owner.Object) || first.Revision != 1 ||
		first.Name != "log-"+first.Labels[hashLabel] {
		t.Errorf("made %+v", first)
	}
	_, all := w.sync("two")
	w.wantImages(all, "one", "two")
	w.client.Writes()
	if w.sync("two"); len(w.client.Writes()) != 0 {
		t.Error("a template that has its revision was written again")
	}
	again, all := w.sync("one")
	w.wantImages(all, "two", "one")
	if again.Name != first.Name || again.Revision != 3 {
		t.Errorf("the older template came back as %s, revision %d; want %s, 3", again.Name, again.Revision, first.Name)
	}
}

// TestTakenNameChangesTheHash has the first name belong to something else.
func TestTakenNameChangesTheHash(t *testing.T) {
	w := newWorld(t)
	first, _ := w.sync("one")
	other := newWorld(t, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: first.Name, Namespace: "ns"}})
	current, _ := other.sync("one")
	if current.Name == first.Name || !strings.HasPrefix(current.Name, "log-") || other.owner.Collisions != 1 {
		t.Errorf("revision %s after %d collisions, want another name after 1", current.Name, other.owner.Collisions)
	}
}

// TestB070_RevisionWhoseAnswerWasLostIsFoundAgain has the cache not show what was made.
func TestB070_RevisionWhoseAnswerWasLostIsFoundAgain(t *testing.T) {
	w := newWorld(t)
	first, _ := w.sync("one")
	behind := newWorld(t)
	behind.client.Before = func(verb string, object client.Object) error {
		return w.client.Create(t.Context(), object) // the server has the name already
	}
	behind.history.Live = w.client
	current, _ := behind.sync("one")
	if current.UID != first.UID || behind.owner.Collisions != 0 {
		t.Errorf("found uid %q after %d collisions, want %q after none", current.UID, behind.owner.Collisions, first.UID)
	}
}

func TestTruncateKeepsWhatIsInUse(t *testing.T) {
	w := newWorld(t)
	var all []*appsv1.ControllerRevision
	for _, image := range []string{"one", "two", "three", "four"} {
		_, all = w.sync(image)
	}
	used := []string{all[0].Name, all[3].Name}
	inUse := func(r *appsv1.ControllerRevision) bool { return slices.Contains(used, r.Name) }
	for limit, want := range map[int32][]string{
		2: {"one", "two", "three", "four"}, -1: {"one", "two", "three", "four"},
	} {
		if err := w.history.Truncate(t.Context(), all, inUse, limit); err != nil {
			t.Fatal(err)
		}
		_, left := w.sync("four")
		w.wantImages(left, want...)
	}
	if err := w.history.Truncate(t.Context(), all, inUse, 1); err != nil {
		t.Fatal(err)
	}
	_, left := w.sync("four")
	w.wantImages(left, "one", "three", "four")
}
