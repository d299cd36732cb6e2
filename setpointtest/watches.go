package setpointtest

import (
	"errors"
	"io"
	"slices"
	"sync"
)

// freeze holds back the events of some resources, or of all if it names none.
type freeze struct {
	resources []string
	thawed    chan struct{}
}

// FreezeWatches holds back what watches of the resources deliver, those that are open and those that
// open, until the function it returns is called. Whoever reads a cache that is fed by them reads the
// past. Without resources, all watches freeze.
func (f *Faults) FreezeWatches(resources ...string) (thaw func()) {
	frozen := &freeze{resources: resources, thawed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = append(f.frozen, frozen)
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.frozen = slices.DeleteFunc(f.frozen, func(other *freeze) bool { return other == frozen })
		close(frozen.thawed)
	})
}

// DropWatches breaks the connections of all open watches of the resources, or of all watches.
func (f *Faults) DropWatches(resources ...string) {
	f.mu.Lock()
	var dropped []*stream
	for s := range f.streams {
		if named(resources, s.resource) {
			dropped = append(dropped, s)
		}
	}
	f.mu.Unlock()
	for _, s := range dropped {
		s.drop()
	}
}

// named says whether a list of resources, or the lack of one, means a resource.
func named(resources []string, resource string) bool {
	return len(resources) == 0 || slices.Contains(resources, resource)
}

// frozenFor returns what to wait for before an event of the resource may be delivered, or nil.
func (f *Faults) frozenFor(resource string) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, frozen := range f.frozen {
		if named(frozen.resources, resource) {
			return frozen.thawed
		}
	}
	return nil
}

// errDropped is what a watch that was dropped ends with.
var errDropped = errors.New("setpointtest: the connection of the watch was broken")

// stream is the body of a watch's answer.
type stream struct {
	io.ReadCloser
	faults   *Faults
	resource string
	dropped  chan struct{}
	closed   chan struct{}
	drop     func()
	close    func() error
}

func (f *Faults) newStream(resource string, body io.ReadCloser) *stream {
	s := &stream{
		ReadCloser: body, faults: f, resource: resource,
		dropped: make(chan struct{}), closed: make(chan struct{}),
	}
	s.drop = sync.OnceFunc(func() {
		close(s.dropped)
		body.Close()
	})
	s.close = sync.OnceValue(func() error {
		f.mu.Lock()
		delete(f.streams, s)
		f.mu.Unlock()
		close(s.closed)
		return body.Close()
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[s] = struct{}{}
	return s
}

// Read holds back what arrives while the resource is frozen.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	for thawed := s.faults.frozenFor(s.resource); thawed != nil; thawed = s.faults.frozenFor(s.resource) {
		select {
		case <-thawed:
		case <-s.dropped:
			return 0, errDropped
		case <-s.closed:
			return 0, io.ErrClosedPipe
		}
	}
	select {
	case <-s.dropped:
		return 0, errDropped
	default:
		return n, err
	}
}

func (s *stream) Close() error { return s.close() }
