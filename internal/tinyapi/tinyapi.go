// Package tinyapi is an API server of a few hundred lines for tests of clients: objects in memory,
// reached without sockets, and told what to do wrong. It validates nothing.
package tinyapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Server is the server; it is used as the transport of its clients. Use New.
type Server struct {
	mu       sync.Mutex
	revision int64
	oldest   int64 // watches can start at or after it
	objects  map[string]map[string]Object
	history  []event
	wake     chan struct{} // closed and replaced when something happens
	held     map[string]bool
	breaks   int
	requests []string
	faults   Faults
}

// Faults are what the server does wrong.
type Faults struct {
	// NoWatchList has watches that should begin with a list refused, as old servers do.
	NoWatchList bool
	// Before, if not nil, may answer a request instead of the server. After may replace the answer
	// to a request that was carried out.
	Before func(*http.Request) (*http.Response, error)
	After  func(*http.Request, *http.Response) (*http.Response, error)
}

// Object is an object as a tree.
type Object = map[string]any

type event struct {
	Type     string `json:"type"`
	Object   Object `json:"object"`
	resource string
	path     string
	revision int64
}

// New returns an empty server at revision 1.
func New() *Server {
	return &Server{
		revision: 1, oldest: 1,
		objects: map[string]map[string]Object{},
		wake:    make(chan struct{}),
		held:    map[string]bool{},
	}
}

// Config is how clients reach the server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host: "http://tiny", Transport: s, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}
}

// Mapper knows every kind of client-go's scheme by its usual plural.
func (s *Server) Mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(scheme.Scheme.PrioritizedVersionsAllGroups())
	for gvk := range scheme.Scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if gvk.Kind == "Node" || gvk.Kind == "Namespace" {
			scope = meta.RESTScopeRoot
		}
		if gvk.Version != "__internal" {
			mapper.Add(gvk, scope)
		}
	}
	return mapper
}

// Fail has the server do these things wrong from now on, and no others.
func (s *Server) Fail(f Faults) { s.change(func() { s.faults = f }) }

// Hold keeps what happens to a resource from its watches until Release.
func (s *Server) Hold(resource string) { s.change(func() { s.held[resource] = true }) }

// Release undoes Hold.
func (s *Server) Release(resource string) { s.change(func() { delete(s.held, resource) }) }

// Break ends every watch.
func (s *Server) Break() { s.change(func() { s.breaks++ }) }

// Compact forgets history: watches from before now are answered with 410.
func (s *Server) Compact() {
	s.change(func() {
		s.revision++
		s.oldest, s.history = s.revision, nil
	})
}

// Bookmark has every watch told the current revision.
func (s *Server) Bookmark() {
	s.change(func() {
		s.revision++
		s.history = append(s.history, event{Type: "BOOKMARK", revision: s.revision})
	})
}

// Requests returns what was asked so far, as "GET /api/v1/pods?watch=true", and forgets it.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// Revision is that of the last write.
func (s *Server) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// Names returns the paths of a resource's objects, "namespace/name", in order.
func (s *Server) Names(resource string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects[resource]))
}

func (s *Server) change(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	close(s.wake)
	s.wake = make(chan struct{})
}

// RoundTrip answers a request.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	faults := s.faults
	s.mu.Unlock()
	if faults.Before != nil {
		if resp, err := faults.Before(r); resp != nil || err != nil {
			return resp, err
		}
	}
	resp := s.serve(r)
	if faults.After != nil {
		return faults.After(r, resp)
	}
	return resp, nil
}

// target is what a path names.
type target struct {
	gv                              schema.GroupVersion
	resource, namespace, name, part string
}

func parse(path string) (t target) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	if segments[0] == "api" {
		t.gv.Version, segments = segments[1], segments[2:]
	} else {
		t.gv.Group, t.gv.Version, segments = segments[1], segments[2], segments[3:]
	}
	if segments[0] == "namespaces" && len(segments) > 2 {
		t.namespace, segments = segments[1], segments[2:]
	}
	segments = append(segments, "", "")
	t.resource, t.name, t.part = segments[0], segments[1], segments[2]
	return t
}

func (t target) path() string {
	if t.namespace == "" {
		return t.name
	}
	return t.namespace + "/" + t.name
}

func (s *Server) serve(r *http.Request) *http.Response {
	t := parse(r.URL.Path)
	var body Object
	var raw []byte
	if r.Body != nil {
		raw, _ = io.ReadAll(r.Body)
		_ = json.Unmarshal(raw, &body)
	}
	if r.URL.Query().Get("watch") == "true" {
		return s.watch(r, t)
	}
	if r.Method == http.MethodGet && t.name == "" {
		return s.list(r, t)
	}
	var resp *http.Response
	s.change(func() { resp = s.one(r, t, body, raw) })
	return resp
}

