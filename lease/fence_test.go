package lease_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	"github.com/setpoint-dev/setpoint/lease"
	"github.com/setpoint-dev/setpoint/store/memory"
)

// stoppable is a transport of a process that can be stopped: its requests then never get anywhere.
type stoppable struct {
	http.RoundTripper
	stopped atomic.Bool
}

func (s *stoppable) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.stopped.Load() {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return s.RoundTripper.RoundTrip(req)
}

// A leader is stopped between looking at its clock and writing. When it goes on, another leads.
func TestLateWritesOfAStoppedLeaderAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t}
		server := newAPIServer(t)
		process := func() (*stoppable, client.Client) {
			transport := &stoppable{RoundTripper: server}
			config := &rest.Config{Host: "http://setpoint", Transport: transport, QPS: -1}
			config.Wrap(lease.Fenced)
			c, err := client.New(config, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return transport, c
		}
		type leader struct {
			ctx  context.Context // with the term, and never done: who is stopped does not see it end
			term lease.Term
		}
		lead := func(c client.Client, holder string) chan leader {
			leaders := make(chan leader, 1)
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			w.client = c
			opts := w.options(holder)
			go lease.Run(ctx, opts, func(ctx context.Context, term lease.Term) error {
				leaders <- leader{context.WithoutCancel(ctx), term}
				<-ctx.Done()
				return nil
			})
			synctest.Wait()
			return leaders
		}
		write := func(c client.Client, ctx context.Context, value string) error {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m"}}
			m.Data = map[string]string{"by": value}
			if err := c.Create(ctx, m); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return c.Update(ctx, m)
		}

		stopped, a := process()
		first := <-lead(a, "a/with;odd=signs")
		for range 20 { // through several renewals
			if err := write(a, first.ctx, "a"); err != nil {
				t.Fatalf("a leader writes: %v", err)
			}
			w.pass(time.Second)
		}
		stopped.stopped.Store(true)
		_, b := process()
		leaders := lead(b, "b")
		w.pass(time.Minute)
		second := <-leaders
		if err := write(b, second.ctx, "b"); err != nil {
			t.Fatalf("the next leader writes: %v", err)
		}
		stopped.stopped.Store(false)
		err := write(a, first.ctx, "a, too late")
		if !lease.IsLost(err) || !apierrors.IsConflict(err) {
			t.Errorf("a write of %s while there is %s: %v, want it to be refused", first.term, second.term, err)
		}
		err = a.Delete(first.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m"}})
		if !lease.IsLost(err) {
			t.Errorf("a delete of %s while there is %s: %v, want it to be refused", first.term, second.term, err)
		}
		if err := write(a, t.Context(), "a, not as leader"); err != nil {
			t.Errorf("a write outside the term: %v", err)
		}
	})
}

// newAPIServer returns the transport to a server in the process.
func newAPIServer(t *testing.T) http.RoundTripper {
	s := memory.New(memory.Options{})
	t.Cleanup(func() { s.Close() })
	server, err := apiserver.New(apiserver.Options{Store: s, Kinds: kinds.NewRegistry(builtin.Set())})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return server.Transport(&authn.User{Name: "admin", Groups: []string{authn.Masters}})
}
