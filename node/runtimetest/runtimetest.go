// Package runtimetest checks that a node.Runtime keeps its promises. Each
// runtime runs it in a test of its own:
//
//	func TestRuntime(t *testing.T) {
//		dir := t.TempDir()
//		runtimetest.Run(t, func(*testing.T) node.Runtime { return open(t, dir) })
//	}
package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/logs"
)

// patience bounds each wait for something to happen. A runtime that works needs
// milliseconds; a busy machine may need more.
const patience = 60 * time.Second

// Open opens the runtime under test. Every call within one test opens the same
// state, as an agent does that was killed and started again. What it opens must
// stay open until the check has ended.
type Open func(t *testing.T) node.Runtime

// Run checks all promises, each in a test of its own. The containers run
// /bin/sh.
func Run(t *testing.T, open Open) {
	for name, check := range map[string]func(*testing.T, Open){
		"a container runs and its end is told":           runsAndEnds,
		"a signal that ended it is told":                 tellsSignals,
		"a program that is missing is a start error":     missingProgram,
		"a container without a command waits":            noCommand,
		"an instance starts once":                        startsOnce,
		"stop asks first":                                stopAsks,
		"stop kills who does not listen":                 stopKills,
		"a second stop shortens the grace":               stopShortens,
		"nothing is left of what forked twice":           killsDescendants,
		"exec runs beside the container":                 execs,
		"exec ends with its context":                     execTimesOut,
		"what runs survives the runtime":                 survives,
		"what ended meanwhile is found":                  endedMeanwhile,
		"the two newest instances are kept":              keepsTwo,
		"pods have addresses of their own":               ownAddresses,
		"a removed pod is gone and may be removed again": removes,
	} {
		t.Run(name, func(t *testing.T) { check(t, open) })
	}
}

// Pod is a pod of a runtime under test; it is removed with the test.
type Pod struct {
	t       *testing.T
	Runtime node.Runtime
	UID     types.UID
	IP      string
	changed chan struct{}
}

// NewPod makes a pod in r.
func NewPod(t *testing.T, r node.Runtime) *Pod {
	t.Helper()
	p := &Pod{t: t, UID: uuid.NewUUID()}
	p.Use(r)
	state, err := r.CreatePod(t.Context(), node.PodConfig{UID: p.UID, Namespace: "default", Name: "pod"})
	if err != nil {
		t.Fatalf("CreatePod: %v", err)
	}
	p.IP = state.IP
	t.Cleanup(func() {
		if err := p.Runtime.RemovePod(context.WithoutCancel(t.Context()), p.UID); err != nil {
			t.Errorf("RemovePod: %v", err)
		}
	})
	return p
}

// Use makes r the runtime through which the pod is seen from now on. The one before it is closed if
// it can be, as that of an agent that ended: two would both note the end of what they watch.
func (p *Pod) Use(r node.Runtime) {
	if before, ok := p.Runtime.(io.Closer); ok {
		before.Close()
	}
	changed := make(chan struct{}, 1)
	p.Runtime, p.changed = r, changed
	r.Notify(func(types.UID) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
}

// Start starts an instance of container c that runs a shell script.
func (p *Pod) Start(attempt int32, script string) node.ContainerID {
	p.t.Helper()
	id := node.ContainerID{Pod: p.UID, Name: "c", Attempt: attempt}
	if err := p.Runtime.StartContainer(p.t.Context(), Shell(id, script)); err != nil {
		p.t.Fatalf("StartContainer: %v", err)
	}
	return id
}

// Shell is the config of a container that runs a script.
func Shell(id node.ContainerID, script string) node.ContainerConfig {
	return node.ContainerConfig{
		ID:      id,
		Command: []string{"/bin/sh", "-c", script},
		Env:     []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
	}
}

// State returns what the runtime knows about an instance.
func (p *Pod) State(id node.ContainerID) (node.ContainerState, bool) {
	p.t.Helper()
	pods, err := p.Runtime.Pods(p.t.Context())
	if err != nil {
		p.t.Fatalf("Pods: %v", err)
	}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			if c.ID == id {
				return c, true
			}
		}
	}
	return node.ContainerState{}, false
}

// Ended waits until the instance has ended and returns how.
func (p *Pod) Ended(id node.ContainerID) node.ContainerState {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		if state, ok := p.State(id); ok && !state.Running {
			return state
		}
		select {
		case <-p.changed:
		case <-timeout:
			p.t.Fatalf("%s has not ended", id)
		}
	}
}

