package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/lease"
)

const shards = 8

// fleet is some replicas of one server, and what they did.
type fleet struct {
	*world
	server http.RoundTripper
	linger time.Duration // how long work goes on after it was told to end

	mu     sync.Mutex
	holds  map[int]string // by shard, who works on it
	epochs map[int]int64  // by shard, of the last write that went through
	began  map[string]bool
}

// replica is one of them, which works now and then on the one key of each shard it has.
type replica struct {
	name      string
	transport *stoppable
	client    client.Client
	cancel    context.CancelFunc
	result    chan error

	mu  sync.Mutex
	ctx map[int]context.Context // by shard, of its last term
}

func inFleet(t *testing.T, test func(*fleet)) {
	synctest.Test(t, func(t *testing.T) {
		test(&fleet{
			world: &world{T: t}, server: newAPIServer(t),
			holds: map[int]string{}, epochs: map[int]int64{}, began: map[string]bool{},
		})
	})
}

func (f *fleet) join(name string) *replica {
	r := &replica{
		name: name, transport: &stoppable{RoundTripper: f.server}, result: make(chan error, 1),
		ctx: map[int]context.Context{},
	}
	config := &rest.Config{Host: "http://setpoint", Transport: r.transport, QPS: -1}
	config.Wrap(lease.Fenced)
	var err error
	if r.client, err = client.New(config, client.Options{}); err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.Context())
	r.cancel = cancel
	f.Cleanup(cancel)
	f.client = r.client
	opts := f.options(name)
	go func() {
		r.result <- lease.RunShards(ctx, opts, shards, func(ctx context.Context, shard int, t lease.Term) error {
			return f.work(ctx, r, shard, t)
		})
	}()
	return r
}

func (f *fleet) work(ctx context.Context, r *replica, shard int, term lease.Term) error {
	f.begin(r, shard, term)
	r.mu.Lock()
	r.ctx[shard] = context.WithoutCancel(ctx)
	r.mu.Unlock()
	defer f.end(r, shard)
	for ctx.Err() == nil {
		if err := f.write(ctx, r, shard, term.Epoch); err != nil && ctx.Err() == nil && !lease.IsLost(err) {
			f.Errorf("%s writes in %s: %v", r.name, term, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
	if f.linger > 0 {
		<-time.After(f.linger)
	}
	return ctx.Err() // as functions do that were told to end
}

func (f *fleet) begin(r *replica, shard int, term lease.Term) {
	f.mu.Lock()
	defer f.mu.Unlock()
	once := fmt.Sprint(shard, "@", term.Epoch)
	if f.began[once] {
		f.Errorf("shard %s begins twice", once)
	}
	f.began[once] = true
	if other := f.holds[shard]; other != "" {
		f.Errorf("%s begins with shard %d while %s works on it", r.name, shard, other)
	}
	f.holds[shard] = r.name
}

func (f *fleet) end(r *replica, shard int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holds[shard] == r.name {
		delete(f.holds, shard)
	}
}

// write writes the key of a shard; what goes through must be of the newest term.
func (f *fleet) write(ctx context.Context, r *replica, shard int, epoch int64) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprint("shard-", shard),
	}}
	m.Data = map[string]string{"by": r.name, "at": time.Now().String()}
	err := r.client.Create(ctx, m)
	if apierrors.IsAlreadyExists(err) {
		err = r.client.Update(ctx, m)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && epoch < f.epochs[shard] {
		f.Errorf("%s wrote shard %d in epoch %d after one of epoch %d", r.name, shard, epoch, f.epochs[shard])
	}
	if err == nil {
		f.epochs[shard] = epoch
	}
	return err
}

// owners returns who works on each shard, and expects all shards to be worked on.
func (f *fleet) owners() map[int]string {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.holds) != shards {
		f.Errorf("%d of %d shards are worked on: %v", len(f.holds), shards, f.holds)
	}
	return maps.Clone(f.holds)
}

// moved returns who gave up shards, and who took them.
func moved(before, after map[int]string) (from, to []string) {
	for shard, owner := range before {
		if now := after[shard]; now != owner {
			from, to = append(from, owner), append(to, now)
		}
	}
	slices.Sort(from)
	slices.Sort(to)
	return slices.Compact(from), slices.Compact(to)
}

func TestReplicasShareShardsAndMoveFew(t *testing.T) {
	inFleet(t, func(f *fleet) {
		one, two := f.join("one"), f.join("two")
		f.pass(time.Minute)
		before := f.owners()
		if has := slices.Compact(slices.Sorted(maps.Values(before))); len(has) != 2 {
			f.Errorf("shards are with %v, want both to have some", has)
		}

		three := f.join("three")
		f.pass(time.Minute)
		joined := f.owners()
		if _, to := moved(before, joined); !slices.Equal(to, []string{"three"}) {
			f.Errorf("shards moved to %v, want to the replica that joined and no other", to)
		}

		two.cancel()
		f.pass(10 * time.Second) // not as long as a lease takes to run out
		left := f.owners()
		if from, _ := moved(joined, left); !slices.Equal(from, []string{"two"}) {
			f.Errorf("shards moved from %v, want from the replica that left and no other", from)
		}
		for _, r := range []*replica{one, three} {
			r.cancel()
		}
		for _, r := range []*replica{one, two, three} {
			if err := <-r.result; err != nil {
				f.Errorf("%s ends with %v", r.name, err)
			}
		}
		if names := f.leases("replica"); len(names) != 0 {
			f.Errorf("replicas that have left have leases: %v", names)
		}
	})
}

