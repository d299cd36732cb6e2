package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// agentOf returns the connection of a node's agent.
func (s *Server) agentOf(node string) (*tunnel, error) {
	if t := s.agents.get(node); t != nil {
		return t, nil
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("the agent of node %q is not connected", node))
}

// agentWait is how long an agent may take to begin its answer.
const agentWait = 30 * time.Second

// agentStream is an exchange with an agent in which both sides speak until they end: what is written
// goes to the agent, and what it answers is read.
type agentStream struct {
	io.Reader
	io.Writer
	ask    *io.PipeWriter
	answer io.Closer
	cancel context.CancelFunc
}

// openStream asks an agent for an exchange. It lasts until it is closed or the context ends. Possible
// errors: what the agent says in words, as a Status.
func openStream(ctx context.Context, t *tunnel, path string, query url.Values) (*agentStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(agentWait, cancel)
	body, ask := io.Pipe()
	u := url.URL{Scheme: "http", Host: "node", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		cancel()
		return nil, err
	}
	answer, err := t.client.RoundTrip(req)
	if !late.Stop() && err != nil {
		err = fmt.Errorf("no answer within %s", agentWait)
	}
	if err != nil {
		cancel()
		return nil, apierrors.NewServiceUnavailable("the agent of the node does not answer: " + err.Error())
	}
	if answer.StatusCode != http.StatusOK {
		defer cancel()
		defer answer.Body.Close()
		return nil, agentError(answer)
	}
	// HTTP/2 does not look at the context while it waits for more to send, or until it may.
	context.AfterFunc(ctx, func() {
		_ = ask.CloseWithError(context.Cause(ctx))
		_ = answer.Body.Close()
	})
	return &agentStream{Reader: answer.Body, Writer: ask, ask: ask, answer: answer.Body, cancel: cancel}, nil
}

// CloseWrite tells the agent that nothing more is said.
func (a *agentStream) CloseWrite() error { return a.ask.Close() }

// Close ends the exchange. The agent sees that it was broken off, unless it has ended it.
func (a *agentStream) Close() error {
	a.cancel()
	return errors.Join(a.ask.CloseWithError(net.ErrClosed), a.answer.Close())
}

// The rest of a net.Conn, for HTTP over a connection to a port. Deadlines are the requests'.

func (a *agentStream) LocalAddr() net.Addr              { return agentAddr{} }
func (a *agentStream) RemoteAddr() net.Addr             { return agentAddr{} }
func (a *agentStream) SetDeadline(time.Time) error      { return nil }
func (a *agentStream) SetReadDeadline(time.Time) error  { return nil }
func (a *agentStream) SetWriteDeadline(time.Time) error { return nil }

type agentAddr struct{}

func (agentAddr) Network() string { return "tunnel" }
func (agentAddr) String() string  { return "tunnel" }

// dialPod connects to a port of a pod.
func dialPod(ctx context.Context, t *tunnel, namespace, name, port string) (*agentStream, error) {
	return openStream(ctx, t, "/"+strings.Join([]string{"portForward", namespace, name, port}, "/"), nil)
}
