package node_test

import (
	"bytes"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const forever = "exec sleep 600"

func TestPodRunsAndIsDeletedWhenItsProcessesAreGone(t *testing.T) {
	m := newMachine(t)
	m.boot()
	// The finalizer keeps the fake server from deleting at once.
	pod := m.run("web", func(p *corev1.Pod) { p.Finalizers = []string{"test/hold"} }, "echo hello; "+forever)
	got := m.await(pod, "ready", ready)
	status := got.Status
	if status.Phase != corev1.PodRunning || status.PodIP == "" || status.HostIP != "127.0.0.1" || status.StartTime == nil {
		t.Errorf("status is %+v", status)
	}
	if c := status.ContainerStatuses[0]; !c.Ready || c.State.Running == nil || c.RestartCount != 0 || !*c.Started {
		t.Errorf("container status is %+v", c)
	}
	if !m.has("Started: Container started") {
		t.Errorf("events are %q", m.list)
	}
	if err := m.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	m.await(pod, "stopped", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].State.Terminated != nil
	})
	if !m.has("Killing: Stopping container c0") {
		t.Errorf("events are %q", m.list)
	}
	m.awaitNothingLeft(pod)
}

// awaitNothingLeft waits until the machine has nothing of the pod.
func (m *machine) awaitNothingLeft(pod *corev1.Pod) {
	m.t.Helper()
	// Taking the finalizer away ends the object; the agent ends the rest.
	got := &corev1.Pod{}
	if err := m.Get(m.t.Context(), types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, got); err == nil {
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if err := m.Patch(m.t.Context(), got, rawMerge(patch)); err != nil {
			m.t.Fatal(err)
		}
	}
	m.await(pod, "gone", gone)
	m.stop()
	m.boot()
	m.await(pod, "gone", gone)
	states, err := m.runtime.Pods(m.t.Context(), pod.UID)
	if err != nil || len(states) > 0 {
		m.t.Errorf("on the machine is %+v, %v", states, err)
	}
}

func TestKilledProcessIsReplacedAtOnce(t *testing.T) {
	m := newMachine(t)
	m.boot()
	pod := m.run("web", nil, `echo run >>`+m.dir+`/runs; [ $(wc -l <`+m.dir+`/runs) = 1 ] && kill -9 $$$$; `+forever)
	got := m.await(pod, "restarted", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	last := got.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode != 137 || last.Reason != "Error" {
		t.Errorf("last state is %+v", last)
	}
}

func TestAgentRestartAdopts(t *testing.T) {
	m := newMachine(t)
	m.boot()
	pod := m.run("web", func(p *corev1.Pod) {
		// A probe that would take long to say so again.
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", m.dir + "/ready"}}},
			PeriodSeconds:    1,
			FailureThreshold: 1000,
		}
	}, `echo run >>`+m.dir+`/runs; touch `+m.dir+`/ready; `+forever)
	before := m.await(pod, "ready", ready)
	m.stop()
	if err := os.Remove(m.dir + "/ready"); err != nil {
		t.Fatal(err)
	}
	m.boot()
	// Another pod's readiness tells that the agent is at work again.
	m.await(m.run("other", nil, forever), "ready", ready)
	after := m.await(pod, "ready", ready)
	if before.ResourceVersion != after.ResourceVersion {
		t.Errorf("the restart wrote the status:\n%+v\n%+v", before.Status, after.Status)
	}
	if runs, _ := os.ReadFile(m.dir + "/runs"); string(runs) != "run\n" {
		t.Errorf("runs: %q, want one", runs)
	}
}

