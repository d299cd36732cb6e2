// Package setpoint runs a desired-state control plane inside a program: a Kubernetes API server on
// a store of its own, the controllers that keep declared things true and, where asked for, a node
// that runs workloads as processes.
//
//	cp, err := setpoint.New(setpoint.Options{DataDir: "/var/lib/app"})
//	if err != nil { … }
//	if err := cp.Start(ctx); err != nil { … }
//	defer cp.Stop()
//	c, err := client.New(cp.RESTConfig(), client.Options{})
//
// A client made from RESTConfig calls the server in the process, with no port and no TLS; it passes
// authentication, authorization, admission and validation like any other.
package setpoint

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/pki"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	"github.com/setpoint-dev/setpoint/lease"
	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/memory"
)

// Options say what a control plane consists of. The zero value is one in memory, without a port
// and without a node, that runs all controllers.
type Options struct {
	// DataDir keeps the objects, the keys and the node's state; it is made if need be. Only one
	// process at a time can use it. Empty keeps everything in memory, except what a node writes for
	// its workloads, which then is in a temporary folder.
	DataDir string
	// Store is where the objects are kept if not in DataDir: a URL that etcd.Parse reads, such as
	// "etcd://10.0.0.1:2379,10.0.0.2:2379". Several control planes may share one: each serves all
	// objects, and the controllers of one at a time work. Their keys should be copies of each
	// other, so that clients trust them all: DataDir's folder pki.
	Store string
	// Listen is the address to serve HTTPS on, "127.0.0.1:6443"; port 0 chooses one. Empty opens no
	// port: there are in-process clients only.
	Listen string
	// Hosts are names and addresses, beside that of Listen and localhost, by which clients reach
	// the server; its certificate is made for them.
	Hosts []string
	// Controllers names those to run: "all" (also if empty), "none", names of Controllers(), and
	// names after a "-" to leave out.
	Controllers []string
	// ServiceCIDR is where services get their addresses; the zero value is 10.0.0.0/24.
	ServiceCIDR netip.Prefix
	// History and HistoryBytes bound how much of the past can be read: nine minutes and 128 MB unless
	// set. It is kept in memory; with a DataDir it survives a restart.
	History      time.Duration
	HistoryBytes int64
	// Kinds are served beside the built-in ones, and in place of those of the same name.
	Kinds []*kinds.Kind
	// Node, if not nil, runs a node in the same process.
	Node *NodeOptions
	// Clock and Rand are for tests; nil is the machine's.
	Clock clock.WithTicker
	Rand  rand.Source
	// Log is where everything logs to; nil discards it.
	Log *slog.Logger
}

// ControlPlane is a control plane. Its methods may be called concurrently.
type ControlPlane struct {
	opts      Options
	loops     []loop
	authority *pki.Authority
	store     store.Store
	server    *apiserver.Server
	listener  net.Listener // nil without a port
	scratch   string       // a folder that goes with the control plane

	cancel  context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex // guards failed
	failed  error
}

// New opens the data folder and the port, and reads what is stored. Nothing runs before Start; what
// is never started must be given to Stop all the same.
func New(opts Options) (*ControlPlane, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	c := &ControlPlane{opts: opts, cancel: func() {}}
	if err := c.open(); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) open() (err error) {
	if c.loops, err = chosen(c.opts.Controllers); err != nil {
		return err
	}
	if c.opts.DataDir == "" && c.opts.Node != nil && c.opts.Node.StateDir == "" {
		if c.scratch, err = os.MkdirTemp("", "setpoint-"); err != nil {
			return err
		}
	}
	set, err := c.openParts()
	if err != nil {
		return err
	}
	c.server, err = apiserver.New(apiserver.Options{
		Store:       c.store,
		Kinds:       kinds.NewRegistry(set),
		Clock:       c.opts.Clock,
		Rand:        c.opts.Rand,
		Log:         c.opts.Log,
		ServiceCIDR: c.opts.ServiceCIDR,

		QuotasUncounted: !c.Runs(quotaLoop),
	})
	if err != nil || c.opts.Listen == "" {
		return err
	}
	if c.listener, err = net.Listen("tcp", c.opts.Listen); err != nil {
		return fmt.Errorf("listen address %q: %w", c.opts.Listen, err)
	}
	return nil
}

// openParts opens the authority, the store and the kinds side by side: each takes milliseconds, of
// which a start has few.
func (c *ControlPlane) openParts() (set *kinds.Set, err error) {
	var parts sync.WaitGroup
	var authorityErr, storeErr error
	parts.Go(func() { c.authority, authorityErr = c.openAuthority() })
	parts.Go(func() { c.store, storeErr = c.openStore() })
	set = kinds.NewSet(append(builtin.All(), c.opts.Kinds...)...)
	parts.Wait()
	return set, cmp.Or(authorityErr, storeErr)
}

