// Package apiserver serves the Kubernetes API from a store and a set of kinds.
//
// A Server is an http.Handler. Every request, from whatever transport, walks the line that path.go
// shows: authenticate, impersonate, authorize, limit, route; and a write goes on with decode,
// mutate, default, validate, admit, commit. In-process clients (Transport) enter at the same
// point as those that come over TLS.
//
// Reads join stored bytes and never decode an object, unless a selector or a table asks for its
// fields. A read without a revision is linearizable: it sees every write that was acknowledged
// before it began. Watches deliver each change once, in the order of revisions, or say 410.
//
// What a request may cost is bounded: bodies, header bytes, requests in flight for each identity,
// and the memory of lists and watches, which are streamed.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"k8s.io/utils/clock"

	"github.com/setpoint-dev/setpoint/apiserver/admission"
	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/apiserver/inproc"
	"github.com/setpoint-dev/setpoint/apiserver/webhook"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// Options say what a Server is made of. Store and Kinds must be given.
type Options struct {
	Store store.Store
	Kinds *kinds.Registry

	// Authenticator recognises users; nil knows client certificates, and takes who has none for
	// anonymous. It is not asked about in-process clients, which Transport makes somebody's.
	Authenticator authn.Authenticator
	// Authorizer decides; nil is authz.Builtin.
	Authorizer authz.Authorizer

	// Clock tells the time of creations and deletions, and times watches; nil is the real one.
	Clock clock.Clock
	// Rand makes uids, generated names and jitter; nil is seeded by the operating system. It is
	// used under a lock.
	Rand rand.Source
	// Log receives what an operator should know; nil discards it.
	Log *slog.Logger

	// ServiceCIDR is where Services get their addresses; the zero value is 10.0.0.0/24.
	ServiceCIDR netip.Prefix

	// QuotasUncounted leaves it to somebody else to say what is used of ResourceQuotas, as a Kubernetes API
	// server leaves it to its controllers: what their status limits is enforced, as far as it says how
	// much is used. Otherwise the server counts, and quotas are in force at once.
	QuotasUncounted bool

	// Mutators and Validators take part in every write, in this order, after what the server itself
	// asks of one.
	Mutators   []admission.Mutator
	Validators []admission.Validator
}

// Server is the API as an http.Handler. Make one with New.
type Server struct {
	store  store.Store
	kinds  *kinds.Registry
	authn  authn.Authenticator
	authz  authz.Authorizer
	clock  clock.Clock
	random *random
	log    *slog.Logger
	routes map[route]handler
	opts   Options

	metrics  *metrics
	limiter  *limiter // requests that end by themselves
	watches  *limiter // watches and logs
	sessions *limiter // commands, forwardings, proxied requests
	agents   *agents
	virtual  virtual

	definitions *definitions
	queues      atomic.Pointer[func() any]

	build build
	docs  docsPointer

	mutators     []admission.Mutator
	validators   []admission.Validator
	webhooks     *webhook.Client
	turns        *turns
	converted    converted
	managedTypes sync.Map // *schema.Schema to *managed.Type

	// stopped is closed when watches have to end.
	stopped  chan struct{}
	stopOnce sync.Once
}

// New makes a server. It reads nothing and starts nothing.
func New(opts Options) (*Server, error) {
	if opts.Store == nil || opts.Kinds == nil {
		return nil, errors.New("apiserver: Options need a Store and Kinds")
	}
	if opts.Authenticator == nil {
		// No token is known, and so a token is bad credentials, not none.
		opts.Authenticator = authn.Chain(authn.Certificates(), authn.Tokens(nil))
	}
	if opts.Authorizer == nil {
		opts.Authorizer = authz.Builtin()
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if !opts.ServiceCIDR.IsValid() {
		opts.ServiceCIDR = netip.MustParsePrefix("10.0.0.0/24")
	}
	if !opts.ServiceCIDR.Addr().Is4() {
		return nil, fmt.Errorf("apiserver: service CIDR %s is not IPv4", opts.ServiceCIDR)
	}
	s := &Server{
		store:   opts.Store,
		kinds:   opts.Kinds,
		authn:   opts.Authenticator,
		authz:   opts.Authorizer,
		clock:   opts.Clock,
		random:  newRandom(opts.Rand),
		log:     opts.Log,
		opts:    opts,
		stopped: make(chan struct{}),
	}
	s.definitions = newDefinitions(s, opts.Kinds.Current())
	s.routes = routes()
	s.metrics = s.newMetrics()
	s.limiter = newLimiter(inFlightMax, inFlightPerIdentity)
	s.watches = newLimiter(watchesMax, watchesPerIdentity)
	s.sessions = newLimiter(sessionsMax, sessionsPerIdentity)
	s.agents = newAgents()
	s.virtual = newVirtual()
	s.build = readBuild()
	s.webhooks = webhook.New(s.endpointOf)
	s.admit()
	s.turns = newTurns(opts.ServiceCIDR)
	return s, nil
}

// Transport returns a transport for clients in this process, who are the user. Their requests walk
// the same line as everybody's; only TLS and HTTP framing are left out.
func (s *Server) Transport(user *authn.User) http.RoundTripper {
	user = user.Known()
	return inproc.Transport(s, func(ctx context.Context) context.Context {
		return authn.WithUser(ctx, user)
	})
}

// Stop ends every watch and log stream, so that the transport can drain. Other requests are
// served on. It may be called more than once.
func (s *Server) Stop() {
	s.stopOnce.Do(func() {
		close(s.stopped)
		s.webhooks.Close()
	})
}
