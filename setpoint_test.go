package setpoint_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/internal/dirlock"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	"github.com/setpoint-dev/setpoint/node/simulated"
	"github.com/setpoint-dev/setpoint/store"
)

// start runs a control plane in memory, with a node whose pods are simulated.
func start(t *testing.T, opts setpoint.Options) (*setpoint.ControlPlane, client.Client) {
	t.Helper()
	opts.Node = &setpoint.NodeOptions{Name: "n1", Runtime: simulated.New(nil, simulated.Handlers{}), NoProxy: true}
	cp, err := setpoint.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	if err := cp.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return cp, c
}

func deployment(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Command: []string{"run"}}}},
			},
		},
	}
}

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// settle lets time pass until a condition holds; it fails the test after ten minutes of the
// bubble's time.
func settle(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 6000 {
		synctest.Wait()
		if holds() {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	t.Fatalf("did not come true within ten minutes: %s", what)
}

func available(t *testing.T, c client.Client, want int32) func() bool {
	return func() bool {
		var d appsv1.Deployment
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, &d); err != nil {
			t.Fatal(err)
		}
		return d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == want &&
			d.Status.UpdatedReplicas == want && d.Status.Replicas == want
	}
}

// TestConvergedWritesNothing lets ten minutes pass over a system that is as declared: the only
// revisions are renewals of leases.
func TestConvergedWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp, c := start(t, setpoint.Options{History: time.Hour})
		for _, obj := range []client.Object{deployment(5), service()} {
			if err := c.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		}
		settle(t, "five replicas are available", available(t, c, 5))
		<-time.After(time.Minute) // the last status, events and endpoints
		synctest.Wait()

		from := cp.Store().Revision()
		<-time.After(10 * time.Minute)
		synctest.Wait()
		writes, leases := int(cp.Store().Revision()-from), 0
		for _, k := range builtin.All() {
			resource := k.GroupResource().String()
			for _, e := range eventsAfter(t, cp.Store(), resource, from) {
				if resource == "leases.coordination.k8s.io" {
					leases++
					continue
				}
				t.Errorf("revision %d wrote %s", e.Entry.Revision, e.Entry.Key)
			}
		}
		if writes != leases {
			t.Errorf("%d revisions in ten quiet minutes, %d of them renewals of leases", writes, leases)
		}
		if leases < 30 {
			t.Errorf("%d renewals in ten minutes: nothing was running", leases)
		}
	})
}

// TestLogHasNoWarningsOfTheAPI has the built-in controllers meet a deprecated kind, Endpoints: nobody
// who reads the log could do anything about it.
func TestLogHasNoWarningsOfTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		_, c := start(t, setpoint.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
		if err := c.Create(t.Context(), team); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(t.Context(), team); err != nil {
			t.Fatal(err)
		}
		settle(t, "the namespace is gone", func() bool {
			return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(team), team))
		})
		synctest.Wait()
		if strings.Contains(log.String(), "deprecated") {
			t.Errorf("the log:\n%s", &log)
		}
	})
}

func eventsAfter(t *testing.T, s store.Store, resource string, after store.Revision) []*store.Event {
	t.Helper()
	w, err := s.Watch(resource, "", after)
	if err != nil {
		t.Fatal(err)
	}
	var all []*store.Event
	for {
		events, err := w.TryNext()
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			return all
		}
		all = append(all, events...)
	}
}

// TestRollOutKeepsReplicasAvailable changes a template and looks at every moment in between.
func TestRollOutKeepsReplicasAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := start(t, setpoint.Options{})
		if err := c.Create(t.Context(), deployment(4)); err != nil {
			t.Fatal(err)
		}
		settle(t, "four replicas are available", available(t, c, 4))
		patch := `{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`
		d := deployment(4)
		if err := c.Patch(t.Context(), d, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
		settle(t, "the rollout is complete", func() bool {
			var pods corev1.PodList
			if err := c.List(t.Context(), &pods); err != nil {
				t.Fatal(err)
			}
			ready := 0
			for i := range pods.Items {
				if isReady(&pods.Items[i]) {
					ready++
				}
			}
			if ready < 3 { // of 4, a quarter may be missing
				t.Fatalf("%d replicas were ready in the middle of the rollout, want at least 3", ready)
			}
			return available(t, c, 4)()
		})
	})
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// TestDeletedDeploymentLeavesNothing deletes the owner of everything.
func TestDeletedDeploymentLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := start(t, setpoint.Options{})
		d := deployment(3)
		if err := c.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		settle(t, "three replicas are available", available(t, c, 3))
		if err := c.Delete(t.Context(), d, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
			t.Fatal(err)
		}
		settle(t, "nothing is left", func() bool {
			left := 0
			for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &corev1.PodList{}} {
				if err := c.List(t.Context(), list, client.InNamespace("default")); err != nil {
					t.Fatal(err)
				}
				left += lenOf(list)
			}
			return left == 0
		})
	})
}

