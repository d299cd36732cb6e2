package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"

	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/apiserver/streaming"
	"github.com/setpoint-dev/setpoint/internal/nodewire"
)

// idleMax is how long a command or a forwarding may go on in which nothing moves in any direction.
// There is no limit on one in which something does. It is Kubernetes'.
const idleMax = 4 * time.Hour

// podExec runs a command in a container.
func (s *Server) podExec(w http.ResponseWriter, r *request) error {
	if err := s.authorizeCreate(r); err != nil {
		return err
	}
	return s.podCommand(w, r, "exec")
}

// podAttach connects to the main process of a container.
func (s *Server) podAttach(w http.ResponseWriter, r *request) error {
	if err := s.authorizeCreate(r); err != nil {
		return err
	}
	return s.podCommand(w, r, "attach")
}

// authorizeCreate asks, for a WebSocket's GET too, whether one may create: who may only read a pod
// must not change what it does.
func (s *Server) authorizeCreate(r *request) error {
	if r.verb == "create" {
		return nil
	}
	return s.allowed(r, &authz.Attributes{
		User: r.user, Verb: "create", Group: r.group, Version: r.version, Resource: r.resource,
		Subresource: r.subresource, Namespace: r.namespace, Name: r.name,
	})
}

// podCommand finds the container's agent and connects the client with it.
func (s *Server) podCommand(w http.ResponseWriter, r *request, path string) error {
	pod, err := s.object(r)
	if err != nil {
		return err
	}
	container, err := logContainer(pod, r.name, r.query.Get("container"))
	if err != nil {
		return err
	}
	t, err := s.agentOfPod(pod, r)
	if err != nil {
		return err
	}
	if path == "exec" && len(r.query["command"]) == 0 {
		return apierrors.NewBadRequest("you must specify at least one command for the container")
	}
	want, err := commandStreams(r.query)
	if err != nil {
		return err
	}
	ctx, cancel := s.streamContext(r)
	defer cancel(nil)
	query := url.Values{"command": r.query["command"]}
	for name, wanted := range map[string]bool{
		"stdin": want.Stdin, "stdout": want.Stdout, "stderr": want.Stderr, "tty": want.TTY,
	} {
		query.Set(name, strconv.FormatBool(wanted))
	}
	agent, err := openStream(ctx, t, "/"+path+"/"+r.namespace+"/"+r.name+"/"+container, query)
	if err != nil {
		return err
	}
	defer agent.Close()
	client, err := streaming.AcceptCommand(w, r.http, want)
	if errors.Is(err, streaming.ErrGone) {
		return aborted(err)
	}
	if err != nil {
		return err
	}
	switched(w)
	stop := context.AfterFunc(ctx, func() { client.Expire() })
	defer stop()
	s.relayCommand(ctx, cancel, client, agent)
	return nil
}

// Why a stream ends that neither side has ended.
var (
	errStopping = errors.New("the server stops")
	errIdle     = fmt.Errorf("nothing has moved for %s", idleMax)
)

