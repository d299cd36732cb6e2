package simulated_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/simulated"
)

// TestNodesOfOneNetworkShareNoAddress has two nodes give pods their addresses side by side.
func TestNodesOfOneNetworkShareNoAddress(t *testing.T) {
	var network simulated.Network
	const pods = 300
	addresses := make(chan string)
	for _, r := range []*simulated.Runtime{network.New(nil, simulated.Handlers{}), network.New(nil, simulated.Handlers{})} {
		go func() {
			for i := range pods {
				state, err := r.CreatePod(t.Context(), node.PodConfig{UID: types.UID(fmt.Sprint(i))})
				if err != nil {
					t.Error(err)
				}
				addresses <- state.IP
			}
		}()
	}
	given := map[string]bool{}
	for range 2 * pods {
		given[<-addresses] = true
	}
	if len(given) != 2*pods || !given["127.200.0.1"] || !given["127.200.2.88"] {
		t.Errorf("%d addresses were given to %d pods; want 127.200.0.1 to 127.200.2.88", len(given), 2*pods)
	}
}

func createPod(t *testing.T, r *simulated.Runtime) {
	t.Helper()
	if _, err := r.CreatePod(t.Context(), node.PodConfig{UID: "p", Namespace: "default", Name: "p"}); err != nil {
		t.Fatal(err)
	}
}

// What the pod waits for has ended well at once, and what a Job does if asked for; the rest runs.
func TestContainersThatEnd(t *testing.T) {
	for _, test := range []struct{ init, job, jobsEnd, ends bool }{
		{false, false, true, false}, {true, false, false, true}, {false, true, false, false}, {false, true, true, true},
	} {
		r := simulated.New(nil, simulated.Handlers{JobsEnd: test.jobsEnd})
		createPod(t, r)
		config := node.ContainerConfig{ID: node.ContainerID{Pod: "p", Name: "c"}, Init: test.init, Job: test.job}
		if err := r.StartContainer(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		pods, err := r.Pods(t.Context(), "p")
		if err != nil || len(pods) != 1 || len(pods[0].Containers) != 1 {
			t.Fatalf("the runtime has %v, %v", pods, err)
		}
		c := pods[0].Containers[0]
		if c.Running == test.ends || c.ExitCode != 0 || c.FinishedAt.IsZero() == test.ends {
			t.Errorf("%+v: %+v", test, c)
		}
	}
}

func TestProbesAreAnsweredByHandlers(t *testing.T) {
	sick := errors.New("sick")
	http := &corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/"}}
	exec := &corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check"}}}
	fails := func(context.Context, simulated.Container, []string, node.Streams) (int32, error) { return 1, nil }
	refuses := func(context.Context, simulated.Container, *corev1.ProbeHandler) error { return sick }
	for name, test := range map[string]struct {
		handlers simulated.Handlers
		probe    *corev1.ProbeHandler
		healthy  bool
	}{
		"nobody says otherwise": {simulated.Handlers{}, http, true},
		"a command succeeds":    {simulated.Handlers{}, exec, true},
		"a command fails":       {simulated.Handlers{Exec: fails}, exec, false},
		"commands are not HTTP": {simulated.Handlers{Exec: fails}, http, true},
		"probes are played":     {simulated.Handlers{Probe: refuses}, http, false},
		"commands are as well":  {simulated.Handlers{Probe: refuses}, exec, false},
	} {
		r := simulated.New(nil, test.handlers)
		createPod(t, r)
		err := r.Probe(t.Context(), node.ContainerID{Pod: "p", Name: "c"}, test.probe)
		if (err == nil) != test.healthy {
			t.Errorf("%s: %v", name, err)
		}

	}
}
