package lease_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/internal/tinyapi"
	"github.com/setpoint-dev/setpoint/lease"
)

type world struct {
	*testing.T
	server *tinyapi.Server
	client client.Client
}

func inWorld(t *testing.T, test func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: tinyapi.New()}
		var err error
		if w.client, err = client.New(w.server.Config(), client.Options{Mapper: w.server.Mapper()}); err != nil {
			t.Fatal(err)
		}
		test(w)
	})
}

func (w *world) options(holder string) lease.Options {
	return lease.Options{
		Client: w.client, Namespace: "default", Name: "l", Holder: holder,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// candidate is one Run. Terms it gets are sent; it works until told to end, or until its context
// ends and for a while longer.
type candidate struct {
	terms  chan lease.Term
	cancel context.CancelFunc
	result chan error
	linger time.Duration
	ended  time.Time // when the work had ended
}

func (w *world) run(holder string, linger time.Duration) *candidate {
	ctx, cancel := context.WithCancel(w.Context())
	c := &candidate{
		terms: make(chan lease.Term, 1), cancel: cancel, result: make(chan error, 1), linger: linger,
	}
	go func() {
		c.result <- lease.Run(ctx, w.options(holder), func(ctx context.Context, term lease.Term) error {
			c.terms <- term
			<-ctx.Done()
			if c.linger > 0 {
				<-time.After(c.linger)
			}
			c.ended = time.Now()
			return nil
		})
	}()
	w.Cleanup(cancel)
	synctest.Wait()
	return c
}

// pass lets time pass, and everything that happens in it end.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) lease() coordinationv1.LeaseSpec {
	w.Helper()
	var l coordinationv1.Lease
	if err := w.client.Get(w.Context(), client.ObjectKey{Namespace: "default", Name: "l"}, &l); err != nil {
		w.Fatal(err)
	}
	return l.Spec
}

func (w *world) wantTerm(c *candidate, epoch int64) {
	w.Helper()
	select {
	case term := <-c.terms:
		if term.Epoch != epoch || term.UID == "" {
			w.Errorf("term %+v, want epoch %d", term, epoch)
		}
	default:
		w.Errorf("no term, want epoch %d", epoch)
	}
}

func TestOneHoldsAndTheOtherFollowsWhenItIsGivenBack(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.run("one", 0), w.run("two", 0)
		w.pass(time.Hour)
		w.wantTerm(one, 1)
		if len(two.terms) != 0 {
			w.Fatal("two hold the lease")
		}
		one.cancel()
		if err := <-one.result; err != nil {
			w.Error(err)
		}
		<-time.After(4 * time.Second) // not the 15 s of a lease that runs out
		w.wantTerm(two, 2)
		two.cancel()
		<-two.result
	})
}

func TestEachTermHasALargerEpochEvenOfTheSameHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		for epoch := range int64(3) {
			c := w.run("one", 0)
			w.wantTerm(c, epoch+1)
			c.cancel()
			<-c.result
		}
	})
}

func TestHolderThatIsCutOffStopsBeforeAnotherBegins(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.run("one", 0)
		w.wantTerm(one, 1)
		cut := "one"
		w.server.Fail(tinyapi.Faults{Before: func(r *http.Request) (*http.Response, error) {
			if holderOf(r) == cut {
				return nil, errors.New("no route to host")
			}
			return nil, nil
		}})
		two := w.run("two", 0)
		began := <-two.terms
		took := time.Now()
		if err := <-one.result; !errors.Is(err, lease.ErrLost) {
			w.Errorf("result is %v, want ErrLost", err)
		}
		if !one.ended.Before(took) || began.Epoch != 2 {
			w.Errorf("one ended at %v, two began at %v with epoch %d", one.ended, took, began.Epoch)
		}
		two.cancel()
		<-two.result
	})
}

// holderOf returns who writes a lease.
func holderOf(r *http.Request) string {
	if r.GetBody == nil {
		return ""
	}
	body, _ := r.GetBody()
	raw, _ := io.ReadAll(body)
	for _, holder := range []string{"one", "two"} {
		if strings.Contains(string(raw), `"holderIdentity":"`+holder+`"`) {
			return holder
		}
	}
	return ""
}

func TestB128_LeaseIsKeptUntilTheWorkHasEnded(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.run("one", time.Minute), w.run("two", 0)
		w.wantTerm(one, 1)
		one.cancel()
		w.pass(59 * time.Second)
		if len(two.terms) != 0 {
			w.Fatal("two began while the work of one went on")
		}
		<-one.result
		w.pass(4 * time.Second)
		w.wantTerm(two, 2)
		two.cancel()
		<-two.result
	})
}

func TestB128_LateAnswerIsDropped(t *testing.T) {
	inWorld(t, func(w *world) {
		w.server.Fail(tinyapi.Faults{After: func(r *http.Request, resp *http.Response) (*http.Response, error) {
			if r.Method == http.MethodPost {
				<-time.After(11 * time.Second) // the client has given up
			}
			return resp, nil
		}})
		one := w.run("one", 0)
		w.pass(10*time.Second + time.Millisecond)
		if len(one.terms) != 0 {
			w.Fatal("a term began with an answer that was too late")
		}
		w.pass(time.Minute)
		// It finds its own claim, and begins anew: nothing of the first try passes for this term.
		w.wantTerm(one, 2)
		one.cancel()
		<-one.result
	})
}

