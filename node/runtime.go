package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/nodewire"
)

// Runtime is what runs containers for an agent. The agent decides; a runtime
// only does, and says what is there. Package node/runtimetest checks that an
// implementation keeps these promises:
//
//   - What it runs survives the agent. A new Runtime on the same state finds
//     every pod and container of the old one.
//   - An instance of a container (a ContainerID) is started at most once, ever.
//   - Every method may be repeated: what is done already is not an error.
//   - Records and logs of the two newest instances of each container are kept
//     until the pod is removed.
//
// All methods may be called concurrently.
type Runtime interface {
	// CreatePod makes what the containers of a pod share, its address above all.
	CreatePod(ctx context.Context, pod PodConfig) (PodState, error)

	// StartContainer starts one instance of a container. An instance whose
	// program can't be executed is started all the same: it shows as exited,
	// with code 128 and reason StartError. The error is for what prevented even
	// that, and is a *StartError when its reason belongs into the pod's status.
	StartContainer(ctx context.Context, config ContainerConfig) error

	// StopContainer asks an instance to end, gives it grace to do so, kills all
	// of its processes, and returns when none is left. A second call may shorten
	// the grace of the first. When ctx ends first, nothing is killed.
	StopContainer(ctx context.Context, id ContainerID, grace time.Duration) error

	// Exec runs a command beside a running instance, in the same surroundings,
	// and returns its exit code. When ctx ends it is killed, with all of its
	// session. What it leaves behind lives on and ends with the container.
	Exec(ctx context.Context, id ContainerID, command []string, s Streams) (int32, error)

	// Attach connects streams to the main process of a running instance, until
	// that ends or ctx does. Its input is Stdin if it was declared to have one.
	Attach(ctx context.Context, id ContainerID, s Streams) error

	// Dial connects to a TCP port of a pod.
	Dial(ctx context.Context, pod types.UID, port uint16) (net.Conn, error)

	// Resize gives a running instance other limits, where the runtime enforces
	// them at all.
	Resize(ctx context.Context, id ContainerID, to Resources) error

	// RemovePod kills what still runs of a pod and forgets the pod.
	RemovePod(ctx context.Context, uid types.UID) error

	// Pods returns those of the named pods that there are, or all when none is
	// named, in no particular order.
	Pods(ctx context.Context, uids ...types.UID) ([]PodState, error)

	// Notify names the function to call when an instance of a pod has started
	// or ended. It must return quickly.
	Notify(changed func(pod types.UID))
}

// Prober is a Runtime that answers probes itself. Those of other runtimes are
// answered by what listens at the pod's address.
type Prober interface {
	// Probe asks a running instance once. The error says why the answer is not
	// a success.
	Probe(ctx context.Context, id ContainerID, handler *corev1.ProbeHandler) error
}

// PodConfig says which pod is to be made.
type PodConfig struct {
	UID             types.UID
	Namespace, Name string
	HostNetwork     bool // the pod uses the machine's own address
}

// ContainerID names one instance of one container, for ever.
type ContainerID struct {
	Pod     types.UID
	Name    string
	Attempt int32 // 0 for the first instance; the restart count
}

func (id ContainerID) String() string {
	return fmt.Sprintf("%s/%s/%d", id.Pod, id.Name, id.Attempt)
}

// ContainerConfig is all that a runtime needs to start an instance. Everything
// in it is final: references are resolved, variables expanded.
type ContainerConfig struct {
	ID          ContainerID
	Image       string
	Command     []string // the program and its arguments
	Env         []string // NAME=value
	WorkingDir  string   // empty means the runtime's choice
	Mounts      []Mount
	User, Group *int64
	Groups      []int64 // supplementary groups
	Resources   Resources

	// Init and Job say who waits for the instance to end: the containers after it,
	// and the pod's Job. A runtime that runs programs need not know.
	Init, Job bool

	// What clients may attach to. With StdinOnce the input ends with the first
	// client's; with TTY the three streams are one terminal.
	Stdin, StdinOnce, TTY bool
}

// Sized is a Runtime that says itself how much it can run. Any other has all of the machine.
type Sized interface {
	Capacity() corev1.ResourceList // a new one at each call
}

// Resources bound what an instance uses.
type Resources struct {
	MemoryMax   int64 // bytes; 0 means no limit
	CPUMilli    int64 // requested, a thousandth of a CPU; 0 means none
	CPUMilliMax int64 // 0 means no limit
}

// Mount makes a directory or file of the machine visible to a container.
type Mount struct {
	Name     string // of the volume
	Source   string // on the machine
	Target   string // the path in the container
	ReadOnly bool
}

// PodState is what a runtime knows about a pod.
type PodState struct {
	UID             types.UID
	Namespace, Name string
	IP              string // empty with HostNetwork
	CreatedAt       time.Time
	Containers      []ContainerState // every instance that is kept, in no particular order
}

// ContainerState is what a runtime knows about an instance.
type ContainerState struct {
	ID         ContainerID
	Running    bool
	StartedAt  time.Time
	FinishedAt time.Time // zero while it runs
	ExitCode   int32     // 128 + the signal's number when a signal ended it
	Signal     int32     // what ended it, or 0
	Reason     string    // set where the runtime knows more than the exit code says
	Message    string
	LogPath    string // a file that package logs reads; empty when there is none
}

// Streams are the ends of a command's or container's streams. Each may be nil.
// A writer is waited for, and must fail when the context of the call ends.
type Streams struct {
	Stdin  io.ReadCloser // closed by the call, before it returns
	Stdout io.Writer
	Stderr io.Writer // not used with TTY, where all output is Stdout

	TTY    bool                 // run on a terminal; of Exec
	Resize <-chan nodewire.Size // the terminal's sizes, until it is closed
}

// StartError is an error of StartContainer whose reason is shown in the status
// of the container while it waits.
type StartError struct {
	Reason  string // such as CreateContainerConfigError
	Message string
}

func (e *StartError) Error() string { return e.Message }

// Reasons a container waits or ended, worded as a kubelet words them.
const (
	ReasonPodInitializing   = "PodInitializing"
	ReasonContainerCreating = "ContainerCreating"
	ReasonCrashLoopBackOff  = "CrashLoopBackOff"
	ReasonCreateConfigError = "CreateContainerConfigError"
	ReasonRunContainerError = "RunContainerError"
	ReasonStartError        = "StartError"
	ReasonCompleted         = "Completed"
	ReasonError             = "Error"
	ReasonOOMKilled         = "OOMKilled"
	ReasonStatusUnknown     = "ContainerStatusUnknown"
)