// Printed follows the log of an instance until it has printed the line.
func (p *Pod) Printed(id node.ContainerID, line string) {
	p.t.Helper()
	state, ok := p.State(id)
	if !ok {
		p.t.Fatalf("%s is not known", id)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	w := &until{line: line, stop: cancel}
	err := logs.Read(ctx, state.LogPath, logs.ReadOptions{Follow: true}, w)
	if err != nil || !w.seen {
		p.t.Fatalf("%s printed %q, not %q (%v)", id, w.text.String(), line, err)
	}
}

// until stops when a line was written to it.
type until struct {
	line string
	text bytes.Buffer
	seen bool
	stop func()
}

func (w *until) Write(p []byte) (int, error) {
	w.text.Write(p)
	if strings.Contains("\n"+w.text.String(), "\n"+w.line+"\n") {
		w.seen = true
		w.stop()
	}
	return len(p), nil
}

func runsAndEnds(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	before := time.Now()
	id := p.Start(0, "echo out; echo err >&2; exit 3")
	got := p.Ended(id)
	if got.ExitCode != 3 || got.Signal != 0 || got.Reason != "" {
		t.Errorf("ended with code %d, signal %d, reason %q; want code 3 alone", got.ExitCode, got.Signal, got.Reason)
	}
	if got.StartedAt.Before(before) || got.FinishedAt.Before(got.StartedAt) {
		t.Errorf("started %v and finished %v, called at %v", got.StartedAt, got.FinishedAt, before)
	}
	for _, stream := range []string{logs.Stdout, logs.Stderr} {
		var text bytes.Buffer
		if err := logs.Read(t.Context(), got.LogPath, logs.ReadOptions{Stream: stream}, &text); err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimPrefix(stream, "std") + "\n"; text.String() != want {
			t.Errorf("%s is %q, want %q", stream, text.String(), want)
		}
	}
}

func tellsSignals(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	if got := p.Ended(p.Start(0, "kill -9 $$")); got.ExitCode != 137 || got.Signal != 9 {
		t.Errorf("ended with code %d, signal %d; want 137, 9", got.ExitCode, got.Signal)
	}
}

func missingProgram(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	config := Shell(node.ContainerID{Pod: p.UID, Name: "c"}, "")
	config.Command = []string{"no-such-program"}
	if err := p.Runtime.StartContainer(t.Context(), config); err != nil {
		t.Fatalf("StartContainer: %v", err)
	}
	got := p.Ended(config.ID)
	if got.ExitCode != 128 || got.Reason != node.ReasonStartError || !strings.Contains(got.Message, "no-such-program") {
		t.Errorf("ended with code %d, reason %q, message %q", got.ExitCode, got.Reason, got.Message)
	}
}

func noCommand(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	config := Shell(node.ContainerID{Pod: p.UID, Name: "c"}, "")
	config.Command = nil
	err := p.Runtime.StartContainer(t.Context(), config)
	if err == nil {
		return // this runtime takes the command from the image
	}
	var start *node.StartError
	if !errors.As(err, &start) || start.Reason != node.ReasonCreateConfigError {
		t.Errorf("StartContainer: %v, want a StartError with reason %s", err, node.ReasonCreateConfigError)
	}
}

func startsOnce(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	mark := t.TempDir() + "/runs"
	script := fmt.Sprintf("echo run >>%s; echo ready; exec sleep 600", mark)
	id := node.ContainerID{Pod: p.UID, Name: "c"}
	errs := make(chan error)
	for range 4 {
		go func() { errs <- p.Runtime.StartContainer(t.Context(), Shell(id, script)) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Errorf("StartContainer: %v", err)
		}
	}
	p.Use(open(t))
	p.Start(0, script)
	p.Printed(id, "ready")
	count := p.Start(1, "wc -l <"+mark)
	p.Ended(count)
	p.Printed(count, "1")
}

func stopAsks(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	id := p.Start(0, `trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 600 & wait $!; done`)
	p.Printed(id, "ready")
	if err := p.Runtime.StopContainer(t.Context(), id, patience); err != nil {
		t.Fatalf("StopContainer: %v", err)
	}
	state, _ := p.State(id)
	if state.Running || state.ExitCode != 7 {
		t.Errorf("after StopContainer: %+v, want exit code 7", state)
	}
	p.Printed(id, "bye")
	if err := p.Runtime.StopContainer(t.Context(), id, 0); err != nil {
		t.Errorf("a second StopContainer: %v", err)
	}
}

func stopKills(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	id := p.Start(0, `trap '' TERM; echo ready; while :; do sleep 600; done`)
	p.Printed(id, "ready")
	if err := p.Runtime.StopContainer(t.Context(), id, 50*time.Millisecond); err != nil {
		t.Fatalf("StopContainer: %v", err)
	}
	if state, _ := p.State(id); state.Running || state.ExitCode != 137 {
		t.Errorf("after StopContainer: %+v, want exit code 137", state)
	}
}

func stopShortens(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	id := p.Start(0, `trap 'echo asked' TERM; echo ready; while :; do sleep 600 & wait $!; done`)
	p.Printed(id, "ready")
	first := make(chan error)
	go func() { first <- p.Runtime.StopContainer(t.Context(), id, 24*time.Hour) }()
	p.Printed(id, "asked")
	if err := p.Runtime.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatalf("StopContainer: %v", err)
	}
	if err := <-first; err != nil {
		t.Errorf("the first StopContainer: %v", err)
	}
}

