package scheduler

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// How long a pod that was refused is not looked at again, whatever happens: a second, doubling up
// to ten, as Kubernetes' scheduler does. A busy cluster has an event that might help at any time;
// without this, one pod that fits nowhere would be tried for every one of them.
const (
	waitFirst = time.Second
	waitMax   = 10 * time.Second
)

// lookAgain is when a pod that was refused is looked at though nothing seems to have changed. Events
// wake it long before; this is for what no event tells.
const lookAgain = 5 * time.Minute

// waiting holds the pods that were refused.
type waiting struct {
	mu   sync.Mutex // guards pods
	pods map[types.NamespacedName]*refused
}

type refused struct {
	uid   types.UID
	times int
	until time.Time
}

func newWaiting() *waiting { return &waiting{pods: map[types.NamespacedName]*refused{}} }

// enter notes that a pod was refused once more. A pod made again under the same name begins anew.
func (w *waiting) enter(key types.NamespacedName, uid types.UID, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pods[key]
	if p == nil || p.uid != uid {
		p = &refused{uid: uid}
		w.pods[key] = p
	}
	wait := waitMax
	if p.times < 4 { // the fourth doubling is past the maximum
		wait = min(waitMax, waitFirst<<p.times)
	}
	p.times++
	p.until = now.Add(wait)
}

func (w *waiting) leave(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, key)
}

// remaining is how long a pod must wait before it is looked at again.
func (w *waiting) remaining(key types.NamespacedName, uid types.UID, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pods[key]
	if p == nil || p.uid != uid {
		return 0
	}
	return max(0, p.until.Sub(now))
}

// all returns a request for every pod that waits.
func (w *waiting) all() []reconcile.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	requests := make([]reconcile.Request, 0, len(w.pods))
	for key := range w.pods {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}
