package setpoint_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/lease"
	"github.com/setpoint-dev/setpoint/node/simulated"
)

// halfOpenMax is how long anybody may go on with a connection of which the other end is not reached
// any more. It has to be noticed in less.
const halfOpenMax = 45 * time.Second

// network is connections in memory, which like those of a real network can die without a word.
type network struct {
	incoming chan net.Conn
	closed   chan struct{}
	close    func()

	mu    sync.Mutex
	lines []*line
}

// line is one connection, both ends.
type line struct {
	dead   atomic.Bool
	pipe   [2]net.Conn
	closed atomic.Int32 // how many of its ends are
}

// end is one end of a line. As with a real one, who writes waits for nobody: two ends that take leave of
// each other over a pipe would wait for ever in a bubble. What is written to a dead line is lost, and the
// writer is told nothing.
type end struct {
	net.Conn
	line   *line
	out    chan []byte
	closed chan struct{}
	close  func()
}

func newEnd(conn net.Conn, l *line) *end {
	e := &end{Conn: conn, line: l, out: make(chan []byte, 1<<12), closed: make(chan struct{})}
	e.close = sync.OnceFunc(func() {
		close(e.closed)
		if l.closed.Add(1) == 2 {
			l.pipe[0].Close()
			l.pipe[1].Close()
		}
	})
	go e.send()
	return e
}

// send carries what was written to the other end, and closes the line when that is done.
func (e *end) send() {
	defer e.Conn.Close()
	for {
		var p []byte
		select {
		case p = <-e.out:
		default:
			select {
			case p = <-e.out:
			case <-e.closed:
				return
			}
		}
		if e.line.dead.Load() {
			continue
		}
		if _, err := e.Conn.Write(p); err != nil {
			return
		}
	}
}

func (e *end) Write(p []byte) (int, error) {
	select {
	case <-e.closed:
		return 0, net.ErrClosed
	case e.out <- bytes.Clone(p):
		return len(p), nil
	}
}

// Close gives the other end a second to read what is left, unless that is closed, too.
func (e *end) Close() error {
	e.close()
	return e.Conn.SetWriteDeadline(time.Now().Add(time.Second))
}

func (e *end) SetWriteDeadline(time.Time) error { return nil } // nobody waits
func (e *end) SetDeadline(t time.Time) error    { return e.SetReadDeadline(t) }

func newNetwork() *network {
	n := &network{incoming: make(chan net.Conn), closed: make(chan struct{})}
	n.close = sync.OnceFunc(func() { close(n.closed) })
	return n
}

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	a, b := net.Pipe()
	l := &line{pipe: [2]net.Conn{a, b}}
	n.mu.Lock()
	n.lines = append(n.lines, l)
	n.mu.Unlock()
	here, there := newEnd(a, l), newEnd(b, l)
	err := net.ErrClosed
	select {
	case n.incoming <- there:
		return here, nil
	case <-n.closed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	here.close()
	there.close()
	return nil, err
}

// cut has all connections die that there are. New ones work.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lines {
		l.dead.Store(true)
	}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.incoming:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error { n.close(); return nil }

func (n *network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443} }

// remote is a control plane that is reached over a network, by the protocol.
type remote struct {
	*testing.T
	network *network
	config  *rest.Config  // over the network
	near    client.Client // in the process
}

// overNetwork runs a test in a bubble, over HTTP/2 and over HTTP/1.1.
func overNetwork(t *testing.T, test func(r *remote)) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &remote{T: t, network: newNetwork()}
				cp, err := setpoint.New(setpoint.Options{Controllers: []string{"none"}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := cp.Stop(); err != nil {
						t.Errorf("stop: %v", err)
					}
				})
				cp.Serve(r.network)
				if err := cp.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				text, err := cp.Kubeconfig()
				if err != nil {
					t.Fatal(err)
				}
				if r.config, err = clientcmd.RESTConfigFromKubeConfig(text); err != nil {
					t.Fatal(err)
				}
				r.config.Dial, r.config.NextProtos = r.network.dial, []string{protocol}
				if r.near, err = client.New(cp.RESTConfig(), client.Options{}); err != nil {
					t.Fatal(err)
				}
				test(r)
			})
		})
	}
}

