package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/node"
)

// world is a pod and a machine on which every action succeeds at once, and
// containers end when the test says so.
type world struct {
	t       *testing.T
	machine *node.Machine
	in      node.Input
	plan    node.Plan
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newWorld(t *testing.T, pod *corev1.Pod) *world {
	return &world{t: t, machine: node.NewMachine(), in: node.Input{
		Pod: pod, HostIP: "127.0.0.1", Now: epoch,
		Health: map[node.ContainerID]node.Health{}, Busy: map[string]node.Work{},
	}}
}

// step steps once, does what the plan says, and returns that in words.
func (w *world) step() []string {
	w.plan = w.machine.Step(w.in)
	w.in.Pod = w.in.Pod.DeepCopy()
	w.in.Pod.Status = w.plan.Status
	did := []string{}
	for _, a := range w.plan.Actions {
		switch a.Kind {
		case node.CreatePod:
			w.in.Runtime = &node.PodState{UID: w.in.Pod.UID, IP: "127.64.0.1"}
			did = append(did, "create")
		case node.Start:
			w.in.Runtime.Containers = append(w.in.Runtime.Containers, node.ContainerState{
				ID: a.ID, Running: true, StartedAt: w.in.Now,
			})
			w.in.Health[a.ID] = node.Health{Started: true, Ready: true}
			did = append(did, fmt.Sprintf("start %s/%d", a.ID.Name, a.ID.Attempt))
		case node.Stop:
			w.in.Busy[a.Container] = node.Work{Kind: node.Stop, Until: w.in.Now.Add(a.Grace)}
			did = append(did, fmt.Sprintf("stop %s in %v", a.ID.Name, a.Grace))
		case node.RemovePod:
			w.in.Runtime = nil
			did = append(did, "remove")
		case node.DeleteObject:
			did = append(did, "delete")
		}
	}
	return did
}

// run steps until there is nothing more to do, and checks that then nothing is
// left to write either.
func (w *world) run() []string {
	w.t.Helper()
	all := []string{}
	for range 20 {
		before := w.in.Pod.Status
		did := w.step()
		all = append(all, did...)
		if slices.Contains(did, "delete") {
			return all // there is no pod any more
		}
		if len(did) == 0 {
			if diff := cmp.Diff(before, w.plan.Status); diff != "" && len(all) == 0 {
				continue // what the test changed is told now
			} else if diff != "" {
				w.step()
				if diff := cmp.Diff(w.in.Pod.Status, w.machine.Step(w.in).Status); diff != "" {
					w.t.Fatalf("the status does not come to rest:\n%s", diff)
				}
			}
			return all
		}
	}
	w.t.Fatalf("it does not come to rest: %q", all)
	return nil
}

// expect runs and compares what was done.
func (w *world) expect(want ...string) {
	w.t.Helper()
	if got := w.run(); !slices.Equal(got, want) {
		w.t.Errorf("at %v it did %q, want %q", w.in.Now.Sub(epoch), got, want)
	}
}

// end ends the running instance of a container.
func (w *world) end(name string, code int32) {
	w.t.Helper()
	for i := range w.in.Runtime.Containers {
		if c := &w.in.Runtime.Containers[i]; c.ID.Name == name && c.Running {
			c.Running, c.ExitCode, c.FinishedAt = false, code, w.in.Now
			delete(w.in.Busy, name)
			return
		}
	}
	w.t.Fatalf("%s does not run", name)
}

func (w *world) advance(d time.Duration) { w.in.Now = w.in.Now.Add(d) }

// state is the state of a container in the status, in words.
func (w *world) state(name string) string {
	w.step()
	for _, list := range [][]corev1.ContainerStatus{w.plan.Status.InitContainerStatuses, w.plan.Status.ContainerStatuses} {
		for _, c := range list {
			if c.Name != name {
				continue
			}
			switch {
			case c.State.Running != nil:
				return fmt.Sprintf("running, ready %v, restarts %d", c.Ready, c.RestartCount)
			case c.State.Waiting != nil:
				return "waiting: " + c.State.Waiting.Reason
			default:
				return fmt.Sprintf("terminated: %s %d", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
			}
		}
	}
	return "absent"
}

func (w *world) delete(grace int64) {
	at := metav1.NewTime(w.in.Now.Add(time.Duration(grace) * time.Second))
	w.in.Pod = w.in.Pod.DeepCopy()
	w.in.Pod.DeletionTimestamp, w.in.Pod.DeletionGracePeriodSeconds = &at, &grace
}

func TestMachineBacksOffAndForgives(t *testing.T) {
	w := newWorld(t, shellPod("web", ""))
	w.expect("create", "start c0/0")
	w.end("c0", 1)
	w.expect("start c0/1") // the first time at once
	delay := 10 * time.Second
	for attempt := 2; attempt < 9; attempt++ {
		w.end("c0", 1)
		w.expect()
		if got := w.state("c0"); got != "waiting: CrashLoopBackOff" {
			t.Fatalf("while it waits, c0 is %s", got)
		}
		if !w.plan.Next.Equal(w.in.Now.Add(delay)) {
			t.Errorf("before restart %d the next step is after %v, want %v", attempt, w.plan.Next.Sub(w.in.Now), delay)
		}
		w.advance(delay - 1)
		w.expect()
		w.advance(1)
		w.expect(fmt.Sprintf("start c0/%d", attempt))
		delay = min(2*delay, 300*time.Second)
	}
	w.advance(10*time.Minute + time.Second)
	w.end("c0", 1)
	w.expect("start c0/9")
}

func TestMachineTellsOfABackOffOnce(t *testing.T) {
	w := newWorld(t, shellPod("web", ""))
	w.expect("create", "start c0/0")
	w.end("c0", 1)
	w.expect("start c0/1")
	w.end("c0", 1)
	told := 0
	for range 5 {
		w.step()
		for _, e := range w.plan.Events {
			if e.Reason == "BackOff" && strings.HasPrefix(e.Message, "Back-off restarting failed container c0 in pod web_default(") {
				told++
			}
		}
		w.advance(time.Second)
	}
	if told != 1 {
		t.Errorf("the back-off was told %d times, want once", told)
	}
}

func TestMachineRestartPolicies(t *testing.T) {
	for _, c := range []struct {
		policy corev1.RestartPolicy
		code   int32
		want   []string
		phase  corev1.PodPhase
	}{
		{corev1.RestartPolicyAlways, 0, []string{"start c0/1"}, corev1.PodRunning},
		{corev1.RestartPolicyOnFailure, 0, nil, corev1.PodSucceeded},
		{corev1.RestartPolicyOnFailure, 1, []string{"start c0/1"}, corev1.PodRunning},
		{corev1.RestartPolicyNever, 0, nil, corev1.PodSucceeded},
		{corev1.RestartPolicyNever, 1, nil, corev1.PodFailed},
	} {
		t.Run(fmt.Sprintf("%s %d", c.policy, c.code), func(t *testing.T) {
			pod := shellPod("web", "")
			pod.Spec.RestartPolicy = c.policy
			w := newWorld(t, pod)
			w.expect("create", "start c0/0")
			w.end("c0", c.code)
			w.expect(c.want...)
			if w.step(); w.plan.Status.Phase != c.phase {
				t.Errorf("phase is %s, want %s", w.plan.Status.Phase, c.phase)
			}
		})
	}
}

func TestMachineRestartsTheUnhealthyWhateverItsExitCode(t *testing.T) {
	pod := shellPod("web", "")
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	w := newWorld(t, pod)
	w.expect("create", "start c0/0")
	w.in.Health[node.ContainerID{Pod: pod.UID, Name: "c0"}] = node.Health{Started: true, Failed: "Container c0 failed"}
	w.expect("stop c0 in 30s")
	w.end("c0", 0)
	w.expect("start c0/1")
}

func TestMachineDeletesInOrder(t *testing.T) {
	pod := shellPod("web", "", "")
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "first", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
		{Name: "second", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
	}
	w := newWorld(t, pod)
	w.expect("create", "start first/0", "start second/0", "start c0/0", "start c1/0")
	w.delete(20)
	w.expect("stop c0 in 20s", "stop c1 in 20s")
	w.advance(5 * time.Second)
	w.end("c0", 0)
	w.expect() // c1 still uses the sidecars
	w.end("c1", 0)
	w.expect("stop second in 15s", "stop first in 15s")
	w.end("first", 0)
	w.end("second", 0)
	w.expect("remove", "delete")
}

func TestMachineShortensTheGrace(t *testing.T) {
	w := newWorld(t, shellPod("web", ""))
	w.expect("create", "start c0/0")
	w.delete(600)
	w.expect("stop c0 in 10m0s")
	w.advance(time.Second)
	w.expect() // the same grace, counted from the same time
	w.delete(0)
	w.expect("stop c0 in 0s")
}

func TestMachineEndsAPodThatIsOverdue(t *testing.T) {
	pod := shellPod("web", "")
	pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(60))
	w := newWorld(t, pod)
	w.expect("create", "start c0/0")
	if w.step(); !w.plan.Next.Equal(epoch.Add(time.Minute)) {
		t.Errorf("the next step is at %v", w.plan.Next)
	}
	w.advance(time.Minute)
	w.expect("stop c0 in 30s")
	w.end("c0", 143)
	w.expect()
	if s := w.plan.Status; s.Phase != corev1.PodFailed || s.Reason != "DeadlineExceeded" {
		t.Errorf("status is %s %s", s.Phase, s.Reason)
	}
}

func TestMachineTriesAgainWhatCouldNotBeBegun(t *testing.T) {
	w := newWorld(t, shellPod("web", ""))
	w.in.Runtime = &node.PodState{UID: w.in.Pod.UID}
	if plan := w.machine.Step(w.in); len(plan.Actions) != 1 || plan.Actions[0].Kind != node.Start {
		t.Fatalf("plan is %+v", plan.Actions)
	}
	w.machine.StartFailed("c0", "CreateContainerConfigError", `secret "s" not found`, w.in.Now)
	plan := w.machine.Step(w.in)
	if len(plan.Actions) > 0 || !plan.Next.Equal(w.in.Now.Add(time.Second)) {
		t.Errorf("after a failure the plan is %+v, next %v", plan.Actions, plan.Next)
	}
	if got := plan.Status.ContainerStatuses[0].State.Waiting; got == nil || got.Message != `secret "s" not found` {
		t.Errorf("the container waits for %+v", got)
	}
	w.machine.Retry()
	w.expect("start c0/0")
}

func TestMachineDoesNotRepeatWhatIsUnderWay(t *testing.T) {
	w := newWorld(t, shellPod("web", ""))
	w.in.Busy[""] = node.Work{Kind: node.CreatePod}
	w.expect()
	w.in.Busy = map[string]node.Work{}
	w.expect("create", "start c0/0")
	w.end("c0", 1)
	w.in.Busy["c0"] = node.Work{Kind: node.Start}
	w.expect()
}

// A machine that lost its state directory restarts what was running, and counts
// that; it does not run again what had ended for good.
func TestMachineRecallsFromTheStatus(t *testing.T) {
	for policy, want := range map[corev1.RestartPolicy][]string{
		corev1.RestartPolicyAlways: {"create", "start c0/1"},
		corev1.RestartPolicyNever:  {"create"},
	} {
		pod := shellPod("web", "")
		pod.Spec.RestartPolicy = policy
		w := newWorld(t, pod)
		w.expect("create", "start c0/0")
		w.step()
		w.in.Runtime, w.machine = nil, node.NewMachine()
		w.expect(want...)
		if policy == corev1.RestartPolicyNever && w.plan.Status.Phase != corev1.PodFailed {
			t.Errorf("phase is %s, want Failed", w.plan.Status.Phase)
		}
	}
}

func TestMachineConditions(t *testing.T) {
	pod := shellPod("web", "")
	pod.Generation = 7
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/ok"}}
	w := newWorld(t, pod)
	w.expect("create", "start c0/0")
	w.step()
	conditions := map[corev1.PodConditionType]string{}
	for _, c := range w.plan.Status.Conditions {
		conditions[c.Type] = strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
		if c.ObservedGeneration != 7 {
			t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
		}
	}
	want := map[corev1.PodConditionType]string{
		"PodReadyToStartContainers": "True", "Initialized": "True", "ContainersReady": "True", "PodScheduled": "True",
		"Ready": `False ReadinessGatesNotReady corresponding condition of pod readiness gate "example.com/ok" does not exist.`,
	}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	w.in.Pod.Status.Conditions = append(w.in.Pod.Status.Conditions,
		corev1.PodCondition{Type: "example.com/ok", Status: corev1.ConditionTrue})
	w.step()
	if !ready(w.in.Pod) || !condition(w.in.Pod, "example.com/ok") {
		t.Errorf("conditions are %+v", w.in.Pod.Status.Conditions)
	}
}

// As long as its postStart hook runs, a container is not ready, and those behind a sidecar wait for it.
func TestPostStartHookIsPartOfTheStart(t *testing.T) {
	pod := shellPod("web", "")
	hook := &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}}
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers = []corev1.Container{{Name: "side", Image: "none", RestartPolicy: &always, Lifecycle: hook}}
	pod.Spec.Containers[0].Lifecycle = hook
	w := newWorld(t, pod)
	w.step()
	w.step()
	for _, s := range []struct{ name, next string }{{"side", "start c0/0"}, {"c0", ""}} {
		w.in.Busy[s.name] = node.Work{Kind: node.Start}
		w.expect()
		if ready(w.in.Pod) {
			t.Errorf("the pod is ready while the hook of %s runs", s.name)
		}
		delete(w.in.Busy, s.name)
		if s.next != "" {
			if did := w.step(); !slices.Equal(did, []string{s.next}) {
				t.Errorf("when the hook of %s has ended it did %q, want %q", s.name, did, s.next)
			}
		}
	}
	if w.expect(); !ready(w.in.Pod) {
		t.Errorf("the pod is not ready when its hooks have ended: %+v", w.in.Pod.Status)
	}
}