func TestPodDeletedWhileNoAgentRan(t *testing.T) {
	m := newMachine(t)
	m.boot()
	pod := m.run("web", nil, forever)
	m.await(pod, "ready", ready)
	kept := m.run("kept", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{},
		}}}
	}, forever)
	m.await(kept, "ready", ready)
	m.stop()
	if err := m.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	// What a kill between removing a pod and its volumes leaves.
	volumes := filepath.Join(m.dir, "volumes")
	if err := os.MkdirAll(filepath.Join(volumes, "gone", "token"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.boot()
	m.await(m.run("other", nil, forever), "ready", ready)
	for ended := false; !ended; {
		changed := m.agent.NextChange(pod.UID)
		states, err := m.runtime.Pods(t.Context(), pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		if ended = len(states) == 0 || !states[0].Containers[0].Running; !ended {
			<-changed
		}
	}
	left, err := os.ReadDir(volumes)
	if err != nil || len(left) != 1 || left[0].Name() != string(kept.UID) {
		t.Errorf("volumes of %v are left (%v), want those of %s", left, err, kept.UID)
	}
}

func TestInitContainersRunInOrder(t *testing.T) {
	m := newMachine(t)
	m.boot()
	step := func(name string) corev1.Container {
		return corev1.Container{Name: name, Command: []string{"/bin/sh", "-c", "echo " + name + " >>" + m.dir + "/steps"}}
	}
	pod := m.run("web", func(p *corev1.Pod) {
		side := step("side")
		side.Command[2] += "; " + forever
		side.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		side.StartupProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"grep", "side", m.dir + "/steps"}}},
			PeriodSeconds: 1,
		}
		p.Spec.InitContainers = []corev1.Container{step("one"), side, step("two")}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
	}, "echo main >>"+m.dir+"/steps")
	got := m.await(pod, "succeeded", phase(corev1.PodSucceeded))
	if steps, _ := os.ReadFile(m.dir + "/steps"); string(steps) != "one\nside\ntwo\nmain\n" {
		t.Errorf("steps are %q", steps)
	}
	if side := got.Status.InitContainerStatuses[1]; side.State.Terminated == nil {
		t.Errorf("the sidecar is %+v", side)
	}
}

func TestFailedInitContainerFailsThePod(t *testing.T) {
	m := newMachine(t)
	m.boot()
	pod := m.run("web", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{
			Name: "init", Command: []string{"/bin/sh", "-c", "echo no luck; exit 3"},
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
	}, forever)
	got := m.await(pod, "failed", phase(corev1.PodFailed))
	if end := got.Status.InitContainerStatuses[0].State.Terminated; end == nil || end.Message != "no luck\n" {
		t.Errorf("the init container is %+v", end)
	}
	if w := got.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "PodInitializing" {
		t.Errorf("the container is %+v", got.Status.ContainerStatuses[0].State)
	}
}

func TestLivenessRestarts(t *testing.T) {
	m := newMachine(t)
	m.boot()
	pod := m.run("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", m.dir + "/sick"}}},
			PeriodSeconds:    1,
			FailureThreshold: 1,
		}
	}, `trap 'touch `+m.dir+`/sick; exit 0' TERM; while :; do sleep 600 & wait $!; done`)
	m.await(pod, "restarted and ready", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	if !m.has("Killing: Container c0 failed liveness probe, will be restarted") {
		t.Errorf("events are %q", m.list)
	}
}

func TestMissingConfigMapWaitsAndIsSeenWhenItComes(t *testing.T) {
	m := newMachine(t)
	m.boot()
	pod := m.run("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}},
		}}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
	}, `[ "$GREETING" = hello ]`)
	m.await(pod, "waiting", func(p *corev1.Pod) bool {
		if p == nil || len(p.Status.ContainerStatuses) == 0 {
			return false
		}
		w := p.Status.ContainerStatuses[0].State.Waiting
		return w != nil && w.Reason == "CreateContainerConfigError" && w.Message == `configmap "settings" not found`
	})
	settings := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"},
		Data:       map[string]string{"GREETING": "hello"},
	}
	if err := m.Create(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	m.await(pod, "succeeded", phase(corev1.PodSucceeded))
}

func TestVolumesAreSeenAndFollowTheirObject(t *testing.T) {
	m := newMachine(t)
	m.boot()
	settings := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"},
		Data:       map[string]string{"greeting": "hello"},
	}
	if err := m.Create(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	pod := m.run("web", func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "web"}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "my-settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
			}}},
			{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
				Items: []corev1.DownwardAPIVolumeFile{{
					Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"},
				}},
			}}},
		}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
			{Name: "my-settings", MountPath: "/settings"}, {Name: "info", MountPath: "/info"},
		}
	}, `cat $SETPOINT_VOLUME_INFO/labels; echo; cat $SETPOINT_VOLUME_MY_SETTINGS/greeting; echo
		while ! grep -q bye $SETPOINT_VOLUME_MY_SETTINGS/greeting; do sleep 0.01; done; echo changed; `+forever)
	m.await(pod, "ready", ready)
	m.awaitLog(pod, "app=\"web\"\nhello\n")
	settings.Data["greeting"] = "bye"
	if err := m.Update(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	m.awaitLog(pod, "changed\n")
}

