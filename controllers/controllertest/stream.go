package controllertest

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// stream is a watch of a Metadata server: a cursor into its log.
type stream struct {
	access  *access
	results chan watch.Event
	changed chan struct{} // has an element if there may be more
	once    sync.Once
	stopped chan struct{}
}

// ResultChan is watch.Interface's.
func (s *stream) ResultChan() <-chan watch.Event { return s.results }

// Stop is watch.Interface's.
func (s *stream) Stop() { s.once.Do(func() { close(s.stopped) }) }

func (s *stream) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// run tells what happened after the revision until the watch is stopped.
func (s *stream) run(revision int) {
	defer close(s.results)
	for next := 0; ; {
		for ; ; next++ {
			change, ok := s.at(next)
			if !ok {
				break
			}
			if change.revision <= revision || change.key.resource != s.access.resource ||
				s.access.namespace != "" && change.key.namespace != s.access.namespace {
				continue
			}
			select {
			case s.results <- watch.Event{Type: change.event.Type,
				Object: change.event.Object.DeepCopyObject()}:
			case <-s.stopped:
				return
			}
		}
		select {
		case <-s.changed:
		case <-s.stopped:
			return
		}
	}
}

func (s *stream) at(i int) (logged, bool) {
	s.access.server.mu.Lock()
	defer s.access.server.mu.Unlock()
	if i >= len(s.access.server.log) {
		return logged{}, false
	}
	return s.access.server.log[i], true
}
