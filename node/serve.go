package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/node/logs"
)

// Handler answers what the API server asks of a node:
//
//	GET  /containerLogs/{namespace}/{pod}/{container}  with core/v1 PodLogOptions
//	POST /exec/{namespace}/{pod}/{container}           with core/v1 PodExecOptions
//	POST /attach/{namespace}/{pod}/{container}         with core/v1 PodAttachOptions
//	POST /portForward/{namespace}/{pod}/{port}         a connection to the pod
//	POST /connect/{port}                               a connection to the machine
//	GET  /pods, /healthz                               for people, by nodes/proxy
//
// An error is a line of text that says it to a person. Commands speak the frames
// of package nodewire.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", a.serveLogs)
	mux.HandleFunc("POST /exec/{namespace}/{pod}/{container}", a.serveExec)
	mux.HandleFunc("POST /attach/{namespace}/{pod}/{container}", a.serveAttach)
	mux.HandleFunc("POST /portForward/{namespace}/{pod}/{port}", a.servePodPort)
	mux.HandleFunc("POST /connect/{port}", a.serveNodePort)
	mux.HandleFunc("GET /pods", a.servePods)
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "ok") })
	return mux
}

// servePods lists the pods of the node as the agent knows them.
func (a *Agent) servePods(rw http.ResponseWriter, _ *http.Request) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	for _, w := range a.allWorkers() {
		w.mu.Lock()
		pod := w.pod
		w.mu.Unlock()
		if pod != nil {
			list.Items = append(list.Items, *pod)
		}
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(&list) // who has gone needs no answer
}

func (a *Agent) serveLogs(rw http.ResponseWriter, req *http.Request) {
	opts, previous, err := logOptions(req.URL.Query(), a.Clock.Now())
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	pod, name := req.PathValue("pod"), req.PathValue("container")
	w := a.workerNamed(req.PathValue("namespace"), pod)
	if w == nil {
		http.Error(rw, fmt.Sprintf("pod %q: not found on node %s", pod, a.Name), http.StatusNotFound)
		return
	}
	instance, err := a.logged(req.Context(), w, name, previous)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	if opts.Follow {
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		opts.Done = a.untilEnded(ctx, instance)
	}
	rw.Header().Set("Content-Type", "text/plain")
	out := &flushed{ResponseWriter: rw}
	if opts.Follow {
		out.Flush() // the reader sees at once that there is something to wait for
	}
	if err := logs.Read(req.Context(), instance.LogPath, opts, out); err != nil && req.Context().Err() == nil {
		// What was written can't be taken back; it must not look complete.
		a.Logger.Warn("reading a log", "pod", pod, "container", name, "error", err)
		panic(http.ErrAbortHandler)
	}
}

// flushed passes on what was written whenever the log's reader has caught up.
type flushed struct{ http.ResponseWriter }

func (f *flushed) Flush() { _ = http.NewResponseController(f.ResponseWriter).Flush() }

// workerNamed finds the pod by name. While one is being replaced by another of
// the same name, the newer is meant.
func (a *Agent) workerNamed(namespace, name string) *worker {
	var found *worker
	var newest uint64
	for _, w := range a.allWorkers() {
		w.mu.Lock()
		pod := w.pod
		w.mu.Unlock()
		if pod != nil && pod.Namespace == namespace && pod.Name == name && revision(pod) >= newest {
			found, newest = w, revision(pod)
		}
	}
	return found
}

// logged finds the instance whose log is wanted.
func (a *Agent) logged(ctx context.Context, w *worker, name string, previous bool) (ContainerState, error) {
	w.mu.Lock()
	pod := w.pod
	w.mu.Unlock()
	if containerNamed(pod, name) == nil {
		return ContainerState{}, fmt.Errorf("container %s is not valid for pod %s", name, pod.Name)
	}
	states, err := a.Runtime.Pods(ctx, w.uid)
	if err != nil {
		return ContainerState{}, err
	}
	in := Input{Pod: pod}
	if len(states) > 0 {
		in.Runtime = &states[0]
	}
	v := look(in, nil)
	two := v.instances[name]
	switch {
	case previous && (two[1] == nil || two[1].LogPath == ""):
		if two[0] != nil && !two[0].Running && two[0].LogPath != "" {
			if known := statusOf(&pod.Status, name); known != nil && known.State.Waiting != nil {
				return *two[0], nil // it has ended and the next one waits
			}
		}
		return ContainerState{}, fmt.Errorf("previous terminated container %q in pod %q not found", name, pod.Name)
	case previous:
		return *two[1], nil
	case two[0] == nil || two[0].LogPath == "":
		reason := ReasonContainerCreating
		if known := statusOf(&pod.Status, name); known != nil && known.State.Waiting != nil {
			reason = known.State.Waiting.Reason
		}
		return ContainerState{}, fmt.Errorf("container %q in pod %q is waiting to start: %s", name, pod.Name, reason)
	}
	return *two[0], nil
}

// untilEnded returns a channel that is closed when the instance has ended, or
// ctx.
func (a *Agent) untilEnded(ctx context.Context, c ContainerState) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			changed := a.nextChange(c.ID.Pod)
			running := false
			states, err := a.Runtime.Pods(ctx, c.ID.Pod)
			for _, s := range states {
				for _, other := range s.Containers {
					running = running || other.ID == c.ID && other.Running
				}
			}
			if err != nil || !running {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return done
}

// logOptions reads PodLogOptions from a query.
func logOptions(q url.Values, now time.Time) (opts logs.ReadOptions, previous bool, err error) {
	flag := func(name string) bool {
		if !q.Has(name) {
			return false
		}
		value, parseErr := strconv.ParseBool(q.Get(name))
		if parseErr != nil && q.Get(name) != "" {
			err = errors.Join(err, fmt.Errorf("%s: found %q, allowed are true and false", name, q.Get(name)))
		}
		return value || q.Get(name) == ""
	}
	number := func(name string, least int64) *int64 {
		if q.Get(name) == "" {
			return nil
		}
		n, parseErr := strconv.ParseInt(q.Get(name), 10, 64)
		if parseErr != nil || n < least {
			err = errors.Join(err, fmt.Errorf("%s: found %q, allowed are whole numbers from %d", name, q.Get(name), least))
			return nil
		}
		return &n
	}
	opts.Follow, opts.Timestamps, previous = flag("follow"), flag("timestamps"), flag("previous")
	opts.TailLines, opts.LimitBytes = number("tailLines", 0), number("limitBytes", 1)
	if s := number("sinceSeconds", 1); s != nil {
		opts.Since = now.Add(-time.Duration(*s) * time.Second)
	}
	if text := q.Get("sinceTime"); text != "" {
		at, parseErr := time.Parse(time.RFC3339, text)
		if parseErr != nil {
			err = errors.Join(err, fmt.Errorf("sinceTime: found %q, allowed is a time such as 2006-01-02T15:04:05Z", text))
		}
		opts.Since = at
	}
	switch q.Get("stream") {
	case "", "All":
	case "Stdout":
		opts.Stream = logs.Stdout
	case "Stderr":
		opts.Stream = logs.Stderr
	default:
		err = errors.Join(err, fmt.Errorf("stream: found %q, allowed are All, Stderr and Stdout", q.Get("stream")))
	}
	return opts, previous, err
}
