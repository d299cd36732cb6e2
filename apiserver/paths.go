package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/setpoint-dev/setpoint/apiserver/discovery"
	"github.com/setpoint-dev/setpoint/kinds"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
)

// servePath answers for what is not an object: what the server is, how it does, and what it has.
func (s *Server) servePath(w http.ResponseWriter, r *request) error {
	path := strings.TrimSuffix(r.http.URL.Path, "/")
	if node, ok := connectingNode(path); ok {
		return s.connect(w, r, node)
	}
	if path == AtomicPath {
		return s.atomic(w, r)
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if m := r.http.Method; m != http.MethodGet && m != http.MethodHead && slices.Contains(readOnly, first) {
		return errMethod()
	}
	switch first {
	case "":
		return s.respondJSON(w, r, http.StatusOK, metav1.RootPaths{Paths: s.rootPaths(r)})
	case "version":
		if rest == "" {
			return s.respondJSON(w, r, http.StatusOK, s.version())
		}
	case "healthz", "livez", "readyz":
		return s.health(w, r, first, rest)
	case "setpoint.dev":
		switch path {
		case SnapshotPath:
			return s.snapshotAll(w)
		case QueuesPath:
			return s.showQueues(w, r)
		}
	case "metrics":
		if rest == "" {
			s.metrics.page.ServeHTTP(w, r.http)
			return nil
		}
	case "api", "apis":
		return s.discover(w, r, path)
	case "openapi":
		return s.openAPI(w, r, rest)
	}
	return errNoPage
}

// readOnly are what paths of documents begin with. The server's health is told whatever the method.
var readOnly = []string{"", "version", "setpoint.dev", "metrics", "api", "apis", "openapi"}

// errNoPage is answered with plain text, as for a path that no API has.
var errNoPage = pageError{}

type pageError struct{}

func (pageError) Error() string { return "404 page not found" }

func (s *Server) rootPaths(r *request) []string {
	paths := append([]string{
		"/api", "/apis", "/healthz", "/livez", "/readyz", "/metrics", "/openapi/v2", "/openapi/v3", "/version",
	}, s.documents(r).discovery.Paths()...)
	slices.Sort(paths)
	return slices.Compact(paths)
}

// documents are what is written once for a set of kinds.
type documents struct {
	set       *kinds.Set
	all       []*kinds.Kind
	discovery *discovery.Documents
	openapi   *openAPICache
}

// documents returns those of the request's set of kinds. Only the newest set's are kept.
func (s *Server) documents(r *request) *documents {
	if d := s.docs.Load(); d != nil && d.set == r.kinds {
		return d
	}
	all := append(slices.Clone(r.kinds.All()), s.virtual.kinds...)
	d := &documents{set: r.kinds, all: all, discovery: discovery.New(all), openapi: newOpenAPICache(all)}
	s.docs.Store(d)
	return d
}

// docsPointer is the slot that Server keeps documents in.
type docsPointer = atomic.Pointer[documents]

// discover answers /api, /apis and what is below, down to a version.
func (s *Server) discover(w http.ResponseWriter, r *request, path string) error {
	docs := s.documents(r).discovery
	if doc, ok := docs.Aggregated(path); ok {
		w.Header().Add("Vary", "Accept")
		if media, ok := wantsAggregated(r); ok {
			return writeAggregated(w, r, media, doc)
		}
	}
	if path == "/api" {
		return s.respondJSON(w, r, http.StatusOK, apiVersions(r))
	}
	if doc, ok := docs.Plain(path); ok {
		media, err := negotiatePlain(r)
		if err != nil {
			return err
		}
		return writeBody(w, r, media, http.StatusOK, doc.Body, formOfMeta(doc.Kind))
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) == 2 && parts[0] == "api" || len(parts) == 3 && docs.HasGroup(parts[1]) {
		return errNotServed()
	}
	return errNoPage
}

func apiVersions(r *request) *metav1.APIVersions {
	return &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
		Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: r.http.Host},
		},
	}
}

