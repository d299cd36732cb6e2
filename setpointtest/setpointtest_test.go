package setpointtest_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

func deployment(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// create makes objects, or fails the test.
func create(t testing.TB, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWorkloadsRun has a deployment's pods become ready, and go with it.
func TestWorkloadsRun(t *testing.T) {
	t.Parallel()
	cp := setpointtest.Start(t, setpointtest.Nodes(2))
	d := deployment(4)
	create(t, cp.Client, d)
	cp.Await(d, "four replicas are ready", func() bool { return d.Status.ReadyReplicas == 4 })

	var pods corev1.PodList
	if err := cp.Client.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	nodes := map[string]int{}
	for _, pod := range pods.Items {
		nodes[pod.Spec.NodeName]++
	}
	if nodes["node-1"]+nodes["node-2"] != 4 || len(nodes) != 2 {
		t.Errorf("pods by node: %v, want four on node-1 and node-2", nodes)
	}

	if err := cp.Client.Delete(t.Context(), d, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	cp.AwaitGone(d)
	if err := cp.Client.List(t.Context(), &pods); err != nil || len(pods.Items) != 0 {
		t.Errorf("%d pods outlived their deployment (error %v)", len(pods.Items), err)
	}
}

// TestInABubble has time pass that a test could not wait for.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := setpointtest.Start(t, setpointtest.Nodes(1))
		d := deployment(2)
		create(t, cp.Client, d)
		cp.Await(d, "two replicas are ready", func() bool { return d.Status.ReadyReplicas == 2 })
		<-time.After(time.Hour)
		synctest.Wait()
		if err := cp.Client.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil || d.Status.ReadyReplicas != 2 {
			t.Errorf("an hour later %d replicas are ready (error %v), want 2", d.Status.ReadyReplicas, err)
		}
	})
}

// TestControllersAreChosen leaves out the one that would act.
func TestControllersAreChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := setpointtest.Start(t, setpointtest.Controllers("-deployment"))
		create(t, cp.Client, deployment(1))
		<-time.After(time.Minute)
		synctest.Wait()
		var sets appsv1.ReplicaSetList
		if err := cp.Client.List(t.Context(), &sets); err != nil || len(sets.Items) != 0 {
			t.Errorf("%d replica sets (error %v), want none: nobody makes them", len(sets.Items), err)
		}
	})
}

