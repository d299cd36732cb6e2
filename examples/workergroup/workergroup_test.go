package workergroup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/examples/workergroup"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

// types knows WorkerGroup beside all that client-go does.
var types = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, workergroup.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// licenses notes what was returned, after failing so many times.
type licenses struct {
	mu       sync.Mutex
	failures int
	returned []string
}

func (l *licenses) Return(_ context.Context, uid string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failures > 0 {
		l.failures--
		return errors.New("the office is closed")
	}
	l.returned = append(l.returned, uid)
	return nil
}

// served has a control plane know WorkerGroups, by the definition that users install.
func served() setpointtest.Option { return setpointtest.CRDs("config/crd/bases") }

// start runs a control plane that knows WorkerGroups, and the operator.
func start(t *testing.T, l *licenses, opts ...setpointtest.Option) *setpointtest.ControlPlane {
	t.Helper()
	cp := setpointtest.Start(t, append(opts, served(), setpointtest.Scheme(types))...)
	mgr, err := controller.NewManager(cp.Config, controller.ManagerOptions{
		Scheme: types, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err == nil {
		err = workergroup.Setup(mgr, l)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	return cp
}

func group(replicas int32) *workergroup.WorkerGroup {
	return &workergroup.WorkerGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       workergroup.Spec{Replicas: &replicas, Command: []string{"work"}},
	}
}

func create(t *testing.T, cp *setpointtest.ControlPlane, obj client.Object) {
	t.Helper()
	if err := cp.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

// workers returns the names of the pods that there are and that are not going, in order.
func workers(t *testing.T, cp *setpointtest.ControlPlane) (names []string) {
	t.Helper()
	var pods corev1.PodList
	if err := cp.Client.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

func want(t *testing.T, cp *setpointtest.ControlPlane, names ...string) {
	t.Helper()
	if diff := cmp.Diff(names, workers(t, cp)); diff != "" {
		t.Errorf("workers (-want +got):\n%s", diff)
	}
}

// TestWorkersBecomeReady makes a group, loses a worker, and makes the group smaller.
func TestWorkersBecomeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := start(t, &licenses{}, setpointtest.Nodes(1))
		g := group(5)
		create(t, cp, g)
		cp.Await(g, "five workers are ready", func() bool { return g.Status.Ready == 5 })
		want(t, cp, "web-0", "web-1", "web-2", "web-3", "web-4")

		lost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-2"}}
		if err := cp.Client.Delete(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		cp.Await(g, "four are left", func() bool { return g.Status.Ready == 4 })
		cp.Await(g, "there are five again", func() bool { return g.Status.Ready == 5 })

		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`))
		if err := cp.Client.Patch(t.Context(), g, patch); err != nil {
			t.Fatal(err)
		}
		cp.Await(g, "two workers are ready", func() bool {
			return g.Status.ObservedGeneration == g.Generation && g.Status.Ready == 2
		})
		want(t, cp, "web-0", "web-1")
	})
}

// TestMilestonesAreApart stops at each of them.
func TestMilestonesAreApart(t *testing.T) {
	for name, test := range map[string]struct {
		opts []setpointtest.Option
		want workergroup.Status
	}{
		"no node":   {nil, workergroup.Status{ObservedGeneration: 1, Existing: 3}},
		"one node":  {[]setpointtest.Option{setpointtest.Nodes(1)}, workergroup.Status{ObservedGeneration: 1, Existing: 3, Scheduled: 3, Started: 3, Ready: 3}},
		"no placer": {[]setpointtest.Option{setpointtest.Nodes(1), setpointtest.Controllers("-scheduler")}, workergroup.Status{ObservedGeneration: 1, Existing: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cp := start(t, &licenses{}, test.opts...)
				g := group(3)
				create(t, cp, g)
				<-time.After(time.Minute)
				synctest.Wait()
				if err := cp.Client.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, g.Status); diff != "" {
					t.Errorf("a minute later (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestDeletionWaitsForTheLicense has the office be closed for a while.
func TestDeletionWaitsForTheLicense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &licenses{failures: 8}
		cp := start(t, l, setpointtest.Nodes(1))
		g := group(2)
		create(t, cp, g)
		cp.Await(g, "two workers are ready", func() bool { return g.Status.Ready == 2 })
		uid := string(g.UID)
		if err := cp.Client.Delete(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		if err := cp.Client.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
			t.Fatalf("the group went before its license was returned: %v", err)
		}
		cp.AwaitGone(g)
		if diff := cmp.Diff([]string{uid}, l.returned); diff != "" {
			t.Errorf("returned (-want +got):\n%s", diff)
		}
		cp.AwaitGone(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"}})
		cp.AwaitGone(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1"}})
	})
}

// TestTrouble has requests fail in every way while a group grows and shrinks.
func TestTrouble(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "workergroups"}, "web", errors.New("changed"))
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faults := setpointtest.NewFaults(seed)
				for _, r := range []setpointtest.Rule{
					{Verbs: []string{"create", "delete"}, Resources: []string{"pods"}, Chance: 0.3, Effect: setpointtest.LoseReply()},
					{Verbs: []string{"create", "delete"}, Resources: []string{"pods"}, Chance: 0.2, Effect: setpointtest.Unreachable()},
					{Verbs: []string{"patch"}, Chance: 0.3, Effect: setpointtest.Refuse(conflict)},
					{Verbs: []string{"get", "list", "watch"}, Chance: 0.2, Effect: setpointtest.Delay(time.Second)},
				} {
					faults.Add(r)
				}
				cp := start(t, &licenses{}, setpointtest.Nodes(1), setpointtest.Inject(faults), setpointtest.Patience(time.Hour))
				g := group(0)
				create(t, cp, g)
				for _, replicas := range []int32{5, 1, 7, 3} {
					patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
					if err := cp.Client.Patch(t.Context(), g, patch); err != nil {
						t.Fatal(err)
					}
					faults.DropWatches()
					cp.Await(g, fmt.Sprint(replicas, " workers are ready"), func() bool {
						return g.Status.ObservedGeneration == g.Generation &&
							g.Status.Existing == replicas && g.Status.Ready == replicas
					})
				}
				want(t, cp, "web-0", "web-1", "web-2")
			})
		})
	}
}

// TestReadsOfThePastMakeNoWorkers freezes what the operator sees for ten minutes.
func TestReadsOfThePastMakeNoWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := setpointtest.NewFaults(1)
		cp := start(t, &licenses{}, setpointtest.Nodes(1), setpointtest.Inject(faults))
		synctest.Wait()
		thaw := faults.FreezeWatches("pods")
		g := group(5)
		create(t, cp, g)
		<-time.After(10 * time.Minute)
		synctest.Wait()
		want(t, cp, "web-0", "web-1", "web-2", "web-3", "web-4")
		thaw()
		cp.Await(g, "five workers are ready", func() bool { return g.Status.Ready == 5 })
	})
}

// TestWrongGroupsAreRefused checks what the definition says, and what it fills in.
func TestWrongGroupsAreRefused(t *testing.T) {
	cp := setpointtest.Start(t, served(), setpointtest.Scheme(types),
		setpointtest.Controllers("none"))
	for text, change := range map[string]func(*workergroup.WorkerGroup){
		"spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0": func(g *workergroup.WorkerGroup) { *g.Spec.Replicas = -1 },
		"spec.replicas: Invalid value: 101: spec.replicas in body should be less than or equal to 100": func(g *workergroup.WorkerGroup) { *g.Spec.Replicas = 101 },
		"spec.command: Invalid value: 0: spec.command in body should have at least 1 items":            func(g *workergroup.WorkerGroup) { g.Spec.Command = []string{} },
	} {
		g := group(1)
		change(g)
		if err := cp.Client.Create(t.Context(), g); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), text) {
			t.Errorf("created with the answer %v, want %q", err, text)
		}
	}
	g := group(1)
	g.Spec.Replicas = nil
	create(t, cp, g)
	if g.Spec.Replicas == nil || *g.Spec.Replicas != 1 || g.Generation != 1 {
		t.Errorf("the group has replicas %v and generation %d, want 1 and 1", g.Spec.Replicas, g.Generation)
	}
}

// TestTrial has the operator's process be killed and started again, lose its lease and read the past while
// a group is made, changed and deleted.
func TestTrial(t *testing.T) {
	l := &licenses{}
	ready := func(n int32) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			g := group(0)
			if err := c.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
				return err
			}
			if s := g.Status; s.ObservedGeneration != g.Generation || s.Existing != n || s.Ready != n {
				return fmt.Errorf("the status is %+v, want %d workers", s, n)
			}
			return nil
		}
	}
	setpointtest.Trial{
		Setup:   func(mgr *controller.Manager) error { return workergroup.Setup(mgr, l) },
		Scheme:  types,
		Options: []setpointtest.Option{served(), setpointtest.Nodes(1)},
		Steps: []setpointtest.Step{
			{
				Name:  "five workers",
				Do:    func(ctx context.Context, c client.Client) error { return c.Create(ctx, group(5)) },
				Holds: ready(5),
			},
			{
				Name: "two workers",
				Do: func(ctx context.Context, c client.Client) error {
					patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`))
					return c.Patch(ctx, group(0), patch)
				},
				Holds: ready(2),
			},
			{
				Name: "no group",
				Do:   func(ctx context.Context, c client.Client) error { return c.Delete(ctx, group(0)) },
				Holds: func(ctx context.Context, c client.Client) error {
					err := c.Get(ctx, client.ObjectKeyFromObject(group(0)), &workergroup.WorkerGroup{})
					if apierrors.IsNotFound(err) {
						return nil
					}
					return fmt.Errorf("the group is still there: %w", err)
				},
			},
		},
		Seeds: []uint64{1, 2},
	}.Run(t)
}
