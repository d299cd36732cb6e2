package apiserver

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"golang.org/x/net/http2"

	"github.com/setpoint-dev/setpoint/apiserver/authz"
)

// TunnelProtocol is what the agent of a node asks to upgrade to, with a POST to TunnelPath. From
// then on the connection is HTTP/2, in which the server asks and the agent answers: nobody has to
// be able to reach the agent.
const TunnelProtocol = "setpoint-node/1"

// TunnelPath is where the agent of a node connects.
func TunnelPath(node string) string { return authz.ConnectPath(node) }

// connectingNode returns the node whose agent connects at a path.
func connectingNode(p string) (string, bool) {
	rest, ok := strings.CutPrefix(p, "/setpoint.dev/v1/nodes/")
	if !ok {
		return "", false
	}
	node, ok := strings.CutSuffix(rest, "/connect")
	return node, ok && node != "" && len(content.IsPathSegmentName(node)) == 0
}

// agents are the connections that are open. An agent that connects again takes the place of its
// older connection, which it no longer has.
type agents struct {
	mu     sync.Mutex
	byNode map[string]*tunnel
}

// tunnel is one agent's connection.
type tunnel struct {
	conn   *watchedConn
	client *http2.ClientConn
}

func newAgents() *agents { return &agents{byNode: map[string]*tunnel{}} }

func (a *agents) put(node string, t *tunnel) {
	a.mu.Lock()
	old := a.byNode[node]
	a.byNode[node] = t
	a.mu.Unlock()
	if old != nil {
		old.conn.Close()
	}
}

func (a *agents) remove(node string, t *tunnel) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byNode[node] == t {
		delete(a.byNode, node)
	}
}

// get returns the connection of a node's agent, or nil.
func (a *agents) get(node string) *tunnel {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.byNode[node]; t != nil && t.client.CanTakeNewRequest() {
		return t
	}
	return nil
}

// Agents returns how many agents are connected.
func (s *Server) Agents() int {
	s.agents.mu.Lock()
	defer s.agents.mu.Unlock()
	return len(s.agents.byNode)
}

// connect turns the request's connection into an agent's tunnel. It returns when that ends.
func (s *Server) connect(w http.ResponseWriter, r *request, node string) error {
	if r.http.Method != http.MethodPost {
		return errMethod()
	}
	if !strings.EqualFold(r.http.Header.Get("Upgrade"), TunnelProtocol) {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the header Upgrade is %q: it must be %q", r.http.Header.Get("Upgrade"), TunnelProtocol))
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return apierrors.NewBadRequest("the connection cannot be upgraded: use HTTP/1.1")
	}
	defer conn.Close()
	watched := &watchedConn{Conn: conn, buffered: buffered.Reader, gone: make(chan struct{})}
	if out, ok := w.(*response); ok {
		out.code = http.StatusSwitchingProtocols
	}
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
		TunnelProtocol)
	if err != nil {
		return aborted(err)
	}
	client, err := tunnelClient(watched)
	if err != nil {
		return aborted(err)
	}
	t := &tunnel{conn: watched, client: client}
	s.agents.put(node, t)
	defer s.agents.remove(node, t)
	s.log.Info("agent connected", "node", node)
	select {
	case <-watched.gone:
		err = errors.New("connection closed")
	case <-s.stopped:
		err = errors.New("server stops")
	}
	s.log.Info("agent gone", "node", node, "reason", err)
	return nil
}

// tunnelBuffer is how much of one answer is taken in before somebody reads it. One that nobody reads
// holds up itself: the connection as a whole has room for some two thousand.
const tunnelBuffer = 512 << 10

// tunnelClient speaks HTTP/2 with an agent. A ping finds out whether an agent that says nothing is
// still there.
func tunnelClient(conn net.Conn) (*http2.ClientConn, error) {
	transport, err := http2.ConfigureTransports(&http.Transport{HTTP2: &http.HTTP2Config{
		MaxReceiveBufferPerStream: tunnelBuffer, MaxReceiveBufferPerConnection: 1 << 30,
	}})
	if err != nil {
		return nil, err
	}
	transport.AllowHTTP = true
	transport.ReadIdleTimeout, transport.PingTimeout = 20*time.Second, 10*time.Second
	return transport.NewClientConn(conn)
}

// watchedConn is a connection that tells when it has ended.
type watchedConn struct {
	net.Conn
	buffered *bufio.Reader // what the HTTP server may have read ahead
	once     sync.Once
	gone     chan struct{}
}

func (c *watchedConn) end() { c.once.Do(func() { close(c.gone) }) }

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.buffered.Read(p)
	if err != nil {
		c.end()
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.end()
	return c.Conn.Close()
}