// TestAwaitSeesWhatComesLater waits for objects that are made, changed and deleted meanwhile, in a
// Go type and without one.
func TestAwaitSeesWhatComesLater(t *testing.T) {
	t.Parallel()
	cp := setpointtest.Start(t, setpointtest.Controllers("none"))
	ctx := t.Context()
	var maker sync.WaitGroup
	defer maker.Wait()
	typed := configMap("late")
	maker.Go(func() {
		obj := configMap("late")
		for _, err := range []error{
			cp.Client.Create(ctx, obj),
			cp.Client.Patch(ctx, obj, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"k":"v"}}`))),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	cp.Await(typed, "it has a value", func() bool { return typed.Data["k"] == "v" })

	loose := &unstructured.Unstructured{}
	loose.SetAPIVersion("v1")
	loose.SetKind("ConfigMap")
	loose.SetNamespace("default")
	loose.SetName("late")
	cp.Await(loose, "it has a value", func() bool {
		value, _, _ := unstructured.NestedString(loose.Object, "data", "k")
		return value == "v"
	})
	if err := cp.Client.Delete(ctx, loose); err != nil {
		t.Fatal(err)
	}
	cp.AwaitGone(typed)
	cp.AwaitGone(configMap("never-was"))
}

// recorder is a test that notes how it fails.
type recorder struct {
	testing.TB
	failure chan string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure <- fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestAwaitGivesUp waits in vain, for a minute of the bubble's time.
func TestAwaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &recorder{TB: t, failure: make(chan string)}
		cp := setpointtest.Start(fake, setpointtest.Controllers("none"))
		obj := configMap("still")
		create(t, cp.Client, obj)
		began := time.Now()
		go cp.Await(obj, "it has a value", func() bool { return obj.Data["k"] != "" })
		got := <-fake.failure
		want := "*v1.ConfigMap default/still: did not come true within 1m0s: it has a value; it is\n"
		if len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("it fails with\n%s\nwant it to begin with\n%s", got, want)
		}
		if waited := time.Since(began); waited != time.Minute {
			t.Errorf("it gave up after %v, want a minute", waited)
		}
	})
}

// TestDefinitionsAreServed has a test bring kinds as their definitions.
func TestDefinitionsAreServed(t *testing.T) {
	cp := setpointtest.Start(t, setpointtest.Controllers("none"), setpointtest.CRDs("testdata/crds"))
	valve := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "plant.example.dev/v1", "kind": "Valve",
		"metadata": map[string]any{"namespace": "default", "name": "main"},
		"spec":     map[string]any{"percentOpen": int64(40)},
	}}
	create(t, cp.Client, valve)
	cp.Await(valve, "it is open by 40", func() bool {
		percent, _, _ := unstructured.NestedInt64(valve.Object, "spec", "percentOpen")
		return percent == 40
	})
}

// TestPort lets clients in from outside.
func TestPort(t *testing.T) {
	t.Parallel()
	cp := setpointtest.Start(t, setpointtest.Port(), setpointtest.Controllers("none"))
	text, err := cp.ControlPlane.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	outside, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	create(t, outside, configMap("a"))
	cp.Await(configMap("a"), "it is there", func() bool { return true })
}

// TestTestsDoNotMeet makes the same object in several.
func TestTestsDoNotMeet(t *testing.T) {
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			create(t, setpointtest.Start(t).Client, configMap("same"))
		})
	}
}

// TestNothingIsLeft looks for goroutines and files after a test has ended.
func TestNothingIsLeft(t *testing.T) {
	before := goleak.IgnoreCurrent()
	temp := t.TempDir()
	t.Run("inner", func(t *testing.T) {
		t.Setenv("TMPDIR", temp)
		cp := setpointtest.Start(t, setpointtest.Nodes(1))
		d := deployment(1)
		create(t, cp.Client, d)
		cp.Await(d, "it is ready", func() bool { return d.Status.ReadyReplicas == 1 })
	})
	goleak.VerifyNone(t, before)
	left, err := os.ReadDir(temp)
	if err != nil || len(left) != 0 {
		t.Errorf("files are left: %v (error %v)", left, err)
	}
}

// TestNoFilesWithoutNodes runs where no file can be made.
func TestNoFilesWithoutNodes(t *testing.T) {
	t.Setenv("TMPDIR", "/nonexistent")
	create(t, setpointtest.Start(t).Client, configMap("a"))
}

// TestConfigEndsWithTheTest has the server say so, and not hang.
func TestConfigEndsWithTheTest(t *testing.T) {
	var late *setpoint.ControlPlane
	t.Run("inner", func(t *testing.T) { late = setpointtest.Start(t).ControlPlane })
	c, err := client.New(late.RESTConfig(), client.Options{})
	if err == nil {
		err = c.Create(context.Background(), configMap("late"))
	}
	if err == nil || apierrors.IsAlreadyExists(err) {
		t.Errorf("a write after the end: %v, want an error", err)
	}
}

// BenchmarkStart is one control plane with all controllers, from nothing to its first written object.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		startOne(b)
	}
}

// BenchmarkStart100 is a hundred of them at once; an operation is all of them.
func BenchmarkStart100(b *testing.B) {
	for b.Loop() {
		done := make(chan struct{})
		for range 100 {
			go func() {
				defer func() { done <- struct{}{} }()
				startOne(b)
			}()
		}
		for range 100 {
			<-done
		}
	}
}

func startOne(b *testing.B) {
	cp, err := setpoint.New(setpoint.Options{})
	if err != nil {
		b.Error(err)
		return
	}
	defer cp.Stop()
	if err := cp.Start(b.Context()); err != nil {
		b.Error(err)
		return
	}
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err == nil {
		err = c.Create(b.Context(), configMap("a"))
	}
	if err != nil {
		b.Error(err)
	}
}
