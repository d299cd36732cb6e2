package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/internal/nodewire"
)

// patience bounds each wait for what takes milliseconds on a machine that is not busy.
const patience = time.Minute

// port serves the site on loopback, to clients who are the administrator, and checks at the end that
// no stream is left.
func (s *site) port() *httptest.Server {
	s.t.Helper()
	admin := &authn.User{Name: "admin", Groups: []string{authn.Masters}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.server.ServeHTTP(w, r.WithContext(authn.WithUser(r.Context(), admin)))
	}))
	s.t.Cleanup(func() {
		web.Close()
		s.noStreams()
	})
	return web
}

// noStreams waits until nothing serves a stream any more.
func (s *site) noStreams() {
	for end := time.Now().Add(patience); ; runtime.Gosched() {
		var text strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&text, 1)
		left := ""
		for _, of := range []string{
			"apiserver/streaming.", "relayCommand", "watchIdle", "streamContext", "passOn",
		} {
			if strings.Contains(text.String(), of) {
				left = of
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s goes on:\n%s", left, &text)
		}
	}
}

// dial opens a WebSocket.
func (s *site) dial(web *httptest.Server, path string, protocols ...string) *websocket.Conn {
	s.t.Helper()
	dialer := websocket.Dialer{Subprotocols: protocols}
	ws, resp, err := dialer.DialContext(s.t.Context(), "ws"+strings.TrimPrefix(web.URL, "http")+path, nil)
	if err != nil {
		text := []byte{}
		if resp != nil {
			text, _ = io.ReadAll(resp.Body)
		}
		s.t.Fatalf("%s: %v %s", path, err, text)
	}
	_ = ws.SetReadDeadline(time.Now().Add(patience))
	return ws
}

// session is what an agent sees of a command.
type session struct {
	asked string // path and query
	in    *nodewire.Reader
	out   *nodewire.Writer
	ctx   context.Context
	end   func() // the answer's end, without a word if there was none
}

// commands is an agent that hands each command to the test, which plays it until it ends it.
func commands(sessions chan<- *session) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/idle") {
			http.Error(w, `container "idle" of pod "p" is not running: Completed`, http.StatusBadRequest)
			return
		}
		_ = http.NewResponseController(w).Flush()
		over, end := context.WithCancel(r.Context())
		sessions <- &session{
			asked: r.URL.Path + "?" + r.URL.RawQuery, in: nodewire.NewReader(r.Body),
			out: nodewire.NewWriter(flushed{w}), ctx: r.Context(), end: end,
		}
		<-over.Done()
	})
}

type flushed struct{ http.ResponseWriter }

func (f flushed) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	_ = http.NewResponseController(f.ResponseWriter).Flush()
	return n, err
}

// next returns a frame, in words.
func (s *session) next(t *testing.T) string {
	t.Helper()
	kind, payload, err := s.in.Next()
	return fmt.Sprint(kind, " ", string(payload), " ", err)
}

// exec is a site with an agent that plays commands, and a client that runs one.
func newExec(t *testing.T, change ...func(*apiserver.Options)) (s *site, ws *websocket.Conn, agent io.Closer, c *session) {
	s = newSite(t, change...)
	s.pod("p", `"nodeName":"n1","containers":[{"name":"c","image":"i"},{"name":"idle","image":"i"}]`)
	sessions := make(chan *session)
	agent = s.connectAgent("n1", commands(sessions))
	s.agents(1)
	ws = s.dial(s.port(), podPath+"/p/exec?container=c&command=a&command=b+c&stdin=true&stdout=true&stderr=true",
		"v5.channel.k8s.io")
	c = <-sessions
	if got := c.next(t); got != "1  <nil>" {
		t.Fatalf("the first frame is %s, want Start", got)
	}
	if got := message(t, ws); got != "\x01" {
		t.Fatalf("the first message is %q", got)
	}
	return s, ws, agent, c
}

