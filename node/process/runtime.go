package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/logs"
)

// instancesKept is how many instances of a container are remembered: the one
// that runs and the one before it, for `kubectl logs --previous`.
const instancesKept = 2

// Options configure a Runtime.
type Options struct {
	StateDir string       // must be on a disk that outlives the agent
	Log      logs.Options // bounds on each instance's log
	// AddressDir holds the claims on pod addresses and must be the same for all
	// runtimes on the machine; empty means a directory under the temporary one.
	AddressDir string
}

// Runtime is a node.Runtime that runs processes. Make it with New.
type Runtime struct {
	stateDir  string
	log       logs.Options
	addresses addresses
	cgroups   string // the parent of all groups; empty means none

	mu       sync.Mutex
	pods     map[types.UID]*podRecord
	running  map[node.ContainerID]*instance // every instance kept, running or not
	changed  func(types.UID)
	closed   bool
	watchers sync.WaitGroup
}

var _ node.Runtime = (*Runtime)(nil)

// instance is one instance of a container; the Runtime's mutex guards it.
type instance struct {
	state  node.ContainerState
	config shimConfig
	pid    int
	shim   *pidfd        // while it runs
	done   chan struct{} // closed when it has ended
	asked  bool          // it was told to end
}

// New returns a Runtime that goes on with what an earlier one on the same state
// directory has left running. Close stops the watching, not the containers.
func New(opts Options) (*Runtime, error) {
	if opts.AddressDir == "" {
		opts.AddressDir = filepath.Join(os.TempDir(), fmt.Sprintf("setpoint-addresses-%d", os.Getuid()))
	}
	stateDir, err := filepath.Abs(opts.StateDir)
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		stateDir:  stateDir,
		log:       opts.Log,
		addresses: addresses{opts.AddressDir},
		cgroups:   cgroupParent("/proc/self/mountinfo"),
		pods:      map[types.UID]*podRecord{},
		running:   map[node.ContainerID]*instance{},
		changed:   func(types.UID) {},
	}
	if err := os.MkdirAll(filepath.Join(stateDir, "pods"), 0o750); err != nil {
		return nil, err
	}
	return r, r.adoptAll()
}

// Close stops watching. The containers run on.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.closed = true
	for _, i := range r.running {
		if i.shim != nil {
			i.shim.Close()
		}
	}
	r.mu.Unlock()
	r.watchers.Wait()
	return nil
}

// Notify implements node.Runtime.
func (r *Runtime) Notify(changed func(types.UID)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
}

// CreatePod implements node.Runtime.
func (r *Runtime) CreatePod(_ context.Context, pod node.PodConfig) (node.PodState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.pods[pod.UID]; !ok {
		dir := r.podDir(pod.UID)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return node.PodState{}, err
		}
		record := &podRecord{
			UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name,
			HostNetwork: pod.HostNetwork, CreatedAt: time.Now(),
		}
		if !pod.HostNetwork {
			addr, err := r.addresses.claim(pod.UID, dir)
			if err != nil {
				return node.PodState{}, err
			}
			record.IP = addr.String()
		}
		if err := writeJSON(filepath.Join(dir, "pod.json"), record); err != nil {
			return node.PodState{}, err
		}
		r.pods[pod.UID] = record
	}
	return r.podState(pod.UID), nil
}

// Pods implements node.Runtime.
func (r *Runtime) Pods(_ context.Context, uids ...types.UID) ([]node.PodState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(uids) == 0 {
		uids = slices.Collect(maps.Keys(r.pods))
	}
	pods := make([]node.PodState, 0, len(uids))
	for _, uid := range uids {
		if _, ok := r.pods[uid]; ok {
			pods = append(pods, r.podState(uid))
		}
	}
	return pods, nil
}

func (r *Runtime) podState(uid types.UID) node.PodState {
	pod := r.pods[uid]
	state := node.PodState{
		UID: uid, Namespace: pod.Namespace, Name: pod.Name, IP: pod.IP, CreatedAt: pod.CreatedAt,
	}
	for id, i := range r.running {
		if id.Pod == uid {
			state.Containers = append(state.Containers, i.state)
		}
	}
	return state
}

// StartContainer implements node.Runtime.
func (r *Runtime) StartContainer(ctx context.Context, config node.ContainerConfig) error {
	id := config.ID
	if len(config.Command) == 0 {
		return &node.StartError{
			Reason:  node.ReasonCreateConfigError,
			Message: fmt.Sprintf("container %q has no command: this runtime runs programs of the machine, not images", id.Name),
		}
	}
	r.mu.Lock()
	_, known := r.running[id]
	_, created := r.pods[id.Pod]
	r.mu.Unlock()
	if known {
		return nil
	}
	if !created {
		return fmt.Errorf("start %s: the pod was not created", id)
	}
	d := r.instanceDir(id)
	if err := os.MkdirAll(filepath.Dir(string(d)), 0o750); err != nil {
		return err
	}
	// Made once: of two calls, or a call before a crash and one after, one starts it.
	if err := os.Mkdir(string(d), 0o750); err != nil {
		if os.IsExist(err) {
			return nil
		}
		return err
	}
	config.Env = environment(config)
	full := shimConfig{ContainerConfig: config, Log: r.log}
	if r.cgroups != "" {
		full.Cgroup = filepath.Join(r.cgroups, strings.ReplaceAll(id.String(), "/", "_"))
	}
	err := writeJSON(d.config(), full)
	if err == nil {
		err = launch(ctx, d)
	}
	if adoptErr := r.adopt(id); err == nil {
		err = adoptErr
	}
	r.prune(id)
	return err
}