// wantsAggregated says whether the client's first choice among what can be served is the
// aggregated form, and how it is to be encoded.
func wantsAggregated(r *request) (mediaType, bool) {
	for _, clause := range parseAccept(strings.Join(r.http.Header["Accept"], ",")) {
		media, known := clause.media()
		switch {
		case !known:
			continue
		case clause.params["as"] == "":
			return media, false
		case clause.params["as"] == "APIGroupDiscoveryList" && clause.params["v"] == "v2" &&
			clause.params["g"] == "apidiscovery.k8s.io":
			return media, true
		}
	}
	return mediaType{}, false
}

// writeAggregated writes an aggregated document in the chosen encoding.
func writeAggregated(w http.ResponseWriter, r *request, media mediaType, doc discovery.Document) error {
	of := &form{
		compiled.Builtin("io.k8s.api.apidiscovery.v2.APIGroupDiscoveryList"),
		"apidiscovery.k8s.io/v2", "APIGroupDiscoveryList",
	}
	var err error
	if doc.Body, err = media.encode(doc.Body, of); err != nil {
		return err
	}
	return writeDocument(w, r, media.contentType()+discovery.AggregatedParams, doc)
}

// writeDocument writes a document that clients cache by its ETag.
func writeDocument(w http.ResponseWriter, r *request, contentType string, doc discovery.Document) error {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("ETag", doc.ETag)
	for tag := range strings.SplitSeq(r.http.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == doc.ETag {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	_, err := w.Write(doc.Body)
	return aborted(err)
}

// The Kubernetes version whose API is served; clients parse it and warn of a skew.
const (
	apiMajor, apiMinor = "1", "37"
	apiVersion         = "v1.37.2"
)

func (s *Server) version() version.Info {
	return version.Info{
		Major: apiMajor, Minor: apiMinor,
		EmulationMajor: apiMajor, EmulationMinor: apiMinor,
		MinCompatibilityMajor: apiMajor, MinCompatibilityMinor: "36",
		GitVersion: apiVersion + "+setpoint", GitTreeState: "clean",
		GitCommit: s.build.commit, BuildDate: s.build.date,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// check is one of the things that health is made of.
type check struct {
	name string
	// ready says that the check is of readiness, not of life.
	ready bool
	run   func(context.Context) error
}

// answerMax is how long the store may take to answer before the server is unwell, as etcd may of Kubernetes'.
const answerMax = 2 * time.Second

func (s *Server) checks() []check {
	return []check{
		{name: "ping", run: func(context.Context) error { return nil }},
		{name: "store", run: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeoutCause(ctx, answerMax, fmt.Errorf("no answer in %v", answerMax))
			defer cancel()
			_, err := s.store.Snapshot(ctx)
			return err
		}},
		{name: "shutdown", ready: true, run: func(context.Context) error {
			select {
			case <-s.stopped:
				return fmt.Errorf("the server is shutting down")
			default:
				return nil
			}
		}},
	}
}

// health answers with "ok", or with the list of checks if one failed or ?verbose asks for it.
func (s *Server) health(w http.ResponseWriter, r *request, kind, only string) error {
	var list strings.Builder
	failed, found := false, only == ""
	for _, c := range s.checks() {
		if c.ready && kind == "livez" || only != "" && c.name != only {
			continue
		}
		found = true
		if slices.Contains(r.query["exclude"], c.name) {
			fmt.Fprintf(&list, "[+]%s excluded: ok\n", c.name)
			continue
		}
		switch err := c.run(r.http.Context()); {
		case err != nil:
			failed = true
			fmt.Fprintf(&list, "[-]%s failed: %v\n", c.name, err)
		default:
			fmt.Fprintf(&list, "[+]%s ok\n", c.name)
		}
	}
	if !found {
		return errNoPage
	}
	code, body := http.StatusOK, "ok"
	_, verbose := r.query["verbose"]
	switch {
	case failed:
		code, body = http.StatusInternalServerError, list.String()+kind+" check failed\n"
	case verbose:
		body = list.String() + kind + " check passed\n"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, err := io.WriteString(w, body)
	return aborted(err)
}
