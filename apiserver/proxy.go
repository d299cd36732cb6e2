package apiserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// backend is where a proxied request goes, and who connects to it.
type backend struct {
	host string // for the Host header and for logs; who connects is not led by it
	dial func(context.Context) (net.Conn, error)
}

// proxy passes a request on to a pod, a service's pod or a node, through the agent of the node. What
// comes back is passed on as it comes; links and redirects of HTML pages lead through the proxy again.
func (s *Server) proxy(w http.ResponseWriter, r *request) error {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(r.name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", r.kind.Singular, r.name))
	}
	var to *backend
	var err error
	switch r.resource {
	case "pods":
		to, err = s.podBackend(r, name, port)
	case "services":
		to, err = s.serviceBackend(r, name, port)
	case "nodes":
		if port == "" {
			return s.proxyAgent(w, r, name)
		}
		to, err = s.nodeBackend(r, name, port)
	default:
		return errNotServed()
	}
	if err != nil {
		return err
	}
	ctx, cancel := s.streamContext(r)
	defer cancel(nil)
	transport := &http.Transport{
		// The context of a dial ends with it, and a connection is to last as long as its request.
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return to.dial(ctx) },
		DisableKeepAlives: true, // it serves this request alone
		// A pod has no name that a certificate could be for.
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	return s.passOn(ctx, w, r, &url.URL{Scheme: scheme, Host: to.host}, transport)
}

// passOn serves a request from a backend.
func (s *Server) passOn(
	ctx context.Context, w http.ResponseWriter, r *request, to *url.URL, transport http.RoundTripper,
) error {
	path, err := url.PathUnescape(r.behind)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	to.Path, to.RawPath = path, r.behind
	// How long it may take is between the client and the backend.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Time{})
	var failure error
	handler := proxy.NewUpgradeAwareHandler(to, transport, true, false, errorResponder(func(err error) { failure = err }))
	handler.FlushInterval = -1 // at once
	req := r.http.WithContext(ctx)
	stripCredentials(req)
	handler.ServeHTTP(upgradable{w}, req)
	if failure != nil && ctx.Err() != nil {
		return aborted(failure)
	}
	return failure
}

// stripCredentials takes away what says who the client is: the backend is somebody else.
func stripCredentials(req *http.Request) {
	req.Header = req.Header.Clone()
	for name := range req.Header {
		if name == "Authorization" || len(name) >= 12 && name[:12] == "Impersonate-" {
			delete(req.Header, name)
		}
	}
}

type errorResponder func(error)

func (e errorResponder) Error(_ http.ResponseWriter, _ *http.Request, err error) { e(err) }

// upgradable is a response whose connection can be had.
type upgradable struct{ http.ResponseWriter }

func (u upgradable) Unwrap() http.ResponseWriter { return u.ResponseWriter }

func (u upgradable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	switched(u.ResponseWriter)
	return http.NewResponseController(u.ResponseWriter).Hijack()
}

// podBackend is a pod, at its first declared port unless one is named.
func (s *Server) podBackend(r *request, name, port string) (*backend, error) {
	pod, err := s.lookUp(r, "pods", r.namespace, name)
	if err != nil {
		return nil, err
	}
	if port == "" {
		port = firstPort(pod)
	}
	return s.podAt(pod, r.namespace, name, port)
}

// podAt connects to a port of a pod.
func (s *Server) podAt(pod kinds.Object, namespace, name, port string) (*backend, error) {
	ip := tree.Str(pod, "status", "podIP")
	if ip == "" {
		return nil, apierrors.NewBadRequest("address not allowed") // Kubernetes' words for a pod without one
	}
	t, err := s.agentOf(tree.Str(pod, "spec", "nodeName"))
	if err != nil {
		return nil, err
	}
	return &backend{
		host: net.JoinHostPort(ip, port),
		dial: func(ctx context.Context) (net.Conn, error) { return dialPod(ctx, t, namespace, name, port) },
	}, nil
}

// firstPort is the first port that a container declares, or 80.
func firstPort(pod kinds.Object) string {
	for _, c := range tree.Maps(pod, "spec", "containers") {
		for _, p := range tree.Maps(c, "ports") {
			return strconv.FormatInt(tree.Int(p, "containerPort"), 10)
		}
	}
	return "80"
}

// nodeBackend is a port of a node's machine.
func (s *Server) nodeBackend(r *request, name, port string) (*backend, error) {
	if _, err := s.lookUp(r, "nodes", "", name); err != nil {
		return nil, err
	}
	t, err := s.agentOf(name)
	if err != nil {
		return nil, err
	}
	return &backend{
		host: net.JoinHostPort(name, port),
		dial: func(ctx context.Context) (net.Conn, error) { return openStream(ctx, t, "/connect/"+port, nil) },
	}, nil
}

