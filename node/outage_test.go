package node_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// away is a server that can be away for writes of status.
func (m *machine) away() *atomic.Bool {
	var away atomic.Bool
	m.WithWatch = interceptor.NewClient(m.WithWatch, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if away.Load() {
				return errors.New("the server is away")
			}
			return c.SubResource(sub).Patch(ctx, obj, p, opts...)
		},
	})
	return &away
}

func TestContainersAreKeptUpWhileTheServerIsAway(t *testing.T) {
	m := newMachine(t)
	away := m.away()
	m.boot()
	pod := m.run("web", nil, `echo run >>`+m.dir+`/runs; echo pid $$$$; while ! [ -e `+m.dir+`/end ]; do sleep 0.01; done; rm `+m.dir+`/end; exit 3`)
	m.await(pod, "ready", ready)
	away.Store(true)
	if err := os.WriteFile(m.dir+"/end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for restarted := false; !restarted; {
		changed := m.agent.NextChange(pod.UID)
		states, err := m.runtime.Pods(t.Context(), pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range states[0].Containers {
			restarted = restarted || c.ID.Attempt == 1 && c.Running
		}
		if !restarted {
			<-changed
		}
	}
	away.Store(false)
	got := m.await(pod, "reported", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	if last := got.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 3 {
		t.Errorf("last state is %+v", last)
	}
}

func TestHooksRunAroundTheContainer(t *testing.T) {
	m := newMachine(t)
	m.boot()
	note := func(what string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
			Command: []string{"sh", "-c", "echo " + what + " >>" + m.dir + "/steps"},
		}}
	}
	pod := m.run("web", func(p *corev1.Pod) {
		p.Finalizers = []string{"test/hold"} // the fake server deletes at once otherwise
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: note("started"), PreStop: note("stopping")}
	}, `trap 'echo asked >>`+m.dir+`/steps; exit 0' TERM; while :; do sleep 600 & wait $!; done`)
	m.await(pod, "ready", ready)
	if err := m.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	m.await(pod, "ended", phase(corev1.PodSucceeded))
	if steps, _ := os.ReadFile(m.dir + "/steps"); string(steps) != "started\nstopping\nasked\n" {
		t.Errorf("steps are %q", steps)
	}
}

func TestFailedPostStartHookRestarts(t *testing.T) {
	m := newMachine(t)
	m.boot()
	pod := m.run("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "mkdir " + m.dir + "/first 2>/dev/null || exit 0; echo refused; exit 1"}},
		}}
		p.Spec.TerminationGracePeriodSeconds = new(int64)
	}, forever)
	m.await(pod, "restarted", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	if !m.has("FailedPostStartHook: PostStartHook failed: refused") {
		t.Errorf("events are %q", m.list)
	}
}

// TestTunnel plays the server's part: it accepts the agent's connection and
// asks over it, and again after the connection broke.
func TestTunnel(t *testing.T) {
	m := newMachine(t)
	conns := make(chan net.Conn)
	m.tunnel = func(ctx context.Context) (io.ReadWriteCloser, error) {
		ours, theirs := net.Pipe()
		select {
		case conns <- ours:
			return theirs, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	m.boot()
	pod := m.run("web", nil, "echo hello; "+forever)
	for range 2 {
		conn := <-conns
		server, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(conn)
		if err != nil {
			t.Fatal(err)
		}
		m.await(pod, "ready", ready)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://node/containerLogs/default/web/c0?follow=true", nil)
		res, err := server.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 6)
		if _, err := io.ReadFull(res.Body, line); err != nil || string(line) != "hello\n" {
			t.Errorf("the log is %q, %v", line, err)
		}
		cancel()
		res.Body.Close()
		conn.Close()
	}
}