func TestB128_ReleaseIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.run("one", 0)
		w.wantTerm(one, 1)
		w.server.Fail(tinyapi.Faults{Before: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}})
		start := time.Now()
		one.cancel()
		if err := <-one.result; err != nil || time.Since(start) != 5*time.Second {
			w.Errorf("ended with %v after %v, want 5s", err, time.Since(start))
		}
	})
}

func TestLeaseThatSomebodyLabelledIsGivenBack(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.run("one", 0)
		w.wantTerm(one, 1)
		var l coordinationv1.Lease
		if err := w.client.Get(w.Context(), client.ObjectKey{Namespace: "default", Name: "l"}, &l); err != nil {
			w.Fatal(err)
		}
		l.Labels = map[string]string{"team": "a"}
		if err := w.client.Update(w.Context(), &l); err != nil {
			w.Fatal(err)
		}
		one.cancel()
		if err := <-one.result; err != nil || *w.lease().HolderIdentity != "" {
			w.Errorf("ended with %v, the lease is held by %q", err, *w.lease().HolderIdentity)
		}
	})
}

func TestLeaseThatWasTakenAwayIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.run("one", 0)
		w.wantTerm(one, 1)
		var l coordinationv1.Lease
		if err := w.client.Get(w.Context(), client.ObjectKey{Namespace: "default", Name: "l"}, &l); err != nil {
			w.Fatal(err)
		}
		l.Spec.HolderIdentity, l.Spec.LeaseTransitions = ptr.To("intruder"), ptr.To[int32](9)
		if err := w.client.Update(w.Context(), &l); err != nil {
			w.Fatal(err)
		}
		start := time.Now()
		if err := <-one.result; !errors.Is(err, lease.ErrLost) || time.Since(start) > 3*time.Second {
			w.Errorf("ended with %v after %v", err, time.Since(start))
		}
		if got := *w.lease().HolderIdentity; got != "intruder" {
			w.Errorf("the lease was given back though it is held by another: %q", got)
		}
	})
}

// TestTermThatWasNotRenewedInTimeIsLost has the server come back at the moment at which the holder has to
// stop, and nobody else want the lease. The work carries the fence of the term that is over, so it must
// end, and not go on under a new one.
func TestTermThatWasNotRenewedInTimeIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.run("one", 0)
		w.wantTerm(one, 1)
		start := time.Now()
		w.server.Fail(tinyapi.Faults{Before: func(*http.Request) (*http.Response, error) {
			if time.Since(start) < 10*time.Second {
				return nil, errors.New("no route to host")
			}
			return nil, nil
		}})
		w.pass(11 * time.Second)
		select {
		case err := <-one.result:
			if !errors.Is(err, lease.ErrLost) {
				w.Errorf("result is %v, want ErrLost", err)
			}
		default:
			w.Errorf("it works on, and the lease has epoch %d", *w.lease().LeaseTransitions)
		}
	})
}

func TestRecordIsClientGos(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.run("one", 0)
		clientset, err := kubernetes.NewForConfig(w.server.Config())
		if err != nil {
			w.Fatal(err)
		}
		lock := &resourcelock.LeaseLock{Client: clientset.CoordinationV1()}
		lock.LeaseMeta.Namespace, lock.LeaseMeta.Name = "default", "l"
		record, _, err := lock.Get(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if record.HolderIdentity != "one" || record.LeaderTransitions != 1 || record.LeaseDurationSeconds != 15 ||
			record.RenewTime.IsZero() || record.AcquireTime.IsZero() {
			w.Errorf("client-go reads %+v", record)
		}
		one.cancel()
		<-one.result
		if record, _, err = lock.Get(w.Context()); err != nil || record.HolderIdentity != "" {
			w.Errorf("after it was given back client-go reads %+v, %v", record, err)
		}
	})
}

func TestWorkThatEndsGivesTheLeaseBack(t *testing.T) {
	inWorld(t, func(w *world) {
		done := errors.New("nothing left to do")
		err := lease.Run(w.Context(), w.options("one"), func(context.Context, lease.Term) error { return done })
		if !errors.Is(err, done) || *w.lease().HolderIdentity != "" {
			w.Errorf("ended with %v, held by %q", err, *w.lease().HolderIdentity)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, change := range []func(*lease.Options){
			func(o *lease.Options) { o.Holder = "" },
			func(o *lease.Options) { o.Namespace = "" },
			func(o *lease.Options) { o.RenewDeadline = o.Duration + time.Minute },
			func(o *lease.Options) { o.Duration = 1500 * time.Millisecond },
		} {
			o := w.options("one")
			change(&o)
			if err := lease.Run(w.Context(), o, nil); err == nil {
				w.Errorf("options %+v were accepted", o)
			}
		}
	})
}