// proxyAgent asks the agent itself, who lets itself be read and nothing else.
func (s *Server) proxyAgent(w http.ResponseWriter, r *request, name string) error {
	if r.http.Method != http.MethodGet && r.http.Method != http.MethodHead {
		return errMethod()
	}
	if httpstream.IsUpgradeRequest(r.http) {
		return apierrors.NewBadRequest("the agent of a node cannot be asked to upgrade a connection")
	}
	if _, err := s.lookUp(r, "nodes", "", name); err != nil {
		return err
	}
	t, err := s.agentOf(name)
	if err != nil {
		return err
	}
	ctx, cancel := s.streamContext(r)
	defer cancel(nil)
	return s.passOn(ctx, w, r, &url.URL{Scheme: "http", Host: name}, t.client)
}

// serviceBackend is one of the pods behind a service, any that is ready. What is no pod is not
// connected to: whoever may write endpoints could reach everything from here.
func (s *Server) serviceBackend(r *request, name, port string) (*backend, error) {
	if number, err := strconv.ParseInt(port, 10, 64); err == nil {
		service, err := s.lookUp(r, "services", r.namespace, name)
		if err != nil {
			return nil, err
		}
		if port, err = servicePortName(service, name, number); err != nil {
			return nil, err
		}
	}
	slices, err := s.endpointSlices(r, name)
	if err != nil {
		return nil, err
	}
	none := apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	candidates, known := readyEndpoints(slices, port)
	if !known && len(slices) > 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %q found for service %q", port, name))
	}
	rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	var last error = none
	for _, c := range candidates {
		pod, err := s.lookUp(r, "pods", r.namespace, c.pod)
		if err != nil || tree.Str(pod, "status", "podIP") != c.address {
			continue
		}
		to, err := s.podAt(pod, r.namespace, c.pod, c.port)
		if err == nil {
			return to, nil
		}
		last = err
	}
	return nil, last
}

// servicePortName is the name of the port of a service that has a number.
func servicePortName(service kinds.Object, name string, number int64) (string, error) {
	for _, p := range tree.Maps(service, "spec", "ports") {
		if tree.Int(p, "port") == number {
			return tree.Str(p, "name"), nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, name))
}

// candidate is a pod that a request for a service can go to.
type candidate struct{ pod, address, port string }

// readyEndpoints returns the ready pods that have the named port; known says whether any slice has it.
func readyEndpoints(slices []kinds.Object, name string) (all []candidate, known bool) {
	for _, slice := range slices {
		for _, p := range tree.Maps(slice, "ports") {
			if tree.Str(p, "name") != name {
				continue
			}
			known = true
			port := strconv.FormatInt(tree.Int(p, "port"), 10)
			for _, e := range tree.Maps(slice, "endpoints") {
				ready := !tree.Has(e, "conditions", "ready") || tree.Bool(e, "conditions", "ready")
				addresses := tree.Strings(e, "addresses")
				if ready && len(addresses) > 0 && tree.Str(e, "targetRef", "kind") == "Pod" {
					all = append(all, candidate{tree.Str(e, "targetRef", "name"), addresses[0], port})
				}
			}
		}
	}
	return all, known
}

// endpointSlices returns the slices of a service.
func (s *Server) endpointSlices(r *request, service string) ([]kinds.Object, error) {
	k := r.kinds.Resource(schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"})
	if k == nil {
		return nil, nil
	}
	snap, err := s.snapshot(r, 0)
	if err != nil {
		return nil, err
	}
	var found []kinds.Object
	for e := range entries(snap, storageResource(k), r.namespace+"/", "") {
		slice, err := decodeStored(r.http.Context(), r.kinds, k, e.Value)
		if err != nil {
			return nil, err
		}
		if tree.Str(slice, "metadata", "labels", "kubernetes.io/service-name") == service {
			found = append(found, slice)
		}
	}
	return found, nil
}

// lookUp returns an object of the core group. Possible errors: 404.
func (s *Server) lookUp(r *request, resource, namespace, name string) (kinds.Object, error) {
	k := r.kinds.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource})
	if k == nil {
		return nil, errNotServed()
	}
	snap, err := s.snapshot(r, 0)
	if err != nil {
		return nil, err
	}
	e := snap.Get(keyOf(k, namespace, name))
	if e == nil {
		return nil, apierrors.NewNotFound(k.GroupResource(), name)
	}
	return decodeStored(r.http.Context(), r.kinds, k, e.Value)
}
