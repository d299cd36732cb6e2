// Command pods measures how many pods a second a control plane brings from their creation through
// the scheduler to Ready on simulated nodes. All of it is in one process: the server with its store
// on disk, the controllers, and an agent for each node with a watch of its own, whose runtime runs
// nothing.
//
//	go run ./pods -nodes 100 -pods 5000
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/node/simulated"
)

type settings struct{ nodes, pods, perDeployment int }

func main() {
	var set settings
	flag.IntVar(&set.nodes, "nodes", 100, "simulated nodes")
	flag.IntVar(&set.pods, "pods", 5000, "pods to bring up, in all")
	flag.IntVar(&set.perDeployment, "per-deployment", 50, "pods of each deployment")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, set); err != nil {
		fmt.Fprintln(os.Stderr, "pods:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, set settings) error {
	dir, err := os.MkdirTemp("", "pods-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cp, err := setpoint.New(setpoint.Options{DataDir: dir})
	if err != nil {
		return err
	}
	defer cp.Stop()
	if err := cp.Start(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var nodes sync.WaitGroup
	defer nodes.Wait()
	defer cancel()
	var network simulated.Network
	for i := range set.nodes {
		name := fmt.Sprintf("node-%04d", i)
		nodes.Go(func() {
			err := setpoint.RunNode(ctx, cp.RESTConfig(), setpoint.NodeOptions{
				Name: name, StateDir: filepath.Join(dir, name), Runtime: network.New(nil, simulated.Handlers{}), NoProxy: true,
			})
			if err != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "pods: %s: %v\n", name, err)
			}
		})
	}
	web, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		return err
	}
	if err := await(ctx, set.nodes, func() (int, error) { return readyNodes(ctx, web) }); err != nil {
		return err
	}
	return measure(ctx, web, set)
}

func measure(ctx context.Context, web client.Client, set settings) error {
	began, cpu := time.Now(), processorTime()
	deployments := (set.pods + set.perDeployment - 1) / set.perDeployment
	for i := range deployments {
		if err := web.Create(ctx, deployment(i, set.perDeployment)); err != nil {
			return err
		}
	}
	want := deployments * set.perDeployment
	if err := await(ctx, want, func() (int, error) { return readyPods(ctx, web) }); err != nil {
		return err
	}
	took, used := time.Since(began), processorTime()-cpu
	fmt.Printf("%d nodes: %d pods ready after %v: %.0f pods/s, %v of CPU a pod, all parts together\n",
		set.nodes, want, took.Round(time.Millisecond), float64(want)/took.Seconds(), (used / time.Duration(want)).Round(time.Microsecond))
	return nil
}

func deployment(i, replicas int) *appsv1.Deployment {
	n, labels := int32(replicas), map[string]string{"app": fmt.Sprintf("web-%d", i)}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: labels["app"], Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/web:1"}}},
			},
		},
	}
}

// await asks a few times a second until as many are ready as wanted.
func await(ctx context.Context, want int, ready func() (int, error)) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		n, err := ready()
		if err != nil || n >= want {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func readyNodes(ctx context.Context, web client.Client) (ready int, err error) {
	var all corev1.NodeList
	err = web.List(ctx, &all)
	for i := range all.Items {
		for _, c := range all.Items[i].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	return ready, err
}

// readyPods adds up what the deployments say, which is cheaper to read than the pods.
func readyPods(ctx context.Context, web client.Client) (ready int, err error) {
	var all appsv1.DeploymentList
	err = web.List(ctx, &all)
	for i := range all.Items {
		ready += int(all.Items[i].Status.ReadyReplicas)
	}
	return ready, err
}

// processorTime is what the process has used of its processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