func message(t *testing.T, ws *websocket.Conn) string {
	t.Helper()
	_, text, err := ws.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// status reads how a command ended, and that the connection is closed in order.
func status(t *testing.T, ws *websocket.Conn) metav1.Status {
	t.Helper()
	text := message(t, ws)
	var got metav1.Status
	if err := json.Unmarshal([]byte(text[1:]), &got); err != nil || text[0] != 3 {
		t.Fatalf("got %q, want a status: %v", text, err)
	}
	if _, _, err := ws.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("after the status: %v", err)
	}
	ws.Close()
	return got
}

// awaitGone waits until the agent has seen the end of a command.
func awaitGone(t *testing.T, c *session) {
	t.Helper()
	select {
	case <-c.ctx.Done():
	case <-time.After(patience):
		t.Fatal("the command goes on at the node")
	}
}

func TestExecRelays(t *testing.T) {
	_, ws, _, c := newExec(t)
	if want := "/exec/default/p/c?command=a&command=b+c&stderr=true&stdin=true&stdout=true&tty=false"; c.asked != want {
		t.Errorf("the agent was asked for %s, want %s", c.asked, want)
	}
	for _, send := range []string{"\x00typed", "\x04{\"Width\":80,\"Height\":24}"} {
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte(send)); err != nil {
			t.Fatal(err)
		}
		if got := c.next(t); got != "2 typed <nil>" && got != `4 {"Width":80,"Height":24} <nil>` {
			t.Errorf("the agent got %s", got)
		}
	}
	if err := ws.WriteMessage(websocket.BinaryMessage, []byte("\xff\x00")); err != nil {
		t.Fatal(err)
	}
	if got := c.next(t); got != "3  <nil>" {
		t.Errorf("the agent got %s, want the end of the input", got)
	}
	_ = c.out.Write(nodewire.Stdout, []byte("printed"))
	_ = c.out.Write(nodewire.Stderr, []byte("oops"))
	if got := message(t, ws) + message(t, ws); got != "\x01printed\x02oops" {
		t.Errorf("the client got %q", got)
	}
	_ = c.out.WriteJSON(nodewire.Done, nodewire.Result{})
	if diff := cmp.Diff(metav1.Status{Status: "Success"}, status(t, ws)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	awaitGone(t, c)
}

// However a command ends, its client learns it, as Kubernetes says it.
func TestExecEnds(t *testing.T) {
	failed := func(why string) metav1.Status {
		msg := "error executing command in container: " + why
		return metav1.Status{
			Status: "Failure", Reason: "InternalError", Code: 500, Message: "Internal error occurred: " + msg,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: msg}}},
		}
	}
	for name, test := range map[string]struct {
		end  func(s *site, agent io.Closer, c *session)
		want metav1.Status
	}{
		"a code": {
			func(_ *site, _ io.Closer, c *session) {
				_ = c.out.WriteJSON(nodewire.Done, nodewire.Result{ExitCode: 7})
			},
			metav1.Status{
				Status: "Failure", Reason: "NonZeroExitCode", Message: "command terminated with non-zero exit code: exit status 7",
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: "7"}}},
			},
		},
		"an error": {
			func(_ *site, _ io.Closer, c *session) {
				_ = c.out.WriteJSON(nodewire.Done, nodewire.Result{Error: "no"})
			},
			failed("no"),
		},
		"nonsense": {
			func(_ *site, _ io.Closer, c *session) { _ = c.out.Write(nodewire.Done, []byte("{")) },
			failed("the node does not say how it ended"),
		},
		"the agent falls silent": {
			func(_ *site, _ io.Closer, c *session) { c.end() }, failed("the connection to the node was lost"),
		},
		"the agent's connection breaks": {
			func(_ *site, agent io.Closer, _ *session) { agent.Close() }, failed("the connection to the node was lost"),
		},
		"the server stops": {
			func(s *site, _ io.Closer, _ *session) { s.server.Stop() }, failed("the server stops"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, ws, agent, c := newExec(t)
			test.end(s, agent, c)
			if diff := cmp.Diff(test.want, status(t, ws)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			awaitGone(t, c)
		})
	}
}

