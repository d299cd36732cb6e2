package node

import (
	"context"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// worker carries out what a Machine decides for one pod. Its goroutine steps
// the machine whenever something may have changed; each action is a goroutine
// of its own, so that nothing slow keeps the next step waiting.
type worker struct {
	agent   *Agent
	uid     types.UID
	log     *slog.Logger
	machine *Machine
	wake    chan struct{}
	tasks   sync.WaitGroup

	mu    sync.Mutex
	pod   *corev1.Pod // the newest version seen; read-only
	gone  bool        // its object is no more
	stale bool        // what its volumes are made of may have changed
	inbox []func()    // to be run by the worker's goroutine

	// Used by the worker's goroutine alone.
	busy     map[string]Work
	counts   map[string]int // actions behind each entry of busy
	probers  map[ContainerID]*prober
	messages map[ContainerID]string    // the last words of instances that failed
	limits   map[ContainerID]Resources // that running instances were given
	writer   statusWriter
	rejected *Rejection // the node does not take the pod
	deleted  bool       // the deletion of the object was carried out
	finished bool
}

func newWorker(a *Agent, pod *corev1.Pod) *worker {
	return &worker{
		agent:    a,
		uid:      pod.UID,
		log:      a.Logger.With("namespace", pod.Namespace, "pod", pod.Name, "uid", pod.UID),
		machine:  NewMachine(),
		wake:     make(chan struct{}, 1),
		busy:     map[string]Work{},
		counts:   map[string]int{},
		probers:  map[ContainerID]*prober{},
		messages: map[ContainerID]string{},
		limits:   map[ContainerID]Resources{},
	}
}

// see takes a version of the pod, unless a newer one is known.
func (w *worker) see(pod *corev1.Pod) {
	w.mu.Lock()
	if w.pod == nil || revision(pod) >= revision(w.pod) {
		// Labels and annotations may be files of a volume.
		w.stale = w.stale || w.pod != nil &&
			(!maps.Equal(w.pod.Labels, pod.Labels) || !maps.Equal(w.pod.Annotations, pod.Annotations))
		w.pod = pod
	}
	w.mu.Unlock()
	w.wakeUp()
}

// revision is the order of a pod's versions.
func revision(pod *corev1.Pod) uint64 {
	n, _ := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	return n
}

// lose says that the pod's object is gone: what runs must end.
func (w *worker) lose() {
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	w.wakeUp()
}

// refresh says that an object that the pod refers to may have changed.
func (w *worker) refresh() {
	w.mu.Lock()
	w.stale = true
	w.mu.Unlock()
	w.wakeUp()
}

func (w *worker) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// post has f run by the worker's goroutine, followed by a step.
func (w *worker) post(f func()) {
	w.mu.Lock()
	w.inbox = append(w.inbox, f)
	w.mu.Unlock()
	w.wakeUp()
}

// current returns the pod as it is to be treated. One whose object is gone
// without having been terminated is: with a second's grace, as a forced
// deletion gives.
func (w *worker) current() (pod *corev1.Pod, gone, stale bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod, gone, stale = w.pod, w.gone, w.stale
	w.stale = false
	if gone && pod != nil {
		grace := int64(1)
		pod = pod.DeepCopy()
		pod.DeletionTimestamp = &metav1.Time{Time: w.agent.Clock.Now()}
		pod.DeletionGracePeriodSeconds = &grace
	}
	return pod, gone, stale
}

func (w *worker) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer w.tasks.Wait()
	defer cancel()
	var timer clock.Timer
	for !w.finished {
		var due <-chan time.Time
		if timer != nil {
			due = timer.C()
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-due:
		}
		if timer != nil {
			timer.Stop()
			timer = nil
		}
		w.mu.Lock()
		inbox := w.inbox
		w.inbox = nil
		w.mu.Unlock()
		for _, f := range inbox {
			f()
		}
		if next := w.step(ctx); !next.IsZero() {
			timer = w.agent.Clock.NewTimer(max(0, next.Sub(w.agent.Clock.Now())))
		}
	}
}

// step steps the machine once and begins what it says. It returns when the next
// step is due by itself, or zero.
func (w *worker) step(ctx context.Context) time.Time {
	pod, gone, stale := w.current()
	if pod == nil {
		return time.Time{}
	}
	states, err := w.agent.Runtime.Pods(ctx, w.uid)
	if err != nil {
		w.log.Error("asking the runtime", "error", err)
		return w.agent.Clock.Now().Add(failureDelayMin)
	}
	var state *PodState
	if len(states) > 0 {
		state = &states[0]
	}
	rejected := w.place(ctx, pod, state)
	if stale {
		w.machine.Retry()
		w.updateVolumes(ctx, pod, state)
	}
	w.addMessages(pod, state)
	w.superviseProbers(ctx, pod, state)
	w.resize(ctx, pod, state)
	plan := w.machine.Step(Input{
		Pod: pod, Runtime: state, Health: w.health(), Busy: maps.Clone(w.busy),
		HostIP: w.agent.Address, Now: w.agent.Clock.Now(), Rejected: rejected,
	})
	w.keepPlace(pod, state, plan.Status.Phase)
	next := plan.Next
	written := true
	if !gone {
		var retry time.Time
		written, retry = w.writer.write(ctx, w, pod, plan.Status)
		if !retry.IsZero() && (next.IsZero() || retry.Before(next)) {
			next = retry
		}
	}
	for _, e := range plan.Events {
		w.event(pod, e.Container, e.Type, e.Reason, e.Message)
	}
	for _, action := range plan.Actions {
		if action.Kind == DeleteObject {
			w.finish(ctx, pod, gone, written)
			continue
		}
		w.begin(ctx, pod, state, action)
	}
	return next
}

