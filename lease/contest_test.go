package lease_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/internal/tinyapi"
	"github.com/setpoint-dev/setpoint/lease"
)

// clientGo runs an elector of client-go for the same lease until it is told to end.
func (w *world) clientGo(identity string) (leads chan bool, stop func()) {
	clientset, err := kubernetes.NewForConfig(w.server.Config())
	if err != nil {
		w.Fatal(err)
	}
	leads = make(chan bool, 10)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"}, Client: clientset.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leads <- true },
			OnStoppedLeading: func() { leads <- false },
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	w.Cleanup(cancel)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(ctx)
	}()
	return leads, func() { cancel(); <-ended }
}

func TestCompetesWithClientGosElectorForOneLease(t *testing.T) {
	inWorld(t, func(w *world) {
		theirs, stop := w.clientGo("theirs")
		w.pass(time.Second)
		if len(theirs) != 1 {
			w.Fatal("client-go does not lead")
		}
		ours := w.run("ours", 0)
		w.pass(time.Hour)
		if len(ours.terms) != 0 {
			w.Fatal("two hold the lease")
		}

		stop()
		w.pass(10 * time.Second) // it gave the lease back: no need to wait until it runs out
		first := <-ours.terms
		if first.Epoch <= 0 {
			w.Errorf("a term after client-go's has epoch %d", first.Epoch)
		}

		again, stop := w.clientGo("theirs")
		w.pass(time.Hour)
		if len(again) != 0 {
			w.Fatal("client-go leads while we do")
		}
		ours.cancel()
		<-ours.result
		w.pass(10 * time.Second)
		if len(again) != 1 {
			w.Fatal("client-go does not follow us")
		}
		if epoch := int64(*w.lease().LeaseTransitions); epoch <= first.Epoch {
			w.Errorf("client-go's term has epoch %d after ours of %d", epoch, first.Epoch)
		}
		stop()
	})
}

// A candidate sees that a lease has run out; before it takes it, the holder renews it.
func TestB130_LeaseThatIsRenewedMeanwhileIsNotTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"}}
		held.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("slow"), LeaseDurationSeconds: ptr.To[int32](15), LeaseTransitions: ptr.To[int32](7),
		}
		if err := w.client.Create(w.Context(), held); err != nil {
			w.Fatal(err)
		}
		var renewals atomic.Int32
		w.server.Fail(tinyapi.Faults{Before: func(r *http.Request) (*http.Response, error) {
			if holderOf(r) == "two" && renewals.Load() < 10 {
				renewals.Add(1)
				held.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now()))
				return nil, w.client.Update(w.Context(), held)
			}
			return nil, nil
		}})
		two := w.run("two", 0)
		for renewals.Load() < 10 {
			w.pass(time.Second)
			if len(two.terms) != 0 {
				w.Fatalf("it leads after %d renewals of another", renewals.Load())
			}
		}
		w.pass(time.Minute)
		w.wantTerm(two, 8)
		two.cancel()
		<-two.result
	})
}

// A candidate that waits looks again after between one and two periods; how long follows from the
// randomness that it is given.
func TestWaitingCandidatesAreSpread(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.run("one", 0)
		var looked []time.Time
		w.server.Fail(tinyapi.Faults{Before: func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				looked = append(looked, time.Now())
			}
			return nil, nil
		}})
		random := []float64{0, 0.5, 0.75}
		opts := w.options("two")
		opts.Random = func() float64 {
			next := random[0]
			random = append(random[1:], next)
			return next
		}
		ctx, cancel := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() { ended <- lease.Run(ctx, opts, nil) }()
		w.pass(9 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		var waits []time.Duration
		for i := range looked[1:] {
			waits = append(waits, looked[i+1].Sub(looked[i]))
		}
		want := []time.Duration{2 * time.Second, 3 * time.Second, 3500 * time.Millisecond}
		if diff := cmp.Diff(want, waits); diff != "" {
			w.Errorf("waits (-want +got):\n%s", diff)
		}
		holder.cancel()
		<-holder.result
	})
}

// Many candidates, of which those that lead give up, or are cut off. Their terms never overlap.
func TestB131_TermsOfManyCandidatesNeverOverlap(t *testing.T) {
	inWorld(t, func(w *world) {
		const candidates, turns = 10_000, 4
		var mu sync.Mutex
		leader, last, terms := "", int64(0), 0
		var running sync.WaitGroup
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		for i := range candidates {
			holder := strconv.Itoa(i)
			running.Go(func() {
				for ctx.Err() == nil {
					_ = lease.Run(ctx, w.options(holder), func(ctx context.Context, term lease.Term) error {
						mu.Lock()
						if leader != "" || term.Epoch <= last {
							w.Errorf("%s leads in epoch %d, beside %q and after epoch %d", holder, term.Epoch, leader, last)
						}
						leader, last, terms = holder, term.Epoch, terms+1
						if terms == turns {
							cancel()
						}
						mu.Unlock()
						select {
						case <-ctx.Done():
						case <-time.After(5 * time.Second):
						}
						mu.Lock()
						defer mu.Unlock()
						leader = ""
						return nil
					})
				}
			})
		}
		running.Wait()
		if terms < turns {
			w.Errorf("%d terms, want %d", terms, turns)
		}
		var l coordinationv1.Lease
		if err := w.client.Get(w.Context(), client.ObjectKey{Namespace: "default", Name: "l"}, &l); err != nil {
			w.Fatal(err)
		}
		if *l.Spec.LeaseTransitions < int32(last) {
			w.Errorf("the lease counts %d terms, the last that began was %d", *l.Spec.LeaseTransitions, last)
		}
	})
}