func (c *ControlPlane) openAuthority() (*pki.Authority, error) {
	if c.opts.DataDir == "" {
		return pki.InMemory(c.opts.Clock.Now)
	}
	return pki.Open(filepath.Join(c.opts.DataDir, "pki"), c.opts.Clock.Now)
}

func (c *ControlPlane) openStore() (store.Store, error) {
	if c.opts.Store != "" {
		return c.openShared()
	}
	if c.opts.DataDir == "" {
		return memory.New(memory.Options{
			Now: c.opts.Clock.Now, HistoryAge: c.opts.History, HistoryBytes: c.opts.HistoryBytes,
		}), nil
	}
	s, err := embedded.Open(filepath.Join(c.opts.DataDir, "store"), embedded.Options{
		Logger: c.opts.Log, HistoryAge: c.opts.History, HistoryBytes: c.opts.HistoryBytes,
	})
	if err != nil {
		return nil, err // and not a nil *embedded.Store in an interface that is not nil
	}
	return s, nil
}

func (c *ControlPlane) openShared() (store.Store, error) {
	options, err := etcd.Parse(c.opts.Store)
	if err != nil {
		return nil, err
	}
	options.Logger, options.HistoryAge, options.HistoryBytes = c.opts.Log, c.opts.History, c.opts.HistoryBytes
	s, err := etcd.Open(context.Background(), options) // waits no longer than the options say
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Runs reports whether a controller, by its name of Controllers(), is one of those that run here.
func (c *ControlPlane) Runs(name string) bool {
	return slices.ContainsFunc(c.loops, func(l loop) bool { return l.name == name })
}

// controllersLease returns the lease that controllers need to hold, nil where they are the only ones.
func (c *ControlPlane) controllersLease() *lease.Options {
	if c.opts.Store == "" {
		return nil
	}
	host, _ := os.Hostname() // only to tell people who holds it
	return &lease.Options{
		Namespace: "kube-system", Name: "setpoint-controllers", Holder: host + "_" + uuid.NewString(),
	}
}

// Start runs the control plane and returns as soon as requests are served; controllers and the node
// begin their work meanwhile. Everything ends with the context, or with Stop.
func (c *ControlPlane) Start(ctx context.Context) error {
	ctx, c.cancel = context.WithCancel(ctx)
	conf, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	// The server outlives its users, so that what they write while they stop arrives.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	var users sync.WaitGroup
	if c.listener != nil {
		c.run(&c.running, "server", func() error { return c.server.Serve(serving, c.listener, conf) })
	}
	c.run(&users, "controllers", func() error { return c.runControllers(ctx) })
	if c.opts.Node != nil {
		c.run(&users, "node", func() error { return c.runNode(ctx) })
	}
	c.running.Go(func() {
		<-ctx.Done()
		users.Wait()
		stopServing()
		c.server.Stop()
	})
	return nil
}

// prepare makes the first objects and, beside them, the server's certificate if there is a port.
func (c *ControlPlane) prepare(ctx context.Context) (conf *tls.Config, err error) {
	var certificate sync.WaitGroup
	if c.listener != nil {
		certificate.Go(func() { conf, err = c.authority.ServerConfig(c.hosts()...) })
	}
	bootErr := c.server.Bootstrap(ctx)
	if bootErr == nil && c.listener != nil {
		at, _ := netip.ParseAddrPort(c.listener.Addr().String()) // a TCP listener's is one
		bootErr = c.server.Announce(ctx, at)
	}
	certificate.Wait()
	if bootErr != nil {
		return nil, fmt.Errorf("first objects: %w", bootErr)
	}
	return conf, err
}

// run runs a part; the first that fails ends the others.
func (c *ControlPlane) run(group *sync.WaitGroup, part string, run func() error) {
	group.Go(func() {
		err := run()
		if err == nil || errors.Is(err, context.Canceled) {
			return
		}
		c.opts.Log.Error("a part of the control plane failed", "part", part, "error", err)
		c.mu.Lock()
		c.failed = errors.Join(c.failed, fmt.Errorf("%s: %w", part, err))
		c.mu.Unlock()
		c.cancel()
	})
}

// Wait returns when everything has ended, with what made it end if that was a failure.
func (c *ControlPlane) Wait() error {
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// Stop ends everything in order, controllers before the server before the store, and returns when
// nothing runs any more. Workloads run on. It may be called more than once.
func (c *ControlPlane) Stop() error {
	c.cancel()
	err := c.Wait()
	if c.listener != nil {
		_ = c.listener.Close() // the server has closed it, unless there was no Start
	}
	if c.store != nil {
		err = errors.Join(err, c.store.Close())
	}
	if c.scratch != "" {
		err = errors.Join(err, os.RemoveAll(c.scratch))
	}
	return err
}

// The identities of those who are part of the control plane.
