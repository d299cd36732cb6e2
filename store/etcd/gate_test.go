package etcd_test

import (
	"context"
	"errors"
	"io"
	"path"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// gate stands between a store and etcd and knows what is an answer to what: those to a method can be held
// back, and let through one by one.
//
//	g.hold("Watch")
//	other.Commit(…)  // etcd has it, and the store does not hear of it
//	g.letOne("Watch") // now it does
type gate struct {
	testing.TB
	address string

	mu      sync.Mutex
	changed *sync.Cond
	methods map[string]*answers
	calls   context.Context // those there are
	hangUp  context.CancelFunc
}

// answers are those to one method.
type answers struct {
	came, passed int
	held         bool
	allowed      int // how many may have passed while they are held
	largest      int // bytes of one
}

func newGate(t testing.TB, address string) *gate {
	g := &gate{TB: t, methods: map[string]*answers{}}
	g.changed = sync.NewCond(&g.mu)
	g.cut()
	etcd, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(frames{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	g.address = listener.Addr().String()
	server := grpc.NewServer(grpc.ForceServerCodec(frames{}), grpc.UnknownServiceHandler(
		func(_ any, store grpc.ServerStream) error { return g.carry(etcd, store) }),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		g.hangUp()
		server.Stop()
		serving.Wait()
		etcd.Close()
	})
	return g
}

// carry takes a call to etcd, and its answers back.
func (g *gate) carry(etcd *grpc.ClientConn, store grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(store)
	said, _ := metadata.FromIncomingContext(store.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(store.Context(), said))
	defer cancel()
	g.mu.Lock()
	defer context.AfterFunc(g.calls, cancel)()
	g.mu.Unlock()
	call, err := etcd.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, full)
	if err != nil {
		return err
	}
	go func() { // ends with the call
		for {
			var m []byte
			if err := store.RecvMsg(&m); err != nil {
				_ = call.CloseSend()
				return
			}
			if err := call.SendMsg(&m); err != nil {
				return
			}
		}
	}()
	method := path.Base(full)
	for n := 0; ; n++ {
		var m []byte
		if err := call.RecvMsg(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if opens := method == "Watch" && n == 0; !opens { // a stream, which is no answer yet
			if err := g.wait(ctx, method, len(m)); err != nil {
				return err
			}
		}
		if err := store.SendMsg(&m); err != nil {
			return err
		}
	}
}

// wait returns when an answer may pass, or nobody wants it any more.
func (g *gate) wait(ctx context.Context, method string, bytes int) error {
	stop := context.AfterFunc(ctx, g.look)
	defer stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.of(method)
	a.came++
	a.largest = max(a.largest, bytes)
	g.changed.Broadcast()
	for a.held && a.passed >= a.allowed && ctx.Err() == nil {
		g.changed.Wait()
	}
	if ctx.Err() == nil {
		a.passed++
		g.changed.Broadcast()
	}
	return ctx.Err()
}

// look has all who wait look again.
func (g *gate) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed.Broadcast()
}

func (g *gate) of(method string) *answers {
	if g.methods[method] == nil {
		g.methods[method] = &answers{}
	}
	return g.methods[method]
}

// cut ends all calls; what was held back is lost.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hangUp != nil {
		g.hangUp()
	}
	g.calls, g.hangUp = context.WithCancel(context.Background())
}

// hold keeps back the answers to a method from now on.
func (g *gate) hold(method string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.of(method)
	a.held, a.allowed = true, a.passed
}

// pass lets them through again.
func (g *gate) pass(method string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.of(method).held = false
	g.changed.Broadcast()
}

// letOne lets one of those through that are held back, and returns when it has gone.
func (g *gate) letOne(method string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.of(method)
	a.allowed = a.passed + 1
	g.changed.Broadcast()
	g.waitFor("an answer to let through", func() bool { return a.passed >= a.allowed })
}

// came says how many answers etcd has given.
func (g *gate) came(method string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.of(method).came
}

// untilCame returns when etcd has given so many.
func (g *gate) untilCame(method string, count int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.of(method)
	g.waitFor("answers to "+method, func() bool { return a.came >= count })
}

// largest is how large the largest answer was.
func (g *gate) largest(method string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.of(method).largest
}

// waitFor waits with the lock for what has to happen.
func (g *gate) waitFor(what string, done func() bool) {
	ctx, cancel := context.WithTimeout(g.Context(), patience)
	defer cancel()
	stop := context.AfterFunc(ctx, g.look)
	defer stop()
	for !done() {
		if ctx.Err() != nil {
			g.Fatalf("after %v there is still waited for %s", patience, what)
		}
		g.changed.Wait()
	}
}

// frames is a codec of messages as they are.
type frames struct{}

func (frames) Name() string                    { return "proto" }
func (frames) Marshal(m any) ([]byte, error)   { return *m.(*[]byte), nil }
func (frames) Unmarshal(b []byte, m any) error { *m.(*[]byte) = append([]byte{}, b...); return nil }
