package external_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controller/external"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

// office makes things, and says so unless the answer is to be lost.
type office struct {
	made  map[string]string
	calls []string
	lose  bool
}

func (o *office) Find(_ context.Context, key string) (string, error) {
	o.calls = append(o.calls, "find")
	return o.made[key], nil
}

func (o *office) Create(_ context.Context, key string) (string, error) {
	o.calls = append(o.calls, "create")
	o.made[key] = "thing-" + string(rune('a'+len(o.made)))
	if o.lose {
		return "", errors.New("no answer")
	}
	return o.made[key], nil
}

// world is an object at a server, and an office.
type world struct {
	*testing.T
	cp     *setpointtest.ControlPlane
	office *office
	op     external.Operation
	now    time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{
		T: t, cp: setpointtest.Start(t, setpointtest.Controllers("none")), office: &office{made: map[string]string{}},
		now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	w.op = external.Operation{Name: "example.dev/thing", Provider: w.office, Now: func() time.Time { return w.now }}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	if err := w.cp.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	return w
}

// read returns the object as it is, as a process does that was just started.
func (w *world) read() *corev1.ConfigMap {
	w.Helper()
	obj := &corev1.ConfigMap{}
	if err := w.cp.Client.Get(w.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, obj); err != nil {
		w.Fatal(err)
	}
	return obj
}

func (w *world) ensure(c client.Client) (string, time.Duration, error) {
	w.Helper()
	return w.op.Ensure(w.Context(), c, w.read())
}

func (w *world) wantCalls(want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.office.calls); diff != "" {
		w.Errorf("calls (-want +got):\n%s", diff)
	}
}

// wantNotes looks at all annotations of the object: a marker that is left would have the provider be asked
// for ever.
func (w *world) wantNotes(want map[string]string) {
	w.Helper()
	if diff := cmp.Diff(want, w.read().Annotations); diff != "" {
		w.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestThingIsMadeOnce(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		if id, wait, err := w.ensure(w.cp.Client); id != "thing-a" || wait != 0 || err != nil {
			t.Errorf("Ensure() = %q, %v, %v", id, wait, err)
		}
	}
	w.wantCalls("create")
	w.wantNotes(map[string]string{"example.dev/thing": string(w.read().UID) + " thing-a"})
}

// TestB070_LostAnswerOfACreateIsFoundAgain makes a thing and does not hear of it.
func TestB070_LostAnswerOfACreateIsFoundAgain(t *testing.T) {
	w := newWorld(t)
	w.office.lose = true
	if _, _, err := w.ensure(w.cp.Client); err == nil {
		t.Error("no error, and nobody knows what was made")
	}
	if id, _, err := w.ensure(w.cp.Client); id != "thing-a" || err != nil {
		t.Errorf("Ensure() = %q, %v, want what was made", id, err)
	}
	w.wantCalls("create", "find")
}

// noRecord fails the write after the thing was made.
type noRecord struct {
	client.Client
	writes int
}

func (c *noRecord) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if c.writes++; c.writes == 2 {
		return errors.New("the process died")
	}
	return c.Client.Patch(ctx, obj, patch, opts...)
}

// TestB136_ThingIsNotLeaked dies between the making of a thing and the record of it.
func TestB136_ThingIsNotLeaked(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.ensure(&noRecord{Client: w.cp.Client}); err == nil {
		t.Error("no error without a record")
	}
	if id, _, err := w.ensure(w.cp.Client); id != "thing-a" || err != nil {
		t.Errorf("Ensure() = %q, %v", id, err)
	}
	w.wantCalls("create", "find")
	stale := w.read()
	stale.ResourceVersion, stale.Annotations = "1", nil
	if _, _, err := w.op.Ensure(t.Context(), w.cp.Client, stale); !apierrors.IsConflict(err) {
		t.Errorf("a thing for what has changed since: %v, want a conflict", err)
	}
	w.wantCalls("create", "find")
}

// TestMarkerOfAnOlderGenerationIsLookedUp has the object change while nobody knows whether the thing of
// its first generation was made.
func TestMarkerOfAnOlderGenerationIsLookedUp(t *testing.T) {
	w := newWorld(t)
	w.op.PerGeneration = true
	w.office.lose = true
	obj := func(generation int64) *corev1.ConfigMap {
		o := w.read()
		o.Generation = generation // ConfigMaps have none of their own
		return o
	}
	if _, _, err := w.op.Ensure(t.Context(), w.cp.Client, obj(1)); err == nil {
		t.Error("no error, and nobody knows what was made")
	}
	first := string(w.read().UID) + "-1"
	if _, _, err := w.op.Ensure(t.Context(), w.cp.Client, obj(2)); err == nil {
		t.Error("no error, and nobody knows what was made for the second generation")
	}
	if diff := cmp.Diff(first+" thing-a", w.read().Annotations["example.dev/thing"]); diff != "" {
		t.Errorf("what the first generation made is not recorded (-want +got):\n%s", diff)
	}
	if id, _, err := w.op.Ensure(t.Context(), w.cp.Client, obj(2)); id != "thing-b" || err != nil {
		t.Errorf("Ensure() = %q, %v, want what the second generation made", id, err)
	}
	w.wantCalls("create", "find", "create", "find")

	// A copy of an object has the annotations of the first, and nothing to do with its things.
	w.office.calls, w.office.lose = nil, false
	copied := w.read()
	copied.Annotations = map[string]string{"example.dev/thing-pending": "another-uid"}
	if err := w.cp.Client.Update(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if id, _, err := w.op.Ensure(t.Context(), w.cp.Client, obj(3)); id != "thing-c" || err != nil {
		t.Errorf("Ensure() = %q, %v, want a thing of its own", id, err)
	}
	w.wantCalls("create")
}

// TestB138_UnusableThingsAreMadeMoreAndMoreRarely has the office make nothing of use for a day.
func TestB138_UnusableThingsAreMadeMoreAndMoreRarely(t *testing.T) {
	w := newWorld(t)
	usable := false
	w.op.Check = func(context.Context, string) error {
		if usable {
			return nil
		}
		return external.ErrUnusable
	}
	var waits []time.Duration
	for end := w.now.Add(24 * time.Hour); w.now.Before(end); {
		id, wait, err := w.ensure(w.cp.Client)
		if id != "" || wait <= 0 || err != nil {
			t.Fatalf("Ensure() = %q, %v, %v, want to wait", id, wait, err)
		}
		waits = append(waits, wait)
		w.now = w.now.Add(wait - 1)
		if _, wait, err := w.ensure(w.cp.Client); wait != 1 || err != nil || len(w.office.made) != len(waits) {
			t.Fatalf("Ensure() = %v, %v before its time, and %d things after %d waits", wait, err, len(w.office.made), len(waits))
		}
		w.wantNotes(map[string]string{
			"example.dev/thing-unusable": fmt.Sprint(len(waits), " ", w.now.Add(1-wait).Format(time.RFC3339)),
		})
		w.now = w.now.Add(1)
	}
	m := time.Minute
	want := []time.Duration{m, 2 * m, 4 * m, 8 * m, 16 * m, 32 * m, 64 * m}
	if diff := cmp.Diff(want, waits[:7]); diff != "" || waits[10] != 100*m {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	usable = true
	if id, wait, err := w.ensure(w.cp.Client); id == "" || wait != 0 || err != nil {
		t.Errorf("Ensure() = %q, %v, %v once it is of use", id, wait, err)
	}
}