// environment completes the variables of a container. Its own come last, where
// they win.
func environment(config node.ContainerConfig) []string {
	env := []string{
		"PATH=" + searchPath(),
		"HOME=" + os.Getenv("HOME"),
		instanceVariable + "=" + config.ID.String(),
	}
	for _, m := range config.Mounts {
		name := strings.ToUpper(strings.ReplaceAll(m.Name, "-", "_"))
		env = append(env, "SETPOINT_VOLUME_"+name+"="+m.Source)
	}
	return append(env, config.Env...)
}

// searchPath is the agent's, and behind it where the agent's own program is, so
// that a container may run it by its name.
func searchPath() string {
	path := os.Getenv("PATH")
	if file, err := os.Executable(); err == nil {
		path += string(filepath.ListSeparator) + filepath.Dir(file)
	}
	return path
}

// launchTimeout bounds the wait for a shim to start its container. Making a
// process takes milliseconds; a machine that needs this long is in trouble.
const launchTimeout = 30 * time.Second

// launch executes a shim and returns when it has started its container, or
// failed to and recorded why.
func launch(ctx context.Context, d dir) error {
	ready, readyW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := &exec.Cmd{
		Path:        self,
		Args:        []string{"setpoint", shimCommand, string(d)},
		Dir:         "/",
		Env:         []string{"GOMAXPROCS=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()},
		ExtraFiles:  []*os.File{readyW},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	readyW.Close()
	if err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	_ = cmd.Process.Release() // it is reaped by its watcher
	deadline := time.Now().Add(launchTimeout)
	if t, ok := ctx.Deadline(); ok && t.Before(deadline) {
		deadline = t
	}
	if err := ready.SetReadDeadline(deadline); err != nil {
		return err
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("start shim: %w", err)
	}
	return nil
}

// StopContainer implements node.Runtime.
func (r *Runtime) StopContainer(ctx context.Context, id node.ContainerID, grace time.Duration) error {
	r.mu.Lock()
	i, ok := r.running[id]
	if !ok || i.shim == nil {
		r.mu.Unlock()
		return nil
	}
	ask := !i.asked && grace > 0
	i.asked = i.asked || ask
	shim, done := i.shim, i.done
	r.mu.Unlock()

	steps := []struct {
		signal unix.Signal
		wait   time.Duration
	}{{0, grace}, {signalKill, shimPatience}, {unix.SIGKILL, launchTimeout}}
	if ask {
		steps[0].signal = signalTerminate
	}
	for _, step := range steps {
		if step.signal != 0 {
			if err := shim.Signal(step.signal); errors.Is(err, os.ErrClosed) && r.isClosed() {
				return fmt.Errorf("stop %s: the runtime was closed", id)
			}
		}
		timer := time.NewTimer(step.wait)
		select {
		case <-done:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	return fmt.Errorf("stop %s: process %d does not die", id, i.pid)
}

func (r *Runtime) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// shimPatience is how long a shim may take to kill its container before it is
// itself killed, and the container with it.
const shimPatience = 5 * time.Second

// RemovePod implements node.Runtime.
func (r *Runtime) RemovePod(ctx context.Context, uid types.UID) error {
	r.mu.Lock()
	pod, ok := r.pods[uid]
	var ids []node.ContainerID
	for id := range r.running {
		if id.Pod == uid {
			ids = append(ids, id)
		}
	}
	r.mu.Unlock()
	if !ok {
		return nil
	}
	for _, id := range ids {
		if err := r.StopContainer(ctx, id, 0); err != nil {
			return err
		}
	}
	r.addresses.release(pod.IP, r.podDir(uid))
	if err := os.RemoveAll(r.podDir(uid)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		delete(r.running, id)
	}
	delete(r.pods, uid)
	return nil
}

// prune forgets the instances of a container that are older than those kept.
func (r *Runtime) prune(newest node.ContainerID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, i := range r.running {
		old := id.Pod == newest.Pod && id.Name == newest.Name && id.Attempt <= newest.Attempt-instancesKept
		if old && !i.state.Running {
			delete(r.running, id)
			_ = os.RemoveAll(string(r.instanceDir(id)))
		}
	}
}

// adoptAll reads the state directory. A pod without a record is one that was
// about to be made, or all but removed, when the agent was killed: no container
// of it runs, and what is left of it goes.
func (r *Runtime) adoptAll() error {
	dirs, err := filepath.Glob(filepath.Join(r.stateDir, "pods", "*"))
	if err != nil {
		return err
	}
	for _, podDir := range dirs {
		var pod podRecord
		err := readJSON(filepath.Join(podDir, "pod.json"), &pod)
		if os.IsNotExist(err) {
			err = os.RemoveAll(podDir)
		}
		if err != nil {
			return err
		}
		if pod.UID == "" {
			continue
		}
		r.pods[pod.UID] = &pod
		instances, err := filepath.Glob(filepath.Join(podDir, "containers", "*", "*"))
		if err != nil {
			return err
		}
		for _, d := range instances {
			attempt, err := strconv.ParseInt(filepath.Base(d), 10, 32)
			if err != nil {
				continue
			}
			id := node.ContainerID{Pod: pod.UID, Name: filepath.Base(filepath.Dir(d)), Attempt: int32(attempt)}
			if err := r.adopt(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// adopt reads the state of an instance and watches it if it runs.
func (r *Runtime) adopt(id node.ContainerID) error {
	d := r.instanceDir(id)
	i := &instance{
		state: node.ContainerState{ID: id, LogPath: d.log()},
		done:  make(chan struct{}),
	}
	// Missing or half of it: then it was never started, which lost will say.
	_ = readJSON(d.config(), &i.config)
	shim, err := holder(d.lock())
	if err != nil {
		return err
	}
	var run runRecord
	if err := readJSON(d.state(), &run); err == nil {
		i.pid, i.state.StartedAt = run.PID, run.StartedAt
	}
	if shim == nil {
		if err := r.ended(i, d); err != nil {
			return err
		}
		close(i.done)
	} else {
		i.shim, i.state.Running = shim, true
		if i.state.StartedAt.IsZero() {
			i.state.StartedAt = time.Now() // it is about to
		}
	}
	r.mu.Lock()
	r.running[id] = i
	if shim != nil && !r.closed {
		r.watchers.Go(func() { r.watch(i, d) })
	}
	changed := r.changed
	r.mu.Unlock()
	changed(id.Pod)
	return nil
}

// watch waits for an instance's shim to end and records how the instance did.
func (r *Runtime) watch(i *instance, d dir) {
	if err := i.shim.Wait(); err != nil {
		return // the Runtime was closed
	}
	// Reap it, if it is a child of this process and not of an earlier agent.
	_, _ = unix.Wait4(i.shim.pid, nil, unix.WNOHANG, nil)
	ended := &instance{state: i.state, config: i.config}
	err := r.ended(ended, d)
	r.mu.Lock()
	if err != nil {
		ended.state.Running = false
		ended.state.ExitCode, ended.state.Reason = 137, node.ReasonStatusUnknown
		ended.state.Message, ended.state.FinishedAt = err.Error(), time.Now()
	}
	i.state = ended.state
	i.shim.Close()
	i.shim = nil
	changed := r.changed
	r.mu.Unlock()
	close(i.done)
	changed(i.state.ID.Pod)
}

// ended completes the state of an instance that has no shim any more.
func (r *Runtime) ended(i *instance, d dir) error {
	lock, ours, err := acquire(d.lock())
	if err != nil || !ours {
		return errors.Join(err, fmt.Errorf("%s: another process took its lock", d))
	}
	defer lock.Close()
	var exit exitRecord
	err = readJSON(d.exit(), &exit)
	if os.IsNotExist(err) {
		exit, err = r.lost(i, d)
	}
	if err != nil {
		return err
	}
	s := &i.state
	s.Running = false
	s.ExitCode, s.Signal, s.Reason, s.Message = exit.ExitCode, exit.Signal, exit.Reason, exit.Message
	s.FinishedAt = exit.FinishedAt
	if s.StartedAt.IsZero() {
		s.StartedAt = exit.FinishedAt
	}
	return nil
}

// lost records the end of an instance whose shim did not: it was killed, or the
// machine went down. The lock is held, so a late shim finds the record.
func (r *Runtime) lost(i *instance, d dir) (exitRecord, error) {
	killMarked(i.state.ID)
	if g, err := newCgroup(i.config.Cgroup, node.Resources{}); err == nil {
		g.kill()
		g.remove()
	}
	exit := exitRecord{
		ExitCode: 137, Reason: node.ReasonStatusUnknown,
		Message:    "the container could not be located: its record of how it ended is missing",
		FinishedAt: time.Now(),
	}
	return exit, writeJSON(d.exit(), exit)
}

// Dial implements node.Runtime. A pod's processes are reached at its address,
// which is the machine's own for one that uses the host's network.
func (r *Runtime) Dial(ctx context.Context, pod types.UID, port uint16) (net.Conn, error) {
	r.mu.Lock()
	record, ok := r.pods[pod]
	r.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("pod %s is not on this machine", pod)
	}
	ip := cmp.Or(record.IP, "127.0.0.1")
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(int(port))))
}

// Resize implements node.Runtime.
func (r *Runtime) Resize(_ context.Context, id node.ContainerID, to node.Resources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ok := r.running[id]
	if !ok || !i.state.Running {
		return fmt.Errorf("resize %s: it is not running", id)
	}
	if i.config.Cgroup != "" {
		limit(i.config.Cgroup, to, true)
	}
	return nil
}
