package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Informers is the part of a controller-runtime cache by which an agent hears
// of changes.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Recorder is the part of an event recorder that an agent uses.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Options configure an Agent. Those without a default are required.
type Options struct {
	Name      string        // of the node
	Client    client.Client // reads from the cache that Informers belongs to
	Live      client.Reader // reads from the server; nil means Client
	Informers Informers     // may be limited to the pods of this node
	Recorder  Recorder
	Runtime   Runtime
	Dir       string // for the files of volumes; on a disk that outlives the agent

	Address string            // of the machine, as others reach it; 127.0.0.1 if empty
	Labels  map[string]string // of the Node object, beside those that every node has
	Taints  []corev1.Taint    // of the Node object when it is first made
	Version string            // of the agent, as `kubectl get nodes` shows it
	Clock   clock.WithTicker  // the machine's if nil
	Logger  *slog.Logger      // slog.Default() if nil

	// Tunnel opens the connection over which the server asks for logs, commands
	// and connections; see Dial.
	// Nil means that there is none.
	Tunnel func(context.Context) (io.ReadWriteCloser, error)
}

// Agent runs the pods of one node. Make it with New and run it once.
type Agent struct {
	Options
	volumes volumes
	node    *registration
	places  places
	listed  chan struct{} // closed when all pods of the node are known

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before it
	workers map[types.UID]*worker
	changes map[types.UID]chan struct{} // closed when a container of the pod changes
	running sync.WaitGroup
}

// New returns an Agent.
func New(opts Options) (*Agent, error) {
	for name, missing := range map[string]bool{
		"Name": opts.Name == "", "Client": opts.Client == nil, "Informers": opts.Informers == nil,
		"Recorder": opts.Recorder == nil, "Runtime": opts.Runtime == nil, "Dir": opts.Dir == "",
	} {
		if missing {
			return nil, fmt.Errorf("node options: %s is required", name)
		}
	}
	if opts.Live == nil {
		opts.Live = opts.Client
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	opts.Address = cmp.Or(opts.Address, "127.0.0.1")
	opts.Version = cmp.Or(opts.Version, "v1.37.2+setpoint")
	opts.Logger = opts.Logger.With("node", opts.Name)
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		Options: opts,
		volumes: volumes{dir},
		places:  places{held: map[types.UID]*corev1.Pod{}},
		listed:  make(chan struct{}),
		workers: map[types.UID]*worker{},
		changes: map[types.UID]chan struct{}{},
	}
	a.node = &registration{agent: a, desired: a.describe()}
	return a, nil
}

// Start is Run, by the name that a controller manager calls it.
func (a *Agent) Start(ctx context.Context) error { return a.Run(ctx) }

// Run runs the agent until ctx ends. The containers run on; their processes
// are not children of the agent's work but of the machine.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer a.running.Wait()
	defer cancel()
	a.mu.Lock()
	a.ctx = ctx
	a.mu.Unlock()
	a.Runtime.Notify(a.containerChanged)

	a.running.Go(func() { a.node.run(ctx) })
	if a.Tunnel != nil {
		a.running.Go(func() { a.serveTunnel(ctx) })
	}
	remove, err := a.watch(ctx)
	defer remove()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := a.removeOrphans(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// watch subscribes to what pods are made of and returns when the first list of
// each has been handled.
func (a *Agent) watch(ctx context.Context) (remove func(), err error) {
	var removes []func()
	remove = func() {
		for _, r := range removes {
			r()
		}
	}
	for _, w := range []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&corev1.Pod{}, handler(a.podSeen, a.podGone)},
		{&corev1.ConfigMap{}, handler(a.configSeen, a.configSeen)},
		{&corev1.Secret{}, handler(a.configSeen, a.configSeen)},
	} {
		informer, err := a.Informers.GetInformer(ctx, w.object)
		if err != nil {
			return remove, fmt.Errorf("watch %T: %w", w.object, err)
		}
		registration, err := informer.AddEventHandler(w.handler)
		if err != nil {
			return remove, fmt.Errorf("watch %T: %w", w.object, err)
		}
		removes = append(removes, func() { _ = informer.RemoveEventHandler(registration) })
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return remove, context.Cause(ctx)
		}
		if _, pods := w.object.(*corev1.Pod); pods {
			close(a.listed)
		}
	}
	return remove, nil
}

