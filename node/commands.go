package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/internal/nodewire"
)

// serveExec runs a command beside a container.
func (a *Agent) serveExec(rw http.ResponseWriter, req *http.Request) {
	of, err := a.instanceOf(req)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	command := req.URL.Query()["command"]
	if len(command) == 0 {
		http.Error(rw, "a command is required", http.StatusBadRequest)
		return
	}
	serveSession(rw, req, req.URL.Query().Get("tty") == "true",
		func(ctx context.Context, s Streams) (int32, error) { return a.Runtime.Exec(ctx, of.id, command, s) })
}

// serveAttach connects to a container. Whether it has a terminal is its own
// business, decided when it was started.
func (a *Agent) serveAttach(rw http.ResponseWriter, req *http.Request) {
	of, err := a.instanceOf(req)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	serveSession(rw, req, of.container.TTY,
		func(ctx context.Context, s Streams) (int32, error) { return 0, a.Runtime.Attach(ctx, of.id, s) })
}

// instanceOf finds the running instance that a request names.
func (a *Agent) instanceOf(req *http.Request) (subject, error) {
	pod, w, err := a.podOf(req)
	if err != nil {
		return subject{}, err
	}
	name := req.PathValue("container")
	c := containerNamed(pod, name)
	if c == nil {
		return subject{}, fmt.Errorf("container %s is not valid for pod %s", name, pod.Name)
	}
	states, err := a.Runtime.Pods(req.Context(), w.uid)
	if err != nil {
		return subject{}, err
	}
	in := Input{Pod: pod}
	if len(states) > 0 {
		in.Runtime = &states[0]
	}
	v := look(in, nil)
	if current, ok := v.latest(name); ok && current.Running {
		return subject{pod, in.Runtime, c, current.ID}, nil
	}
	return subject{}, fmt.Errorf("container %q of pod %q is not running: %s", name, pod.Name, whyNot(pod, name))
}

// whyNot says in the status's words why a container does not run.
func whyNot(pod *corev1.Pod, container string) string {
	known := statusOf(&pod.Status, container)
	switch {
	case known == nil:
		return ReasonContainerCreating
	case known.State.Terminated != nil:
		return fmt.Sprintf("%s, exit code %d", known.State.Terminated.Reason, known.State.Terminated.ExitCode)
	case known.State.Waiting != nil:
		return known.State.Waiting.Reason
	default:
		return "it has just ended"
	}
}

func (a *Agent) podOf(req *http.Request) (*corev1.Pod, *worker, error) {
	w := a.workerNamed(req.PathValue("namespace"), req.PathValue("pod"))
	if w == nil {
		return nil, nil, fmt.Errorf("pod %q is not on node %s", req.PathValue("pod"), a.Name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w, nil
}

// serveSession answers with the frames of package nodewire, and runs a command
// once the first has come. It ends when the command has, or the request.
func serveSession(
	rw http.ResponseWriter, req *http.Request, tty bool, run func(context.Context, Streams) (int32, error),
) {
	rw.WriteHeader(http.StatusOK)
	out := &flushedWriter{rw, http.NewResponseController(rw)}
	if out.control.Flush() != nil {
		return
	}
	in := nodewire.NewReader(req.Body)
	if kind, _, err := in.Next(); err != nil || kind != nodewire.Start {
		return
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	frames := nodewire.NewWriter(out)
	s, listen := streamsOf(req, frames, tty)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		listen(in)
		cancel() // the server has gone
	}()
	code, err := run(ctx, s)
	result := nodewire.Result{ExitCode: code}
	if err != nil {
		result = nodewire.Result{Error: err.Error()}
	}
	_ = frames.WriteJSON(nodewire.Done, result) // who has gone needs none
	req.Body.Close()
	<-ended
}

// streamsOf makes the streams that a request asks for, and the function that
// feeds them from the frames that come in.
func streamsOf(req *http.Request, frames *nodewire.Writer, tty bool) (Streams, func(*nodewire.Reader)) {
	asked := func(name string) bool { return req.URL.Query().Get(name) == "true" }
	s := Streams{TTY: tty}
	var typed *io.PipeWriter
	if asked("stdin") {
		s.Stdin, typed = io.Pipe()
	}
	if asked("stdout") {
		s.Stdout = frames.Stream(nodewire.Stdout)
	}
	if asked("stderr") && !tty {
		s.Stderr = frames.Stream(nodewire.Stderr)
	}
	sizes := make(chan nodewire.Size, 1)
	s.Resize = sizes
	return s, func(in *nodewire.Reader) {
		if typed != nil {
			defer typed.Close()
		}
		for {
			kind, payload, err := in.Next()
			if err != nil {
				return
			}
			switch {
			case kind == nodewire.Stdin && typed != nil:
				_, _ = typed.Write(payload) // what nobody reads is lost, as in any pipe
			case kind == nodewire.StdinEnd && typed != nil:
				typed.Close()
			case kind == nodewire.Resize:
				var size nodewire.Size
				if json.Unmarshal(payload, &size) == nil {
					replace(sizes, size)
				}
			}
		}
	}
}

// replace puts the newest size in the place of one that nobody has taken yet.
func replace(sizes chan nodewire.Size, size nodewire.Size) {
	for {
		select {
		case sizes <- size:
			return
		default:
		}
		select {
		case <-sizes:
		default:
		}
	}
}

// flushedWriter sends at once what is written.
type flushedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (w *flushedWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	if err == nil {
		err = w.control.Flush()
	}
	return n, err
}