// manager runs a manager of the defaults, over the network, until the test ends.
func (r *remote) manager() *controller.Manager {
	r.Helper()
	mgr, err := controller.NewManager(r.config, controller.ManagerOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.Fatal(err)
	}
	r.run(func(ctx context.Context) error { return mgr.Start(ctx) })
	return mgr
}

// run runs something until the test ends.
func (r *remote) run(what func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	ended := make(chan error, 1)
	go func() { ended <- what(ctx) }()
	r.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			r.Error(err)
		}
	})
}

// within lets time pass until something holds, which must be in less than the time.
func (r *remote) within(limit time.Duration, what string, holds func() bool) {
	r.Helper()
	began := time.Now()
	for synctest.Wait(); !holds(); synctest.Wait() {
		if time.Since(began) >= limit {
			r.Fatalf("did not come true within %v: %s", limit, what)
		}
		pass(100 * time.Millisecond)
	}
	r.Logf("%s: after %v", what, time.Since(began))
}

// pass lets the bubble's time go by.
func pass(d time.Duration) { <-time.After(d) }

// A watch whose connection has died is replaced over a new one, whenever it dies.
func TestB126_DeadConnectionOfAWatchIsNoticed(t *testing.T) {
	overNetwork(t, func(r *remote) {
		mgr := r.manager()
		key := client.ObjectKey{Namespace: "default", Name: "c"}
		shown := func() bool {
			var c corev1.ConfigMap
			err := mgr.GetClient().Get(r.Context(), key, &c)
			if client.IgnoreNotFound(err) != nil {
				r.Fatal(err)
			}
			return err == nil
		}
		if !mgr.GetCache().WaitForCacheSync(r.Context()) || shown() {
			r.Fatal("the cache does not work")
		}
		for _, age := range []time.Duration{0, 14 * time.Second, 10 * time.Minute} {
			pass(age)
			r.network.cut()
			c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			if err := r.near.Create(r.Context(), c); err != nil {
				r.Fatal(err)
			}
			r.within(halfOpenMax, "the cache shows what was written", shown)
			if err := r.near.Delete(r.Context(), c); err != nil {
				r.Fatal(err)
			}
			r.within(time.Second, "the cache shows the deletion", func() bool { return !shown() })
		}
	})
}

// renewed is when a lease was last renewed.
func (r *remote) renewed(namespace, name string) time.Time {
	r.Helper()
	var l coordinationv1.Lease
	err := r.near.Get(r.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &l)
	if client.IgnoreNotFound(err) != nil {
		r.Fatal(err)
	}
	return ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}).Time
}

// wantRenewals cuts connections of all ages, and wants the lease to be renewed over others soon.
func (r *remote) wantRenewals(namespace, name string) {
	r.Helper()
	began := time.Now()
	renewed := func() bool { return r.renewed(namespace, name).After(began) }
	r.within(time.Minute, "there is a lease", renewed)
	for _, age := range []time.Duration{0, 9 * time.Second, 10 * time.Minute} {
		pass(age)
		r.network.cut()
		began = time.Now()
		r.within(halfOpenMax, "the lease is renewed", renewed)
	}
}

// The heartbeats of a node whose connections have died go on over others.
func TestB126_DeadConnectionOfANodeIsNoticed(t *testing.T) {
	overNetwork(t, func(r *remote) {
		r.run(func(ctx context.Context) error {
			return setpoint.RunNode(ctx, r.config, setpoint.NodeOptions{
				Name: "n1", StateDir: r.TempDir(), NoProxy: true, Runtime: simulated.New(nil, simulated.Handlers{}),
			})
		})
		r.wantRenewals(corev1.NamespaceNodeLease, "n1")
	})
}

// Who leads over a connection that has died stops in time, and leads again over another.
func TestB126_DeadConnectionOfALeaderIsNoticed(t *testing.T) {
	overNetwork(t, func(r *remote) {
		quiet := slog.New(slog.DiscardHandler)
		opts := lease.Options{
			Client: r.manager().GetClient(), Namespace: "default", Name: "l", Holder: "far", Logger: quiet,
		}
		r.run(func(ctx context.Context) error {
			for ctx.Err() == nil {
				err := lease.Run(ctx, opts, func(ctx context.Context, _ lease.Term) error {
					<-ctx.Done()
					return nil
				})
				if err != nil && !errors.Is(err, lease.ErrLost) {
					return err
				}
			}
			return nil
		})
		r.wantRenewals(opts.Namespace, opts.Name)
	})
}
