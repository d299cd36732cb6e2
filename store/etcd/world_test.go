package etcd_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// line is one direction between two parties. What is said on it passes, or is held back and arrives
// when it passes again. It begins by passing.
type line struct {
	mu   sync.Mutex
	held chan struct{} // closed when it passes again; nil while it does
}

func (l *line) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(chan struct{})
	}
}

func (l *line) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		close(l.held)
		l.held = nil
	}
}

func (l *line) wait() {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held != nil {
		<-held
	}
}

// proxy stands before somebody who listens.
type proxy struct {
	listener net.Listener
	target   func() string
	// callerOf finds out by what a caller says who it is, from zero on; -1 if that does not tell.
	// Lines are those of a caller, there and back.
	callerOf func(said []byte) int
	lines    func(caller int) (there, back *line)

	mu    sync.Mutex
	conns map[*proxied]bool
}

// proxied is one connection through a proxy.
type proxied struct {
	from, to net.Conn
	caller   atomic.Int64
	later    atomic.Pointer[chan struct{}] // of one that is to be stranded
}

// newProxy stands before an address, for a caller that is always the same; back is held back by hold.
func newProxy(t testing.TB, address string) *simple {
	s := &simple{TB: t}
	s.proxy = startProxy(t, &proxy{
		target:   func() string { return address },
		callerOf: func([]byte) int { return 0 },
		lines:    func(int) (there, back *line) { return &s.there, &s.back },
	})
	t.Cleanup(func() {
		s.there.pass()
		s.pass()
	})
	return s
}

// simple is a proxy of one caller.
type simple struct {
	testing.TB
	*proxy
	there, back line
}

// strand breaks the connections for their caller, as soon as it has said something more. That is kept
// back, and arrives when the returned function is called.
func (s *simple) strand() (arrive func()) {
	later := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.later.Store(&later)
	}
	arrive = sync.OnceFunc(func() { close(later) })
	s.Cleanup(arrive)
	return arrive
}

// strand takes what is left of what a caller says in one go, and hangs up on it. It returns all when
// it is to arrive.
func strand(from net.Conn, said []byte, later <-chan struct{}) []byte {
	const oneGo = 100 * time.Millisecond
	_ = from.SetReadDeadline(time.Now().Add(oneGo))
	rest, _ := io.ReadAll(from) // fails: it never ends by itself
	from.Close()
	<-later
	return append(said, rest...)
}

// hold keeps back what is answered from now on, on all connections.
func (s *simple) hold() { s.back.hold() }

func (s *simple) pass() { s.back.pass() }

// cut breaks the connections there are; what was held back is lost.
func (s *simple) cut() { s.proxy.cut(func(int) bool { return true }) }

func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

func startProxy(t testing.TB, p *proxy) *proxy {
	listener, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	p.listener, p.conns = listener, map[*proxied]bool{}
	var serving sync.WaitGroup
	serving.Go(func() { p.serve(&serving) })
	t.Cleanup(func() { // after the lines pass: what is cleaned up last was begun first
		listener.Close()
		p.cut(func(int) bool { return true })
		serving.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) serve(serving *sync.WaitGroup) {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.target())
		if err != nil {
			from.Close()
			continue
		}
		c := &proxied{from: from, to: to}
		c.caller.Store(-1)
		p.mu.Lock()
		p.conns[c] = true
		p.mu.Unlock()
		serving.Go(func() { p.copy(c, to, from, true) })
		serving.Go(func() { p.copy(c, from, to, false) })
	}
}

// copy passes on one direction of a connection until it ends.
func (p *proxy) copy(c *proxied, to, from net.Conn, there bool) {
	defer func() {
		if there && c.later.Load() != nil {
			return // it is not hung up on before it has answered
		}
		c.from.Close()
		c.to.Close()
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if there && n > 0 && c.caller.Load() < 0 {
			c.caller.Store(int64(p.callerOf(buf[:n])))
		}
		out, back := p.lines(int(c.caller.Load()))
		if there {
			out.wait()
		} else {
			back.wait()
		}
		if later := c.later.Load(); later != nil && there && n > 0 {
			_, _ = to.Write(strand(from, buf[:n], *later))
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil && c.later.Load() == nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut breaks the connections of some callers; what was held back is lost.
func (p *proxy) cut(of func(caller int) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if of(int(c.caller.Load())) {
			c.from.Close()
			c.to.Close()
		}
	}
}