func lenOf(list client.ObjectList) int {
	switch l := list.(type) {
	case *appsv1.DeploymentList:
		return len(l.Items)
	case *appsv1.ReplicaSetList:
		return len(l.Items)
	case *corev1.PodList:
		return len(l.Items)
	}
	panic(fmt.Sprintf("%T", list))
}

// TestRestartGoesOn stops a control plane with data on disk and starts it again.
func TestRestartGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first, c := start(t, setpoint.Options{DataDir: dir})
		if err := c.Create(t.Context(), deployment(2)); err != nil {
			t.Fatal(err)
		}
		settle(t, "two replicas are available", available(t, c, 2))
		last := first.Store().Revision()
		if err := first.Stop(); err != nil {
			t.Fatal(err)
		}
		second, c := start(t, setpoint.Options{DataDir: dir})
		if now := second.Store().Revision(); now < last {
			t.Errorf("revision %d after the restart, %d before", now, last)
		}
		if err := c.Patch(t.Context(), deployment(2), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))); err != nil {
			t.Fatal(err)
		}
		settle(t, "three replicas are available", available(t, c, 3))
	})
}

// TestControllersAreChosen checks how the list is read.
func TestOneDataFolderServesOne(t *testing.T) {
	dir := t.TempDir()
	first, err := setpoint.New(setpoint.Options{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	second, err := setpoint.New(setpoint.Options{DataDir: dir})
	if second != nil || err == nil || !strings.Contains(err.Error(), "in use by process") {
		t.Errorf("a second control plane on one folder: %v, %v; want an error that it is in use", second, err)
	}
	if err := first.Stop(); err != nil {
		t.Errorf("the first one: %v", err)
	}
}

func TestOneNodeStateServesOne(t *testing.T) {
	dir := t.TempDir()
	cp, err := setpoint.New(setpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cp.Stop()
	held, err := dirlock.Lock(dir) // as another node does
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	err = setpoint.RunNode(t.Context(), cp.RESTConfig(), setpoint.NodeOptions{
		Name: "n1", StateDir: dir, Runtime: simulated.New(nil, simulated.Handlers{}), NoProxy: true,
	})
	if err == nil || !strings.Contains(err.Error(), "in use by process") {
		t.Errorf("a second node on one folder: %v, want an error that it is in use", err)
	}
}

func TestControllersAreChosen(t *testing.T) {
	for list, wrong := range map[string]string{
		"all": "", "none": "", "": "", "deployment,replicaset": "", "-scheduler": "", "all,-gc": `there is no "-gc"`, "nosuch": `there is no "nosuch"`,
	} {
		var names []string
		if list != "" {
			names = strings.Split(list, ",")
		}
		cp, err := setpoint.New(setpoint.Options{Controllers: names})
		if (err == nil) != (wrong == "") || (err != nil && !strings.Contains(err.Error(), wrong)) {
			t.Errorf("controllers %q: %v, want an error with %q", list, err, wrong)
		}
		if cp != nil {
			_ = cp.Stop()
		}
	}
}

func Example() {
	ctx := context.Background()
	cp, err := setpoint.New(setpoint.Options{})
	if err != nil {
		panic(err)
	}
	defer cp.Stop()
	if err := cp.Start(ctx); err != nil {
		panic(err)
	}
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		panic(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "example"}}
	if err := c.Create(ctx, ns); err != nil {
		panic(err)
	}
	fmt.Println(ns.Name, ns.Status.Phase)
	// Output: example Active
}

// TestNodeOffersWhatItIsSaidToHave is how somebody advertises devices of a node: by its capacity.
func TestNodeOffersWhatItIsSaidToHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := start(t, setpoint.Options{})
		var n corev1.Node
		read := func() error { return c.Get(t.Context(), client.ObjectKey{Name: "n1"}, &n) }
		settle(t, "the node is there", func() bool { return read() == nil })

		const dongle, own = "example.com/dongle", corev1.ResourcePods
		before := n.Status.Capacity[own]
		for _, step := range []struct{ patch, want string }{
			{`[{"op":"add","path":"/status/capacity/example.com~1dongle","value":"4"}]`, "4"},
			{`[{"op":"replace","path":"/status/capacity/example.com~1dongle","value":"3"}]`, "3"},
			{`[{"op":"remove","path":"/status/capacity/example.com~1dongle"}]`, ""},
		} {
			if err := c.Status().Patch(t.Context(), &n, client.RawPatch(types.JSONPatchType, []byte(step.patch))); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Minute)
			synctest.Wait()
			if err := read(); err != nil {
				t.Fatal(err)
			}
			for what, list := range map[string]corev1.ResourceList{
				"capacity": n.Status.Capacity, "allocatable": n.Status.Allocatable,
			} {
				got, has := list[dongle]
				if has != (step.want != "") || has && got.String() != step.want {
					t.Errorf("after %s the %s is %v", step.patch, what, list)
				}
			}
			if after := n.Status.Capacity[own]; !after.Equal(before) {
				t.Errorf("the node's own capacity was %v and is %v", &before, &after)
			}
		}
	})
}
