package tinyapi

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// kinds names the kind of each resource that tests use.
var kinds = map[string]string{
	"pods": "Pod", "replicasets": "ReplicaSet", "deployments": "Deployment", "nodes": "Node",
	"configmaps": "ConfigMap", "leases": "Lease", "events": "Event", "namespaces": "Namespace",
}

// shape is how a client wants objects: whole, or only their metadata.
func shape(r *http.Request, t target) func(Object) Object {
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return func(o Object) Object {
			return Object{
				"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"],
			}
		}
	}
	return func(o Object) Object {
		o = maps.Clone(o)
		o["kind"], o["apiVersion"] = kinds[t.resource], t.gv.String()
		return o
	}
}

func (s *Server) list(r *http.Request, t target) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	as := shape(r, t)
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return failure(400, "BadRequest", t)
	}
	items := []any{}
	for _, o := range s.inside(t) {
		has, _, _ := unstructured.NestedStringMap(o, "metadata", "labels")
		if selector.Matches(labels.Set(has)) {
			items = append(items, as(o))
		}
	}
	list := as(Object{})
	list["kind"] = list["kind"].(string) + "List"
	list["metadata"] = Object{"resourceVersion": strconv.FormatInt(s.revision, 10)}
	list["items"] = items
	return answer(200, list)
}

// inside returns the objects that a list of the target has, in order.
func (s *Server) inside(t target) []Object {
	var found []Object
	for _, path := range slices.Sorted(maps.Keys(s.objects[t.resource])) {
		if t.namespace == "" || strings.HasPrefix(path, t.namespace+"/") {
			found = append(found, s.objects[t.resource][path])
		}
	}
	return found
}

func (s *Server) watch(r *http.Request, t target) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	from, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	withList := q.Get("sendInitialEvents") == "true"
	var first []event
	switch {
	case withList && s.faults.NoWatchList:
		return failure(422, "Invalid", t)
	case withList:
		from = s.revision
		for _, o := range s.inside(t) {
			first = append(first, event{Type: "ADDED", Object: o})
		}
		first = append(first, s.bookmark(Object{"k8s.io/initial-events-end": "true"}))
	case from < s.oldest:
		return failure(410, "Expired", t)
	}
	reader, writer := io.Pipe()
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	stream := &stream{
		life:   time.Duration(seconds) * time.Second,
		server: s, target: t, as: shape(r, t), done: r.Context().Done(),
		enc: json.NewEncoder(writer), from: from, breaks: s.breaks,
	}
	go func() {
		<-stream.done
		writer.CloseWithError(r.Context().Err())
	}()
	go func() {
		defer writer.Close()
		stream.run(first)
	}()
	return reply(200, reader)
}

func (s *Server) bookmark(annotations Object) event {
	return event{Type: "BOOKMARK", Object: Object{"metadata": Object{
		"resourceVersion": strconv.FormatInt(s.revision, 10), "annotations": annotations,
		"creationTimestamp": nil,
	}}}
}

// stream is one watch.
type stream struct {
	server *Server
	target target
	as     func(Object) Object
	done   <-chan struct{}
	enc    *json.Encoder
	from   int64
	breaks int           // of the server when the watch was opened
	life   time.Duration // zero is for ever
	ended  bool          // it is over
}

// run writes events until the reader goes, the watch is broken or its time is over. Then it says how
// far it has come, unless that is held.
func (w *stream) run(events []event) {
	var over <-chan time.Time
	if w.life > 0 {
		timer := time.NewTimer(w.life)
		defer timer.Stop()
		over = timer.C
	}
	for ok := true; ok; events, ok = w.next(over) {
		for _, e := range events {
			e.Object = w.as(e.Object)
			if w.enc.Encode(e) != nil {
				return
			}
		}
	}
}

// next waits for events, and says whether the watch goes on.
func (w *stream) next(over <-chan time.Time) ([]event, bool) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.ended {
		return nil, false
	}
	for s.breaks == w.breaks && (s.held[w.target.resource] || s.revision <= w.from) {
		wake := s.wake
		s.mu.Unlock()
		select {
		case <-wake:
		case <-w.done:
		case <-over:
			s.mu.Lock()
			w.ended = true
			return w.last(), true
		}
		s.mu.Lock()
		select {
		case <-w.done:
			return nil, false
		default:
		}
	}
	var events []event
	for _, e := range s.history {
		switch {
		case e.revision <= w.from:
		case e.Type == "BOOKMARK":
			events = append(events, s.bookmark(nil))
		case e.resource == w.target.resource && e.inside(w.target):
			events = append(events, e)
		}
	}
	w.from = s.revision
	return events, s.breaks == w.breaks
}

// last is what a watch ends with. The server's lock is held.
func (w *stream) last() []event {
	if w.server.held[w.target.resource] {
		return nil
	}
	return []event{w.server.bookmark(nil)}
}

func (e event) inside(t target) bool {
	return t.namespace == "" || strings.HasPrefix(e.path, t.namespace+"/")
}