// A command goes with its client, even one that is typing what nobody reads.
func TestExecGoesWithItsClient(t *testing.T) {
	_, ws, _, c := newExec(t)
	typing := make(chan struct{})
	go func() {
		defer close(typing)
		for ws.WriteMessage(websocket.BinaryMessage, make([]byte, 64<<10)) == nil {
		}
	}()
	if got := c.next(t); !strings.HasPrefix(got, "2 ") {
		t.Fatalf("the agent got %.20s, want input", got)
	}
	ws.NetConn().Close()
	<-typing
	awaitGone(t, c)
	for {
		switch kind, _, err := c.in.Next(); {
		case kind == nodewire.StdinEnd:
			t.Fatal("input that was cut off looks complete")
		case err != nil:
			return
		}
	}
}

// A command in which nothing moves ends after four hours; one in which something does, does not.
func TestExecIdles(t *testing.T) {
	clock := testclock.NewFakeClock(time.Now())
	_, ws, _, c := newExec(t, func(o *apiserver.Options) { o.Clock = clock })
	const look = 2 * time.Hour
	waits := func() { // until it was looked, and will be again
		t.Helper()
		for end := time.Now().Add(patience); !clock.HasWaiters(); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatal("nobody looks whether something moves")
			}
		}
	}
	for range 4 { // it moves, as often as it is looked
		waits()
		_ = c.out.Write(nodewire.Stdout, []byte("x"))
		if got := message(t, ws); got != "\x01x" {
			t.Fatalf("got %q", got)
		}
		clock.Step(look)
	}
	for range 2 {
		waits()
		clock.Step(look)
	}
	if got := status(t, ws).Message; !strings.HasSuffix(got, "nothing has moved for 4h0m0s") {
		t.Errorf("it ended with %s", got)
	}
	awaitGone(t, c)
}

// What is wrong with a command is answered over HTTP, whoever finds out.
func TestExecRefusals(t *testing.T) {
	s, ws, _, c := newExec(t)
	for query, want := range map[string]string{
		"command=x&stdout=true": `container "idle" of pod "p" is not running: Completed`,
		"command=x":             "you must specify at least 1 of stdin, stdout, stderr",
		"stdout=true":           "you must specify at least one command for the container",
	} {
		r := s.get(podPath + "/p/exec?container=idle&" + query)
		if r.code != 400 || r.object(t).str("message") != want {
			t.Errorf("%s: %d %s", query, r.code, r.text)
		}
	}
	c.end()
	status(t, ws)
}

// A client with too many streams is told to wait, while what else it asks for is served.
func TestTooManyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &stuckStore{}
		s := newSite(t, func(o *apiserver.Options) { stuck.Store, o.Store = o.Store, stuck })
		stuck.stuck = make(chan struct{})
		const many = 500
		paths := []string{"p/proxy/", "p/exec?command=x&stdout=true", "p/attach?stdout=true", "p/portforward"}
		codes := make(chan int, many+1)
		for i := range many {
			go func() { codes <- s.get(podPath + "/" + paths[i%len(paths)]).code }()
		}
		synctest.Wait()
		for _, path := range paths {
			r := s.get(podPath + "/" + path)
			if r.code != http.StatusTooManyRequests || r.header.Get("Retry-After") != "1" {
				t.Errorf("%s: %d %s", path, r.code, r.text)
			}
		}
		go func() { codes <- s.get(podPath + "/p").code }()
		synctest.Wait()
		close(stuck.stuck)
		for range many + 1 {
			if code := <-codes; code != http.StatusNotFound {
				t.Errorf("one that was let in: %d", code)
			}
		}
		if r := s.get(podPath + "/p/portforward"); r.code != http.StatusNotFound {
			t.Errorf("when they are over: %d", r.code)
		}
	})
}
