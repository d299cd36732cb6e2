package workqueue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	upstream "k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/setpoint-dev/setpoint/workqueue"
)

type requests = upstream.TypedRateLimitingInterface[reconcile.Request]

// An unchanged controller of controller-runtime's works on this queue.
func TestControllerRuntimesControllerWorksOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue *workqueue.Queue[reconcile.Request]
		type pass struct {
			Name     string
			At       time.Duration
			Priority int
		}
		var passes []pass
		began := time.Now()
		request := func(name string) reconcile.Request {
			return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
		}
		reconciler := func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			at := time.Since(began)
			for _, k := range queue.Keys() {
				if k.Key == r {
					passes = append(passes, pass{r.Name, at, k.Priority})
				}
			}
			switch {
			case r.Name == "failing" && at < 5*time.Millisecond:
				return reconcile.Result{}, errBroken
			case r.Name == "waiting" && at < time.Minute:
				return reconcile.Result{RequeueAfter: time.Minute}, nil
			}
			return reconcile.Result{}, nil
		}
		c, err := controller.NewUnmanaged("test", controller.Options{
			Reconciler:         reconcile.Func(reconciler),
			Logger:             logr.Discard(),
			SkipNameValidation: ptr.To(true),
			NewQueue: func(name string, limiter upstream.TypedRateLimiter[reconcile.Request]) requests {
				queue = workqueue.New(workqueue.Options[reconcile.Request]{Name: name, RateLimiter: limiter})
				return queue
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		err = c.Watch(source.Func(func(_ context.Context, q requests) error {
			// Handlers know a queue with priorities by its type.
			low := priorityqueue.AddOpts{Priority: ptr.To(-100)}
			q.(priorityqueue.PriorityQueue[reconcile.Request]).AddWithOpts(low, request("waiting"), request("failing"))
			q.Add(request("fresh"))
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := begin(func() { _ = c.Start(ctx) })
		<-time.After(time.Hour)
		cancel()
		if !ended() {
			t.Fatal("the controller does not end")
		}
		want := []pass{
			{"fresh", 0, 0}, {"waiting", 0, -100}, {"failing", 0, -100},
			{"failing", 5 * time.Millisecond, -100}, {"waiting", time.Minute, -100},
		}
		if diff := cmp.Diff(want, passes); diff != "" {
			t.Errorf("passes (-want +got):\n%s", diff)
		}
	})
}
