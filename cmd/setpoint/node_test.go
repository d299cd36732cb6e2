package main

import (
	"context"
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/setpoint-dev/setpoint"
)

// TestSimulatedNodes has one command be several nodes, until it is asked to end.
func TestSimulatedNodes(t *testing.T) {
	p := newPlane(t, setpoint.Options{})
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	nodes := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes()
	seen, err := nodes.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		root := newRoot()
		root.SetArgs([]string{"node", "--simulated", "3", "--node-name", "n", "--kubeconfig", p.kubeconfig,
			"--data-dir", t.TempDir()})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		ended <- root.ExecuteContext(ctx)
	}()
	var names []string
	for len(names) < 3 {
		select {
		case event := <-seen.ResultChan():
			if node, ok := event.Object.(*corev1.Node); ok && !slices.Contains(names, node.Name) {
				names = append(names, node.Name)
			}
		case err := <-ended:
			t.Fatalf("setpoint node ended with %v; there are %v", err, names)
		case <-t.Context().Done():
			t.Fatalf("there are %v", names)
		}
	}
	slices.Sort(names)
	if d := cmp.Diff([]string{"n-0", "n-1", "n-2"}, names); d != "" {
		t.Errorf("nodes (-want +got):\n%s", d)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("setpoint node ended with %v", err)
	}
}
