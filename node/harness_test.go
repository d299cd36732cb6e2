package node_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/internal/fakeapi"
	"github.com/setpoint-dev/setpoint/node/process"
)

func TestMain(m *testing.M) {
	if handled, code := process.Main(os.Args); handled {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// patience bounds each wait; a working agent needs milliseconds.
const patience = 60 * time.Second

// events remembers what people were told.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, reason+": "+fmt.Sprintf(note, args...))
}

func (e *events) has(event string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, got := range e.list {
		if got == event {
			return true
		}
	}
	return false
}

// machine is a machine with a state directory, on which agents come and go.
type machine struct {
	*fakeapi.API
	*events
	t       *testing.T
	dir     string
	agent   *node.Agent
	runtime node.Runtime
	stop    func()
	tunnel  func(context.Context) (io.ReadWriteCloser, error)
}

func newMachine(t *testing.T) *machine {
	m := &machine{API: fakeapi.New(), events: &events{}, t: t, dir: t.TempDir()}
	t.Cleanup(func() {
		if m.stop != nil {
			m.stop()
		}
		m.removeAll()
	})
	return m
}

// boot starts an agent; it runs until stop or the test's end.
func (m *machine) boot() {
	m.t.Helper()
	r, err := process.New(process.Options{
		StateDir: filepath.Join(m.dir, "state"), AddressDir: filepath.Join(m.dir, "addresses"),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	agent, err := node.New(node.Options{
		Name: "n1", Client: m, Informers: m.API, Recorder: m.events, Runtime: r, Dir: filepath.Join(m.dir, "volumes"),
		Tunnel: m.tunnel,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.agent, m.runtime = agent, r
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	m.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			m.t.Errorf("Run: %v", err)
		}
		r.Close()
		m.stop = nil
	}
}

// removeAll ends what an agent has left running, as agents do.
func (m *machine) removeAll() {
	r, err := process.New(process.Options{
		StateDir: filepath.Join(m.dir, "state"), AddressDir: filepath.Join(m.dir, "addresses"),
	})
	if err != nil {
		m.t.Error(err)
		return
	}
	defer r.Close()
	pods, _ := r.Pods(context.Background())
	for _, p := range pods {
		if err := r.RemovePod(context.Background(), p.UID); err != nil {
			m.t.Error(err)
		}
	}
}

// run creates a pod of shell scripts on the node.
func (m *machine) run(name string, change func(*corev1.Pod), scripts ...string) *corev1.Pod {
	m.t.Helper()
	pod := shellPod(name, scripts...)
	if change != nil {
		change(pod)
	}
	if err := m.Create(m.t.Context(), pod); err != nil {
		m.t.Fatal(err)
	}
	return pod
}

// shellPod has one container, c0, c1, … for each script.
func shellPod(name string, scripts ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uuid.NewUUID(), Generation: 1},
		Spec:       corev1.PodSpec{NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways},
	}
	for i, script := range scripts {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("c%d", i), Image: "none", Command: []string{"/bin/sh", "-c", script},
		})
	}
	return pod
}

// await waits until the pod is as said and returns it; nil stands for its absence.
func (m *machine) await(pod *corev1.Pod, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	w, err := m.Watch(ctx, &corev1.PodList{})
	if err != nil {
		m.t.Fatal(err)
	}
	defer w.Stop()
	for {
		var got corev1.Pod
		err := m.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, &got)
		current := &got
		if client.IgnoreNotFound(err) != nil {
			m.t.Fatal(err)
		}
		if err != nil || got.UID != pod.UID {
			current = nil
		}
		if is(current) {
			return current
		}
		select {
		case <-w.ResultChan():
		case <-ctx.Done():
			m.t.Fatalf("%s: not %s: %+v", pod.Name, what, got.Status)
		}
	}
}

func ready(pod *corev1.Pod) bool { return pod != nil && condition(pod, corev1.PodReady) }

func condition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func phase(want corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == want }
}

func gone(pod *corev1.Pod) bool { return pod == nil }

func rawMerge(patch []byte) client.Patch { return client.RawPatch(types.MergePatchType, patch) }
