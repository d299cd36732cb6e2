package process

import (
	"os"
	"sync"
	"time"
)

// stallMax is how long a container waits for a client that is attached and reads
// nothing, before the client is cut off. One that reads slowly slows the
// container down and loses nothing.
const stallMax = 10 * time.Second

// audience is who is attached to one of a container's outputs. It is written to
// by one goroutine, before what is written is logged.
type audience struct {
	stall time.Duration

	mu        sync.Mutex
	listeners map[*listener]struct{}
}

// listener is one who is attached.
type listener struct {
	file   *os.File
	cutOff func()
}

func newAudience() *audience { return &audience{stall: stallMax, listeners: map[*listener]struct{}{}} }

// Write passes p on to all that are attached. It never fails.
func (a *audience) Write(p []byte) (int, error) {
	for _, l := range a.all() {
		_ = l.file.SetWriteDeadline(time.Now().Add(a.stall))
		for rest := p; len(rest) > 0; {
			n, err := l.file.Write(rest)
			rest = rest[n:]
			if err == nil || n > 0 && os.IsTimeout(err) {
				_ = l.file.SetWriteDeadline(time.Now().Add(a.stall))
				continue
			}
			if a.remove(l) && os.IsTimeout(err) {
				l.cutOff()
			}
			break
		}
	}
	return len(p), nil
}

func (a *audience) all() []*listener {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]*listener, 0, len(a.listeners))
	for l := range a.listeners {
		all = append(all, l)
	}
	return all
}

func (a *audience) add(l *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners[l] = struct{}{}
}

// remove reports whether the listener was still there.
func (a *audience) remove(l *listener) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.listeners[l]
	delete(a.listeners, l)
	if ok {
		l.file.Close()
	}
	return ok
}

// membership is what one client is attached to.
type membership []func()

func (m *membership) join(a *audience, file *os.File, cutOff func()) {
	l := &listener{file: file, cutOff: cutOff}
	a.add(l)
	*m = append(*m, func() { a.remove(l) })
}

func (m *membership) leave() {
	for _, leave := range *m {
		leave()
	}
}

// input is what a container reads. Clients that are attached at the same time
// take turns.
type input struct {
	chunks chan []byte
	over   chan struct{} // closed when the container reads no more
	once   bool          // it ends with the first client's
	ends   bool          // its end can be told: it is no terminal
}

// inputChunk is how much is passed on at a time.
const inputChunk = 4 << 10

// newInput returns what ends up in file. A goroutine writes it until the input
// ends or the file does.
func newInput(file *os.File, once, ends bool) *input {
	in := &input{chunks: make(chan []byte), over: make(chan struct{}), once: once, ends: ends}
	go func() {
		defer close(in.over)
		for chunk := range in.chunks {
			if chunk == nil {
				file.Close()
				return
			}
			if _, err := file.Write(chunk); err != nil {
				return
			}
		}
	}()
	return in
}

// copy passes on what a client writes, until the client stops or is gone.
func (in *input) copy(from *os.File) {
	for {
		chunk := make([]byte, inputChunk)
		n, err := from.Read(chunk)
		if n > 0 && !in.pass(chunk[:n]) {
			return
		}
		if err != nil {
			break
		}
	}
	if in.once && in.ends {
		in.pass(nil)
	}
}

func (in *input) pass(chunk []byte) bool {
	select {
	case in.chunks <- chunk:
		return true
	case <-in.over:
		return false
	}
}