// awaitLog follows the log of a pod until it has the text.
func (m *machine) awaitLog(pod *corev1.Pod, text string) {
	m.t.Helper()
	server := httptest.NewServer(m.agent.Handler())
	defer server.Close()
	res, err := server.Client().Get(server.URL + "/containerLogs/default/" + pod.Name + "/c0?follow=true")
	if err != nil {
		m.t.Fatal(err)
	}
	defer res.Body.Close()
	var seen bytes.Buffer
	chunk := make([]byte, 1024)
	for !strings.Contains(seen.String(), text) {
		n, err := res.Body.Read(chunk)
		seen.Write(chunk[:n])
		if err != nil {
			m.t.Fatalf("the log is %q, without %q: %v", seen.String(), text, err)
		}
	}
}

func TestLogsOverHTTP(t *testing.T) {
	m := newMachine(t)
	m.boot()
	pod := m.run("web", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever },
		"echo one; echo two >&2; echo three")
	m.await(pod, "succeeded", phase(corev1.PodSucceeded))
	server := httptest.NewServer(m.agent.Handler())
	defer server.Close()
	for query, want := range map[string]string{
		"c0?stream=Stdout":              "one\nthree\n",
		"c0?stream=Stderr":              "two\n",
		"c0?stream=Stdout&limitBytes=5": "one\nt",
		"c0?follow=1&tailLines=0":       "",
		"c0?previous=true":              "previous terminated container \"c0\" in pod \"web\" not found\n",
		"c9":                            "container c9 is not valid for pod web\n",
		"c0?tailLines=x":                "tailLines: found \"x\", allowed are whole numbers from 0\n",
	} {
		res, err := server.Client().Get(server.URL + "/containerLogs/default/web/" + query)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(got) != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

func TestNodeIsRegisteredOnceAndLeased(t *testing.T) {
	m := newMachine(t)
	m.boot()
	m.await(m.run("web", nil, forever), "ready", ready)
	var lease coordinationv1.Lease
	w, err := m.Watch(t.Context(), &coordinationv1.LeaseList{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for m.Get(t.Context(), types.NamespacedName{Namespace: "kube-node-lease", Name: "n1"}, &lease) != nil {
		<-w.ResultChan()
	}
	if *lease.Spec.LeaseDurationSeconds != 40 || *lease.Spec.HolderIdentity != "n1" {
		t.Errorf("lease is %+v", lease.Spec)
	}
	var n corev1.Node
	if err := m.Get(t.Context(), types.NamespacedName{Name: "n1"}, &n); err != nil {
		t.Fatal(err)
	}
	isReady := false
	for _, c := range n.Status.Conditions {
		isReady = isReady || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	if !isReady || n.Labels["kubernetes.io/hostname"] != "n1" || n.Status.Allocatable.Cpu().IsZero() || n.Status.Allocatable.Memory().IsZero() {
		t.Errorf("node is %+v", n)
	}
}

func TestHTTPProbeOfTwoPodsWithOnePort(t *testing.T) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("needs python3")
	}
	m := newMachine(t)
	m.boot()
	change := func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Command = []string{"/usr/bin/python3", "-m", "http.server", "--bind", "$(POD_IP)", "$(PORT)"}
		c.WorkingDir = filepath.Join(m.dir)
		c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 18080}}
		c.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")}},
			PeriodSeconds: 1,
		}
	}
	a, b := m.run("a", change, ""), m.run("b", change, "")
	a, b = m.await(a, "ready", ready), m.await(b, "ready", ready)
	if a.Status.PodIP == b.Status.PodIP {
		t.Errorf("both have %s", a.Status.PodIP)
	}
}