// leases returns the names of the leases that contain a word.
func (f *fleet) leases(word string) (names []string) {
	f.Helper()
	var list coordinationv1.LeaseList
	if err := f.client.List(f.Context(), &list); err != nil {
		f.Fatal(err)
	}
	for _, l := range list.Items {
		if strings.Contains(l.Name, word) {
			names = append(names, l.Name)
		}
	}
	return names
}

// The work of the old owner goes on for a while, and the new one waits for it (begin checks that).
func TestShardIsHandedOverWhenItsWorkHasEnded(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.linger = 40 * time.Second // for longer than a lease takes to run out
		one := f.join("one")
		f.pass(time.Minute)
		two := f.join("two")
		f.pass(30 * time.Second)
		if _, to := moved(f.owners(), f.owners()); len(to) != 0 || slices.Contains(slices.Collect(maps.Values(f.owners())), "two") {
			f.Error("two works on shards whose work has not ended")
		}
		f.pass(30 * time.Second)
		if !slices.Contains(slices.Collect(maps.Values(f.owners())), "two") {
			f.Error("two has no shards")
		}
		one.cancel()
		two.cancel()
		<-one.result
		<-two.result
	})
}

// The replica that should have had the shards goes away, and the old owner takes back what it still
// works on: as a new term, after the old one (begin checks that, too).
func TestShardThatComesBackWaitsForItsOwnWork(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.linger = 40 * time.Second
		one := f.join("one")
		f.pass(time.Minute)
		two := f.join("two")
		f.pass(5 * time.Second)
		two.cancel()
		<-two.result
		f.pass(2 * time.Minute)
		f.owners()
		if len(f.began) == shards {
			f.Error("no shard came back")
		}
		one.cancel()
		<-one.result
	})
}

// A replica is stopped, others take its shards, and it comes back.
func TestPausedReplicasLateWritesAreRefused(t *testing.T) {
	inFleet(t, func(f *fleet) {
		one, two := f.join("one"), f.join("two")
		f.pass(time.Minute)
		before := f.owners()
		one.transport.stopped.Store(true)
		f.pass(2 * time.Minute)
		if from, _ := moved(before, f.owners()); !slices.Equal(from, []string{"one"}) {
			f.Errorf("shards moved from %v, want from the one that is stopped", from)
		}

		one.transport.stopped.Store(false)
		one.mu.Lock()
		late := maps.Clone(one.ctx)
		one.mu.Unlock()
		for shard, ctx := range late { // before it notices that it was stopped
			err := f.write(ctx, one, shard, 0)
			name := fmt.Sprintf("default/l-%d", shard)
			if !apierrors.IsConflict(err) || !lease.IsLost(err) || !strings.Contains(err.Error(), name) {
				f.Errorf("a late write to shard %d: %v, want a conflict that names %s", shard, err, name)
			}
		}
		if len(late) == 0 {
			f.Error("the one that was stopped had no shards")
		}
		f.pass(time.Minute)
		if diff := cmp.Diff(before, f.owners()); diff != "" {
			f.Errorf("shards before and after the pause (-before +after):\n%s", diff)
		}
		one.cancel()
		two.cancel()
		<-one.result
		<-two.result
	})
}

func TestShardsWhoseWorkFailsEndTheReplica(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.join("other").cancel()
		broken := errors.New("broken")
		opts := f.options("one")
		err := lease.RunShards(f.Context(), opts, shards, func(ctx context.Context, shard int, _ lease.Term) error {
			if shard == 3 {
				return broken
			}
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "shard 3") {
			f.Errorf("ended with %v", err)
		}
		if names := f.leases("replica"); len(names) != 0 {
			f.Errorf("it left %v", names)
		}
	})
}

// Keys spread over shards and shards over replicas, the same way in every process.
func TestKeysSpreadOverShards(t *testing.T) {
	var counts [shards]int
	for i := range 16_000 {
		counts[lease.ShardOf(fmt.Sprintf("default/web-%d", i), shards)]++
	}
	if least, most := slices.Min(counts[:]), slices.Max(counts[:]); least < 1900 || most > 2100 {
		t.Errorf("shards have %d to %d of 16,000 keys", least, most)
	}
	if got := []int{
		lease.ShardOf("default/web", 16), lease.ShardOf("default/db", 16), lease.ShardOf("kube-system/dns", 16),
	}; !slices.Equal(got, []int{6, 5, 2}) {
		t.Errorf("shards of the three keys are %v: a replica of another version would work on them, too", got)
	}
}
