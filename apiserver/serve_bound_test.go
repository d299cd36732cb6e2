package apiserver_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/apiserver/pki"
)

// acceptor notes the connections that a listener accepts.
type acceptor struct {
	net.Listener
	accepted chan *net.TCPConn
}

func (a acceptor) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err == nil {
		a.accepted <- conn.(*net.TCPConn)
	}
	return conn, err
}

// A client that does not read gets the kernel to keep little for it.
func TestUnreadAnswersTakeLittleOfTheKernel(t *testing.T) {
	s := newSite(t)
	authority, err := pki.InMemory(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := authority.ServerConfig("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := acceptor{listener, make(chan *net.TCPConn, 1)}
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(t.Context(), conns, conf) }()
	client := tlsClient(t, authority, false, "admin", "system:masters")
	resp, err := client.Get("https://" + listener.Addr().String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body) // or the connection would be closed
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	raw, err := (<-conns.accepted).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var most int
	var unknown error
	closed := raw.Control(func(fd uintptr) {
		most, unknown = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
	})
	if err := errors.Join(closed, unknown); err != nil || most <= 0 || most > 256<<10 {
		t.Errorf("the kernel takes up to %d bytes that it cannot send, %v", most, err)
	}
}
