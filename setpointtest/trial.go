package setpointtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/lease"
)

// Trial puts a controller through what it will meet in production, and fails the test unless it comes to
// the right end and rests there:
//
//	setpointtest.Trial{
//		Setup: workergroup.Setup,
//		Steps: []setpointtest.Step{{Name: "five workers", Do: createGroup, Holds: fiveWorkersAreReady}},
//	}.Run(t)
//
// While a step is under way, requests are refused, lost, delayed and answered with conflicts; answers of
// writes that happened are lost; watches break, or show the past; the lease is lost; keys are looked at
// again for no reason; and the process dies right after a write, before it could take note of it, and is
// started again. All of that follows from a seed. Then there is peace: the step must come true, and
// after the last one nothing may be written any more. Who modifies an object that the cache shares
// makes it panic.
//
// It runs in a testing/synctest bubble: what it waits for costs no time.
type Trial struct {
	// Setup adds the controller to a manager. It is called for each start of the process.
	Setup func(*controller.Manager) error
	// Options are those of the control plane. Controllers that it runs itself meet no faults.
	Options []Option
	// Scheme knows the Go types of the kinds; nil is client-go's.
	Scheme *runtime.Scheme
	// Steps are what somebody asks for, one after the other.
	Steps []Step
	// Seeds are the seeds to try; none means 1, 2 and 3.
	Seeds []uint64
}

// Step is something that somebody does, and what is to become of it.
type Step struct {
	Name string
	// Do changes something, with a client that meets no faults.
	Do func(ctx context.Context, c client.Client) error
	// Holds returns nil once all is as it should be, and else what is not.
	Holds func(ctx context.Context, c client.Client) error
}

const (
	// trouble is how long there is no peace after each step.
	trouble = 30 * time.Second
	// toConverge is how long a step may take once there is peace: longer than the longest wait of a
	// failing key, 1000 s.
	toConverge = 30 * time.Minute
	// toRest is how long nothing may be written at the end, and restIn after how long that begins.
	toRest, restIn = 5 * time.Minute, time.Minute
	// livesMax bounds how often the process is killed while a step is under way.
	livesMax = 4
)

// Run runs the trial, a subtest for each seed.
func (tr Trial) Run(t *testing.T) {
	t.Helper()
	if tr.Scheme == nil {
		tr.Scheme = scheme.Scheme
	}
	if len(tr.Seeds) == 0 {
		tr.Seeds = []uint64{1, 2, 3}
	}
	for _, seed := range tr.Seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tr.run(t, seed) })
		})
	}
}

func (tr Trial) run(t *testing.T, seed uint64) {
	faults := NewFaults(seed)
	cp := Start(t, append([]Option{Scheme(tr.Scheme)}, append(tr.Options, Inject(faults))...)...)
	p := &process{trial: tr, config: cp.Config, random: rand.New(rand.NewPCG(seed, 1))}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- p.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the controller's process: %v", err)
		}
	})
	random := rand.New(rand.NewPCG(seed, 2))
	for _, step := range tr.Steps {
		peace := disturb(faults)
		p.mayDie(livesMax)
		if err := step.Do(ctx, cp.Client); err != nil {
			t.Fatalf("%s: %v", step.Name, err)
		}
		harass(faults, random)
		p.mayDie(0)
		peace()
		converge(t, cp.Client, step)
	}
	pass(restIn)
	p.writes()
	pass(toRest)
	if writes := p.writes(); len(writes) > 0 {
		t.Errorf("at rest %d writes were made: %q", len(writes), writes[:min(len(writes), 10)])
	}
}

// converge waits until a step holds.
func converge(t *testing.T, c client.Client, step Step) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(toConverge); time.Now().Before(deadline); pass(time.Second) {
		if err = step.Holds(t.Context(), c); err == nil {
			return
		}
	}
	t.Fatalf("%s: not so within %v of peace: %v", step.Name, toConverge, err)
}

// pass lets the bubble's time go by, and everything that happens in it end.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// disturb adds the faults of requests, until the function that it returns is called.
func disturb(faults *Faults) (peace func()) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "any", errors.New("it has changed"))
	busy := apierrors.NewTooManyRequests("too many requests", 1)
	broken := apierrors.NewInternalError(errors.New("the store does not answer"))
	writes := []string{"create", "update", "patch", "delete"}
	var remove []func()
	for _, r := range []Rule{
		{Verbs: []string{"update", "patch"}, Resources: []string{"leases"}, Chance: 0.1, Effect: Delay(20 * time.Second)},
		{Verbs: writes, Chance: 0.15, Effect: LoseReply()},
		{Verbs: writes, Chance: 0.1, Effect: Unreachable()},
		{Verbs: []string{"update", "patch", "delete"}, Chance: 0.1, Effect: Refuse(conflict)},
		{Verbs: writes, Chance: 0.05, Effect: Refuse(busy)},
		{Verbs: []string{"get", "list", "watch"}, Chance: 0.15, Effect: Refuse(broken)},
		{Verbs: []string{"get", "list", "watch"}, Chance: 0.1, Effect: Delay(2 * time.Second)},
	} {
		remove = append(remove, faults.Add(r))
	}
	return func() {
		for _, r := range remove {
			r()
		}
	}
}

// harass breaks and freezes watches for as long as there is trouble.
func harass(faults *Faults, random *rand.Rand) {
	for end := time.Now().Add(trouble); time.Now().Before(end); {
		switch random.IntN(3) {
		case 0:
			faults.DropWatches()
			pass(2 * time.Second)
		case 1:
			thaw := faults.FreezeWatches()
			pass(time.Duration(random.IntN(8)) * time.Second)
			thaw()
		case 2:
			pass(4 * time.Second)
		}
	}
}

// managerOptions are those of each start of the process: it takes a lease, so that it can lose it, and
// has every key looked at again each minute.
func (tr Trial) managerOptions(holder string) controller.ManagerOptions {
	opts := controller.ManagerOptions{
		Scheme: tr.Scheme, DetectMutations: true, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Lease: &lease.Options{Namespace: "kube-system", Name: "trial", Holder: holder},
	}
	resync := time.Minute
	opts.Cache.SyncPeriod = &resync
	return opts
}
