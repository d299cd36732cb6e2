package controller_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/tinyapi"
	"github.com/setpoint-dev/setpoint/lease"
)

// TestB128_LeaseIsGivenBackWhenWorkersHaveEnded stops the leader in the middle of a pass that takes its
// time, and notes what happens in which order. The one that follows has its cache filled already.
func TestB128_LeaseIsGivenBackWhenWorkersHaveEnded(t *testing.T) {
	options := func(holder string) controller.ManagerOptions {
		return controller.ManagerOptions{Lease: &lease.Options{Namespace: "default", Name: "l", Holder: holder}}
	}
	inWorld(t, options("one"), func(w *world) {
		var order []string
		w.server.Fail(tinyapi.Faults{Before: func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/leases/") {
				return nil, nil
			}
			body, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(`"holderIdentity":""`)) {
				order = append(order, "lease given back")
			}
			return nil, err
		}})
		managers := map[string]*controller.Manager{"one": w.mgr, "two": w.manager(options("two"))}
		stops := map[string]func() error{}
		for _, name := range []string{"one", "two"} {
			w.must(controller.ManagedBy(managers[name]).For(&appsv1.ReplicaSet{}).
				Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
					order = append(order, name+" begins")
					if name == "one" {
						<-ctx.Done()
						<-time.After(20 * time.Second) // longer than the lease lasts without a renewal
						order = append(order, "one ends")
					}
					return reconcile.Result{}, nil
				})))
			stops[name] = w.start(managers[name])
			w.pass(5 * time.Second)
		}
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.pass(time.Second)
		w.server.Requests()
		w.must(stops["one"]())
		// Whoever waits looks about every two to four seconds.
		w.pass(4 * time.Second)
		want := []string{"one begins", "one ends", "lease given back", "two begins"}
		if diff := cmp.Diff(want, order); diff != "" {
			w.Errorf("order (-want +got):\n%s", diff)
		}
		for _, r := range w.server.Requests() {
			if strings.Contains(r, "/replicasets") {
				w.Errorf("the follower had to ask: %s", r)
			}
		}
	})
}

// TestEventsAreOwnedByTheirReporter looks at the query that the server is asked with.
func TestEventsAreOwnedByTheirReporter(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		w.start(w.mgr)
		rs := replicaSet("web", 1)
		w.must(w.live.Create(w.Context(), rs))
		w.server.Requests()
		w.mgr.GetEventRecorder("web-operator").Eventf(rs, nil, corev1.EventTypeNormal, "Made", "Make", "made it")
		w.pass(time.Second)
		if asked := w.server.Requests(); !slices.Contains(asked, "POST /api/v1/namespaces/default/events?fieldManager=web-operator") {
			w.Errorf("asked: %q", asked)
		}
	})
}
