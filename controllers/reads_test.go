package controllers_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

// readable are the kinds that a controller can read in TestB158_FailedListInAPassDecidesNothing:
// those that wake it. Whatever it reads besides fails.
var readable = map[string]string{
	"cronjob": "CronJob", "daemonset": "DaemonSet", "deployment": "Deployment", "endpointslice": "Service", "job": "Job",
	"namespace": "Namespace", "nodelifecycle": "Node", "replicaset": "ReplicaSet", "serviceaccount": "Namespace",
	"statefulset": "StatefulSet",
}

// TestB158_FailedListInAPassDecidesNothing has each controller come to its end, its objects change while it
// does not run, and then every list fail that it makes in a pass, be it answered by the cache or by the
// server: it neither creates nor deletes.
func TestB158_FailedListInAPassDecidesNothing(t *testing.T) {
	all := trials()
	for name, kind := range readable {
		trial, ok := all[name]
		if !ok {
			t.Errorf("there is no trial of %s", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { listsFail(t, name, kind, trial) })
		})
	}
}

func listsFail(t *testing.T, name, kind string, trial setpointtest.Trial) {
	faults := setpointtest.NewFaults(1)
	cp := setpointtest.Start(t, setpointtest.Nodes(2), setpointtest.Controllers("-"+name), setpointtest.Inject(faults))
	var failed atomic.Int64 // reads
	stop := start(t, cp, trial, nil)
	for i, step := range trial.Steps {
		if err := step.Do(t.Context(), cp.Client); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			<-time.After(10 * time.Minute)
			synctest.Wait()
			stop()
		}
	}
	decided := watchDecisions(faults)
	faults.Add(setpointtest.Rule{
		Verbs: []string{"list"},
		Effect: func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			failures := []setpointtest.Effect{
				setpointtest.Refuse(apierrors.NewBadRequest("field label not supported")),
				setpointtest.Refuse(apierrors.NewTimeoutError("too slow", 1)),
				setpointtest.Unreachable(),
			}
			return failures[failed.Add(1)%3](req, next)
		},
	})
	stop = start(t, cp, trial, func(obj any) (any, error) {
		if o, ok := obj.(client.Object); ok && o.GetObjectKind().GroupVersionKind().Kind == kind {
			return obj, nil
		}
		failed.Add(1)
		return nil, errors.New("it cannot be read")
	})
	<-time.After(20 * time.Minute)
	synctest.Wait()
	stop()
	if made := decided(); len(made) > 0 {
		t.Errorf("decided without having read: %q", made)
	}
	if failed.Load() == 0 {
		t.Error("no read failed: nothing was tried")
	}
}

// watchDecisions notes what is created and deleted.
func watchDecisions(faults *setpointtest.Faults) (made func() []string) {
	var mu sync.Mutex
	found := map[string]bool{}
	faults.Add(setpointtest.Rule{
		Verbs: []string{"create", "delete", "deletecollection"},
		Effect: func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if !strings.HasSuffix(req.URL.Path, "/events") {
				mu.Lock()
				defer mu.Unlock()
				found[req.Method+" "+req.URL.Path] = true
			}
			return next.RoundTrip(req)
		},
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(maps.Keys(found))
	}
}

// start runs the controller of a trial until the function is called that it returns. What it reads
// from its cache goes through transform.
func start(t *testing.T, cp *setpointtest.ControlPlane, trial setpointtest.Trial, transform func(any) (any, error)) (stop func()) {
	t.Helper()
	opts := controller.ManagerOptions{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	opts.Cache.DefaultTransform = transform
	mgr, err := controller.NewManager(cp.Config, opts)
	if err == nil {
		err = trial.Setup(mgr)
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- mgr.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestB133_WhatWasNotSeenChangesNothing has a ReplicaSet be scaled to and fro, where its controller sees only
// how it ends: because its watch breaks and has to begin anew, or because it does not run. The pods are then the same as
// if it had seen all.
func TestB133_WhatWasNotSeenChangesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		scales []string
		lose   bool // a pod goes meanwhile
		want   int  // pods in the end
		kept   int  // of the first three
	}{
		"3, 1, 3":                 {[]string{"1", "3"}, false, 3, 3},
		"3, 0, 3, and a pod less": {[]string{"0", "3"}, true, 3, 2},
		"3, 6, 2":                 {[]string{"6", "2"}, false, 2, 2},
	} {
		for _, blind := range []string{"relisted", "stopped"} {
			t.Run(name+"/"+blind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					faults := setpointtest.NewFaults(1)
					cp := setpointtest.Start(t, setpointtest.Nodes(1), setpointtest.Controllers("-replicaset"), setpointtest.Inject(faults))
					trial := trials()["replicaset"]
					stop := start(t, cp, trial, nil)
					set := replicaSet(3)
					if err := cp.Client.Create(t.Context(), set); err != nil {
						t.Fatal(err)
					}
					cp.Await(set, "three are ready", func() bool { return set.Status.ReadyReplicas == 3 })
					first := pods(t, cp)
					see := faults.FreezeWatches()
					if blind == "stopped" {
						stop()
					}
					for _, scale := range test.scales {
						if err := patches(set, `{"spec":{"replicas":`+scale+`}}`)(t.Context(), cp.Client); err != nil {
							t.Fatal(err)
						}
					}
					if test.lose {
						if err := cp.Client.Delete(t.Context(), &first[0], client.GracePeriodSeconds(0)); err != nil {
							t.Fatal(err)
						}
					}
					<-time.After(time.Minute)
					if blind == "relisted" {
						expired := setpointtest.Refuse(apierrors.NewResourceExpired("too old"))
						faults.Add(setpointtest.Rule{Verbs: []string{"watch"}, Resources: []string{"replicasets"}, Times: 1, Effect: expired})
						faults.DropWatches()
					}
					see()
					if blind == "stopped" {
						stop = start(t, cp, trial, nil)
					}
					<-time.After(10 * time.Minute)
					synctest.Wait()
					stop()
					kept := 0
					last := pods(t, cp)
					for _, pod := range last {
						for _, before := range first {
							if pod.UID == before.UID {
								kept++
							}
						}
					}
					if len(last) != test.want || kept != test.kept {
						t.Errorf("%d pods are left, %d of them of the first three, want %d and %d", len(last), kept, test.want, test.kept)
					}
				})
			})
		}
	}
}

func pods(t *testing.T, cp *setpointtest.ControlPlane) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := cp.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func replicaSet(replicas int32) *appsv1.ReplicaSet {
	d := web(replicas)
	return &appsv1.ReplicaSet{
		ObjectMeta: d.ObjectMeta,
		Spec:       appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
}