// streamContext is the context of what lasts as long as its client wants: it ends with the request
// and with the server.
func (s *Server) streamContext(r *request) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(r.http.Context())
	go func() { // ends with the request
		select {
		case <-s.stopped:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// switched notes that a request has become something else than HTTP.
func switched(w http.ResponseWriter) {
	if out, ok := w.(*response); ok {
		out.code = http.StatusSwitchingProtocols
	}
}

// commandStreams reads which streams the client wants. A terminal has one output.
func commandStreams(query url.Values) (streaming.Streams, error) {
	want := streaming.Streams{
		Stdin: boolParam(query, "stdin"), Stdout: boolParam(query, "stdout"),
		Stderr: boolParam(query, "stderr"), TTY: boolParam(query, "tty"),
	}
	if want.TTY {
		want.Stderr = false
	}
	if !want.Stdin && !want.Stdout && !want.Stderr {
		return want, apierrors.NewBadRequest("you must specify at least 1 of stdin, stdout, stderr")
	}
	return want, nil
}

// relayCommand copies between a client and an agent until the command has ended, the client or the
// agent is gone, or nothing has moved for too long.
func (s *Server) relayCommand(
	ctx context.Context, cancel context.CancelCauseFunc, client *streaming.Command, agent *agentStream,
) {
	defer client.Close()
	moving := s.watchIdle(cancel)
	defer moving.stop()
	over := make(chan struct{})
	var sending sync.WaitGroup
	defer sending.Wait()
	defer agent.Close()  // ends what is being sent
	defer client.Close() // ends its input
	defer close(over)
	to := nodewire.NewWriter(agent)
	if to.Write(nodewire.Start, nil) != nil {
		return
	}
	if client.Stdin != nil {
		sending.Go(func() {
			_, err := io.Copy(moving.writer(to.Stream(nodewire.Stdin)), client.Stdin)
			if err == nil {
				_ = to.Write(nodewire.StdinEnd, nil)
			}
		})
	}
	sending.Go(func() {
		for {
			select {
			case size := <-client.Sizes:
				moving.touch()
				_ = to.WriteJSON(nodewire.Resize, size)
			case <-client.Gone():
				cancel(streaming.ErrGone)
				return
			case <-over:
				return
			}
		}
	})
	if status := receiveOutput(ctx, client, agent, moving); status != nil {
		client.Finish(status)
	}
}

// receiveOutput passes on what a command prints and returns how it ended: nil if the client is gone.
func receiveOutput(
	ctx context.Context, client *streaming.Command, agent *agentStream, moving *idle,
) *metav1.Status {
	stdout, stderr := moving.writer(client.Stdout), moving.writer(client.Stderr)
	for from := nodewire.NewReader(agent); ; {
		kind, payload, err := from.Next()
		if err != nil {
			return brokenOff(ctx, client)
		}
		switch kind {
		case nodewire.Stdout:
			_, err = stdout.Write(payload)
		case nodewire.Stderr:
			_, err = stderr.Write(payload)
		case nodewire.Done:
			return commandStatus(payload)
		}
		if err != nil {
			return nil
		}
	}
}

// brokenOff says why a command ended without a result: nil if the client is gone.
func brokenOff(ctx context.Context, client *streaming.Command) *metav1.Status {
	select {
	case <-client.Gone():
		return nil
	default:
	}
	if cause := context.Cause(ctx); cause != nil {
		return failedCommand(cause.Error())
	}
	return failedCommand("the connection to the node was lost")
}

// commandStatus says in a client's form how a command ended.
func commandStatus(payload []byte) *metav1.Status {
	var result nodewire.Result
	if err := json.Unmarshal(payload, &result); err != nil {
		return failedCommand("the node does not say how it ended")
	}
	switch {
	case result.Error != "":
		return failedCommand(result.Error)
	case result.ExitCode == 0:
		return &metav1.Status{Status: metav1.StatusSuccess}
	}
	code := strconv.Itoa(int(result.ExitCode))
	return &metav1.Status{
		Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
		Message: "command terminated with non-zero exit code: exit status " + code,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
			{Type: remotecommand.ExitCodeCauseType, Message: code},
		}},
	}
}

func failedCommand(why string) *metav1.Status {
	status := apierrors.NewInternalError(fmt.Errorf("error executing command in container: %s", why)).ErrStatus
	return &status
}

// idle ends something in which nothing has moved for idleMax.
type idle struct {
	moved atomic.Bool
	stop  func()
}

// watchIdle calls end when nothing has moved. It looks twice in idleMax, so that what moves costs no
// more than a flag.
func (s *Server) watchIdle(end context.CancelCauseFunc) *idle {
	ticker := s.clock.NewTimer(idleMax / 2)
	stopped := make(chan struct{})
	m := &idle{stop: sync.OnceFunc(func() { close(stopped); ticker.Stop() })}
	go func() { // ends with stop
		for still := false; ; {
			select {
			case <-ticker.C():
			case <-stopped:
				return
			}
			moved := m.moved.Swap(false)
			if !moved && still {
				end(errIdle)
				return
			}
			still = !moved
			ticker.Reset(idleMax / 2)
		}
	}()
	return m
}

func (m *idle) touch() { m.moved.Store(true) }

// writer notes each write to w.
func (m *idle) writer(w io.Writer) io.Writer { return touching{w, m} }

type touching struct {
	io.Writer
	idle *idle
}

func (t touching) Write(p []byte) (int, error) {
	t.idle.touch()
	return t.Writer.Write(p)
}