func killsDescendants(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	// A daemon that left its session and its parent, and holds a pipe that the
	// test would see the end of.
	fifo := t.TempDir() + "/fifo"
	id := p.Start(0, fmt.Sprintf(`mkfifo %s; (setsid sh -c 'exec 9>%s; exec sleep 600' &) ; exec 9<%s; echo ready`, fifo, fifo, fifo))
	p.Printed(id, "ready")
	p.Ended(id)
	// Opening the pipe for writing without waiting fails if nobody reads; a
	// reader without a writer sees its end at once, which is what cat waits for.
	check := p.Start(1, fmt.Sprintf(`exec 8<>%s; exec 9<%s; exec 8>&-; cat <&9; echo alone`, fifo, fifo))
	p.Printed(check, "alone")
}

func execs(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	id := node.ContainerID{Pod: p.UID, Name: "c"}
	config := Shell(id, "echo ready; exec sleep 600")
	config.Env = append(config.Env, "GREETING=hello")
	if err := p.Runtime.StartContainer(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	p.Printed(id, "ready")
	var out, errs bytes.Buffer
	code, err := p.Runtime.Exec(t.Context(), id, []string{"sh", "-c", "cat; echo $GREETING; echo oops >&2; exit 4"},
		node.Streams{Stdin: io.NopCloser(strings.NewReader("typed ")), Stdout: &out, Stderr: &errs})
	if err != nil || code != 4 || out.String() != "typed hello\n" || errs.String() != "oops\n" {
		t.Errorf("Exec: code %d, output %q and %q, %v; want 4, typed hello, oops", code, &out, &errs, err)
	}
	if _, err := p.Runtime.Exec(t.Context(), node.ContainerID{Pod: p.UID, Name: "other"}, []string{"true"}, node.Streams{}); err == nil {
		t.Error("Exec in a container that does not run: no error")
	}
	if _, err := p.Runtime.Exec(t.Context(), id, []string{"no-such-program"}, node.Streams{}); err == nil ||
		!strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("Exec of a program that is missing: %v", err)
	}
}

func execTimesOut(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	id := p.Start(0, "echo ready; exec sleep 600")
	p.Printed(id, "ready")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Runtime.Exec(ctx, id, []string{"sleep", "600"}, node.Streams{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Exec: %v, want the context's error", err)
	}
}

func survives(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	id := p.Start(0, "echo ready; exec sleep 600")
	p.Printed(id, "ready")
	before, _ := p.State(id)
	p.Use(open(t))
	after, ok := p.State(id)
	if !ok || !after.Running || !after.StartedAt.Equal(before.StartedAt) {
		t.Fatalf("after a restart: %+v, want %+v", after, before)
	}
	if err := p.Runtime.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if got := p.Ended(id); got.ExitCode != 137 {
		t.Errorf("ended with %+v, want code 137", got)
	}
}

func endedMeanwhile(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	id := p.Start(0, "exit 5")
	before := p.Ended(id)
	p.Use(open(t))
	after, _ := p.State(id)
	if after.Running || after.ExitCode != 5 || !after.FinishedAt.Equal(before.FinishedAt) {
		t.Errorf("after a restart: %+v, want %+v", after, before)
	}
}

func keepsTwo(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	for attempt := range int32(3) {
		p.Ended(p.Start(attempt, "true"))
	}
	for attempt, want := range []bool{false, true, true} {
		id := node.ContainerID{Pod: p.UID, Name: "c", Attempt: int32(attempt)}
		if _, ok := p.State(id); ok != want {
			t.Errorf("instance %d is kept: %v, want %v", attempt, ok, want)
		}
	}
}

func ownAddresses(t *testing.T, open Open) {
	r := open(t)
	a, b := NewPod(t, r), NewPod(t, r)
	if a.IP == "" || a.IP == b.IP {
		t.Errorf("addresses %q and %q, want two", a.IP, b.IP)
	}
	again, err := open(t).CreatePod(t.Context(), node.PodConfig{UID: a.UID})
	if err != nil || again.IP != a.IP {
		t.Errorf("after a restart the address is %q (%v), want %q", again.IP, err, a.IP)
	}
}

func removes(t *testing.T, open Open) {
	p := NewPod(t, open(t))
	id := p.Start(0, "echo ready; exec sleep 600")
	p.Printed(id, "ready")
	for range 2 {
		if err := p.Runtime.RemovePod(t.Context(), p.UID); err != nil {
			t.Fatalf("RemovePod: %v", err)
		}
		if state, ok := p.State(id); ok {
			t.Fatalf("after RemovePod: %+v", state)
		}
	}
	p.Use(open(t))
	if state, ok := p.State(id); ok {
		t.Fatalf("after RemovePod and a restart: %+v", state)
	}
}