// resize gives running instances the limits that the pod declares now. An
// instance that this agent did not start is given them again.
func (w *worker) resize(ctx context.Context, pod *corev1.Pod, state *PodState) {
	if state == nil {
		return
	}
	for i := range state.Containers {
		id := state.Containers[i].ID
		c := containerNamed(pod, id.Name)
		if !state.Containers[i].Running || c == nil {
			delete(w.limits, id)
			continue
		}
		want := resourcesOf(c)
		if got, given := w.limits[id]; given && got == want {
			continue
		}
		if err := w.agent.Runtime.Resize(ctx, id, want); err != nil {
			w.log.Warn("resizing a container", "container", id.Name, "error", err)
			continue // it has just ended, and the next one is started with them
		}
		w.limits[id] = want
	}
}

// updateVolumes brings the files of a pod that exists up to date.
func (w *worker) updateVolumes(ctx context.Context, pod *corev1.Pod, state *PodState) {
	if state == nil || pod.DeletionTimestamp != nil {
		return
	}
	if err := w.agent.volumes.prepare(ctx, w.sources(pod, state)); err != nil {
		w.event(pod, "", corev1.EventTypeWarning, "FailedMount", err.Error())
	}
}

func (w *worker) sources(pod *corev1.Pod, state *PodState) sources {
	f := facts{
		hostIP: w.agent.Address, podIP: w.agent.Address,
		allocatable: w.agent.node.desired.Status.Allocatable,
	}
	if state != nil && state.IP != "" {
		f.podIP = state.IP
	}
	return sources{Reader: w.agent.Client, pod: pod, facts: f}
}

// begin carries out an action in a goroutine of its own.
func (w *worker) begin(ctx context.Context, pod *corev1.Pod, state *PodState, a Action) {
	work := Work{Kind: a.Kind}
	if a.Kind == Stop {
		work.Until = w.agent.Clock.Now().Add(a.Grace)
	}
	again := w.busy[a.Container].Kind == a.Kind
	w.busy[a.Container] = work
	w.counts[a.Container]++
	w.tasks.Go(func() {
		var after func()
		switch a.Kind {
		case CreatePod:
			after = w.createPod(ctx, pod)
		case Start:
			after = w.start(ctx, pod, state, a)
		case Stop:
			w.stop(ctx, pod, state, a, again)
		case RemovePod:
			w.remove(ctx)
		}
		w.post(func() {
			if w.counts[a.Container]--; w.counts[a.Container] == 0 {
				delete(w.counts, a.Container)
				delete(w.busy, a.Container)
			}
			if after != nil {
				after()
			}
		})
	})
}

// finish deletes the object, once its last status is written, and ends the
// worker when the object is gone.
func (w *worker) finish(ctx context.Context, pod *corev1.Pod, gone, written bool) {
	if gone {
		if err := w.agent.volumes.remove(w.uid); err != nil {
			w.log.Error("removing volumes", "error", err)
		}
		w.finished = true
		return
	}
	if !written || w.deleted {
		return // a finalizer may keep the object; it is asked for once
	}
	w.deleted = true
	w.tasks.Go(func() {
		opts := []client.DeleteOption{
			client.GracePeriodSeconds(0),
			client.Preconditions{UID: &w.uid},
		}
		target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		w.untilDone(ctx, "deleting the pod", func() error {
			return ignoreGone(ask(ctx, func(ctx context.Context) error {
				return w.agent.Client.Delete(ctx, target, opts...)
			}))
		})
	})
}

func (w *worker) remove(ctx context.Context) {
	w.untilDone(ctx, "removing the pod", func() error { return w.agent.Runtime.RemovePod(ctx, w.uid) })
}

// untilDone tries again after 1 s, 2 s, … 30 s until f succeeds or ctx ends.
func (w *worker) untilDone(ctx context.Context, what string, f func() error) {
	for delay := failureDelayMin; ; delay = min(2*delay, failureDelayMax) {
		err := f()
		if err == nil || ctx.Err() != nil {
			return
		}
		w.log.Warn(what, "error", err)
		if w.agent.sleep(ctx, delay) != nil {
			return
		}
	}
}

// event tells people about a container, or about the pod if it is empty.
func (w *worker) event(pod *corev1.Pod, container, kind, reason, message string) {
	ref := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name,
		UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	if container != "" {
		list := "containers"
		for i := range pod.Spec.InitContainers {
			if pod.Spec.InitContainers[i].Name == container {
				list = "initContainers"
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			if pod.Spec.EphemeralContainers[i].Name == container {
				list = "ephemeralContainers"
			}
		}
		ref.FieldPath = "spec." + list + "{" + container + "}"
	}
	w.agent.Recorder.Eventf(ref, nil, kind, reason, reason, "%s", message)
}

// refersTo says whether the pod refers to a ConfigMap or Secret.
func (w *worker) refersTo(obj client.Object) bool {
	w.mu.Lock()
	pod := w.pod
	w.mu.Unlock()
	return pod != nil && pod.Namespace == obj.GetNamespace() && refersTo(pod, obj)
}
