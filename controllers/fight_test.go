package controllers_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

// setter is a controller that wants one value of a config map's field, and gives up after some writes so
// that a test ends.
func setter(t *testing.T, mgr *controller.Manager, name, value string) {
	t.Helper()
	writes := 0
	c := mgr.GetClient()
	err := controller.ManagedBy(mgr).Named(name).For(&corev1.ConfigMap{}).
		Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			var cm corev1.ConfigMap
			if err := c.Get(ctx, req.NamespacedName, &cm); err != nil || req.Name != "shared" || cm.Data["mode"] == value || writes == 10 {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			writes++
			cm.Data["mode"] = value
			return reconcile.Result{}, c.Update(ctx, &cm)
		}))
	if err != nil {
		t.Fatal(err)
	}
}

// run starts managers that log to a writer, and ends them with the test.
func run(t *testing.T, cp *setpointtest.ControlPlane, log io.Writer, setup func(*controller.Manager)) {
	t.Helper()
	mgr, err := controller.NewManager(cp.Config, controller.ManagerOptions{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	setup(mgr)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// about returns the events with a reason.
func about(t *testing.T, cp *setpointtest.ControlPlane, reason string) (found []corev1.Event) {
	t.Helper()
	var list corev1.EventList
	if err := cp.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Reason == reason {
			found = append(found, e)
		}
	}
	return found
}

// TestTwoControllersThatFightAreNamed has two reconcilers, each right by itself, set one field.
func TestTwoControllersThatFightAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := setpointtest.Start(t, setpointtest.Controllers("none"))
		var log strings.Builder
		run(t, cp, &log, func(mgr *controller.Manager) {
			setter(t, mgr, "eager", "fast")
			setter(t, mgr, "frugal", "slow")
		})
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shared"}, Data: map[string]string{"mode": "slow"},
		}
		if err := cp.Client.Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		events := about(t, cp, "FieldFight")
		want := `.data.mode is set in turns by "eager" and "frugal", each undoing the other`
		if len(events) != 1 || events[0].Message != want || events[0].InvolvedObject.UID != cm.UID {
			t.Errorf("events: %+v, want one that says %q", events, want)
		}
		for _, part := range []string{"name=shared", "field=.data.mode", "eager", "frugal"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("the log has no %q:\n%s", part, log.String())
			}
		}
	})
}

// TestRolloutIsNoFight watches a deployment become another, and back.
func TestRolloutIsNoFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := setpointtest.Start(t, setpointtest.Nodes(3))
		d := web(5)
		if err := cp.Client.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		for _, image := range []string{"one", "two", "one", "three"} {
			patch := `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}}}`
			if err := patches(d, patch)(t.Context(), cp.Client); err != nil {
				t.Fatal(err)
			}
			cp.Await(d, "five new replicas are available, and no others", func() bool {
				s := d.Status
				return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == 5 && s.AvailableReplicas == 5 && s.Replicas == 5
			})
		}
		for _, reason := range []string{"FieldFight", "HotLoop"} {
			if events := about(t, cp, reason); len(events) != 0 {
				t.Errorf("false alarm: %+v", events[0])
			}
		}
	})
}