func (s *Server) one(r *http.Request, t target, body Object, raw []byte) *http.Response {
	objects := s.objects[t.resource]
	if objects == nil {
		objects = map[string]Object{}
		s.objects[t.resource] = objects
	}
	old := objects[t.path()]
	if t.name != "" && old == nil {
		return failure(404, "NotFound", t)
	}
	switch r.Method {
	case http.MethodGet:
		return answer(200, old)
	case http.MethodPost:
		return s.create(t, body)
	case http.MethodPut:
		return s.update(t, old, body)
	case http.MethodPatch:
		before, _ := json.Marshal(old)
		merged, err := jsonpatch.MergePatch(before, raw)
		if err != nil {
			return failure(400, "BadRequest", t)
		}
		var next Object
		_ = json.Unmarshal(merged, &next)
		return s.update(t, old, next)
	case http.MethodDelete:
		return s.remove(t, old, body)
	}
	return failure(405, "MethodNotAllowed", t)
}

func metaOf(o Object) Object {
	m, ok := o["metadata"].(Object)
	if !ok {
		m = Object{}
		o["metadata"] = m
	}
	return m
}

func (s *Server) create(t target, o Object) *http.Response {
	m := metaOf(o)
	s.revision++
	if m["name"] == nil {
		m["name"] = fmt.Sprintf("%s%05d", m["generateName"], s.revision)
	}
	t.name = m["name"].(string)
	if s.objects[t.resource][t.path()] != nil {
		return failure(409, "AlreadyExists", t)
	}
	if t.namespace != "" {
		m["namespace"] = t.namespace
	}
	m["uid"] = fmt.Sprintf("uid-%d", s.revision)
	m["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	return answer(201, s.store("ADDED", t, o))
}

func (s *Server) update(t target, old, o Object) *http.Response {
	m, was := metaOf(o), metaOf(old)
	if rv, ok := m["resourceVersion"]; ok && rv != was["resourceVersion"] {
		return failure(409, "Conflict", t)
	}
	if t.part == "status" {
		merged := maps.Clone(old)
		merged["status"] = o["status"]
		o = merged
	}
	m = maps.Clone(metaOf(o))
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"} {
		delete(m, field)
		if was[field] != nil {
			m[field] = was[field]
		}
	}
	o["metadata"] = m
	if same(o, old) {
		return answer(200, old)
	}
	s.revision++
	if m["deletionTimestamp"] != nil && m["finalizers"] == nil {
		return answer(200, s.store("DELETED", t, o))
	}
	return answer(200, s.store("MODIFIED", t, o))
}

func (s *Server) remove(t target, old, options Object) *http.Response {
	m := metaOf(old)
	want, _ := options["preconditions"].(Object)
	for _, field := range []string{"uid", "resourceVersion"} {
		if want[field] != nil && want[field] != m[field] {
			return failure(409, "Conflict", t)
		}
	}
	s.revision++
	o := maps.Clone(old)
	if m["finalizers"] == nil {
		s.store("DELETED", t, o)
		return answer(200, Object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
	m = maps.Clone(m)
	m["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	o["metadata"] = m
	return answer(200, s.store("MODIFIED", t, o))
}

// store records a change as of the current revision.
func (s *Server) store(typ string, t target, o Object) Object {
	o = clone(o)
	metaOf(o)["resourceVersion"] = strconv.FormatInt(s.revision, 10)
	if typ == "DELETED" {
		delete(s.objects[t.resource], t.path())
	} else {
		s.objects[t.resource][t.path()] = o
	}
	s.history = append(s.history, event{typ, o, t.resource, t.path(), s.revision})
	return o
}

func same(a, b Object) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

func clone(o Object) Object {
	raw, _ := json.Marshal(o)
	var c Object
	_ = json.Unmarshal(raw, &c)
	return c
}

func answer(code int, body Object) *http.Response {
	raw, _ := json.Marshal(body)
	return reply(code, io.NopCloser(bytes.NewReader(raw)))
}

func reply(code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Body: body, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}},
	}
}

// Failure is an answer that refuses a request.
func Failure(code int, reason string) *http.Response { return failure(code, reason, target{}) }

func failure(code int, reason string, t target) *http.Response {
	return answer(code, status(code, reason, t))
}

func status(code int, reason string, t target) Object {
	return Object{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
		"message": fmt.Sprintf("%s %s: %s", t.resource, t.path(), reason),
	}
}