// handler calls seen for each version of an object and gone for its end.
func handler(seen, gone func(client.Object)) toolscache.ResourceEventHandler {
	object := func(obj any, f func(client.Object)) {
		if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if o, ok := obj.(client.Object); ok {
			f(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { object(obj, seen) },
		UpdateFunc: func(_, obj any) { object(obj, seen) },
		DeleteFunc: func(obj any) { object(obj, gone) },
	}
}

func (a *Agent) podSeen(obj client.Object) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName != a.Name {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		return
	}
	w, ok := a.workers[pod.UID]
	if !ok {
		if begun(pod) && !ended(pod.Status.Phase) {
			a.places.hold(pod)
		}
		w = newWorker(a, pod)
		a.workers[pod.UID] = w
		a.running.Go(func() {
			w.run(a.ctx)
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.workers, pod.UID)
			a.places.leave(pod.UID)
		})
	}
	w.see(pod)
}

func (a *Agent) podGone(obj client.Object) {
	if w := a.worker(obj.GetUID()); w != nil {
		w.lose()
	}
}

// configSeen wakes the pods that refer to a ConfigMap or Secret.
func (a *Agent) configSeen(obj client.Object) {
	for _, w := range a.allWorkers() {
		if w.refersTo(obj) {
			w.refresh()
		}
	}
}

// containerChanged is what the runtime calls.
func (a *Agent) containerChanged(uid types.UID) {
	a.mu.Lock()
	if changed, ok := a.changes[uid]; ok {
		close(changed)
		delete(a.changes, uid)
	}
	a.mu.Unlock()
	if w := a.worker(uid); w != nil {
		w.wakeUp()
	}
}

// nextChange returns a channel that is closed when a container of the pod
// changes from now on.
func (a *Agent) nextChange(uid types.UID) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.changes[uid]; !ok {
		a.changes[uid] = make(chan struct{})
	}
	return a.changes[uid]
}

func (a *Agent) worker(uid types.UID) *worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.workers[uid]
}

func (a *Agent) allWorkers() []*worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.workers))
}

// removeOrphans ends the pods on the machine that were deleted while no agent
// ran. A live read decides, since nothing is worse than to end the wrong one.
func (a *Agent) removeOrphans(ctx context.Context) error {
	pods, err := a.Runtime.Pods(ctx)
	if err != nil {
		return err
	}
	if err := a.removeVolumesWithout(pods); err != nil {
		return err
	}
	for _, p := range pods {
		if a.worker(p.UID) != nil {
			continue
		}
		gone, err := a.isGone(ctx, p)
		if err != nil {
			return err
		}
		if !gone {
			continue // the watch has yet to tell
		}
		a.Logger.Info("removing what is left of a deleted pod", "namespace", p.Namespace, "name", p.Name, "uid", p.UID)
		err = errors.Join(a.Runtime.RemovePod(ctx, p.UID), a.volumes.remove(p.UID))
		if err != nil {
			return err
		}
	}
	return nil
}

// removeVolumesWithout removes the volumes that no pod has, neither one of those
// on the machine nor one that is to be: an agent was killed between removing a
// pod and its volumes.
func (a *Agent) removeVolumesWithout(pods []PodState) error {
	uids, err := a.volumes.pods()
	if err != nil {
		return err
	}
	for _, uid := range uids {
		has := func(p PodState) bool { return p.UID == uid }
		if slices.ContainsFunc(pods, has) || a.worker(uid) != nil {
			continue
		}
		if err := a.volumes.remove(uid); err != nil {
			return err
		}
	}
	return nil
}

// answerMax is how long the agent waits for an answer of the server. Its connection may have died,
// and what is asked next goes over another.
const answerMax = 10 * time.Second

// ask has f ask the server something, which takes answerMax at most.
func ask(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	return f(ctx)
}

// isGone asks the server until it answers.
func (a *Agent) isGone(ctx context.Context, p PodState) (bool, error) {
	for {
		var pod corev1.Pod
		err := ask(ctx, func(ctx context.Context) error {
			return a.Live.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, &pod)
		})
		if err == nil {
			return pod.UID != p.UID, nil
		}
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		a.Logger.Warn("reading a pod", "namespace", p.Namespace, "name", p.Name, "error", err)
		if err := a.sleep(ctx, time.Second); err != nil {
			return false, err
		}
	}
}

// sleep waits on the agent's clock, and returns early with an error when ctx ends.
func (a *Agent) sleep(ctx context.Context, d time.Duration) error {
	timer := a.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}
