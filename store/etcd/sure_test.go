package etcd_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
)

// A conflict is true when it is said: it is not decided on what is in memory before etcd was asked, after the
// commit was, whether that is old. In these tests a store hears of nothing but what it is let hear.

// deaf is a store before a gate, and another on the same cluster.
type deaf struct {
	*testing.T
	gate   *gate
	prefix string
	store  *etcd.Store
	other  *etcd.Store
	first  map[string]store.Revision // of a/x and a/y
}

func newDeaf(t *testing.T, address string) *deaf {
	g, prefix := newGate(t, address), space()
	d := &deaf{T: t, gate: g, prefix: prefix, first: map[string]store.Revision{}}
	d.store = open(t, etcd.Options{Endpoints: []string{g.address}, Prefix: prefix, Timeout: patience})
	d.other = open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix, Timeout: patience})
	for _, path := range []string{"a/x", "a/y"} {
		d.first[path] = commit(t, d.store, put(path, "1")).Revision
	}
	g.untilCame("Txn", 3) // the first began the store; a commit may come back before it is answered
	g.hold("Watch")
	return d
}

// told is what became of a commit.
type told struct {
	result store.Result
	err    error
}

// begin begins a commit.
func (d *deaf) begin(path string, expect store.Revision) <-chan told {
	c := make(chan told, 1)
	op := put(path, "mine")
	op.Expect = expect
	go func() {
		result, err := d.store.Commit(d.Context(), op)
		c <- told{result, err}
	}()
	return c
}

// succeeds expects that a commit goes through as soon as the store hears again.
func (d *deaf) succeeds(c <-chan told) {
	d.Helper()
	d.gate.pass("Watch")
	if got := <-c; got.err != nil {
		d.Errorf("a commit on what another store has made: %v", got.err)
	}
}

// hears lets the store hear one thing after another until a commit is answered.
func (d *deaf) hears(c <-chan told) told {
	for {
		d.gate.letOne("Watch")
		again := time.NewTimer(time.Second)
		select {
		case got := <-c:
			again.Stop()
			return got
		case <-again.C: // on a busy machine the store did not listen any more, and does so anew
		}
	}
}

// conflicts expects that a commit came too late.
func (d *deaf) conflicts(got told) {
	d.Helper()
	var conflict *store.ConflictError
	if !errors.As(got.err, &conflict) {
		d.Errorf("a commit on what is no more: %v, want a conflict", got.err)
	}
}

func TestConflictsAreNotDecidedOnOldMemory(t *testing.T) {
	address := etcdtest.Start(t)
	for name, try := range map[string]func(d *deaf){
		// Another commit is refused by etcd. That it was does not mean that memory has what it was refused for.
		"a refusal that is not in memory yet": func(d *deaf) {
			theirs := commit(d.T, d.other, put("a/x", "theirs")).Revision
			commit(d.T, d.other, put("a/y", "theirs"))
			asked := d.gate.came("Range")
			right := d.begin("a/x", theirs)
			d.gate.untilCame("Range", asked+1) // it is looked whether memory is old
			vain := d.begin("a/y", store.Any)  // and this is sent, in vain
			for looks := time.NewTicker(time.Millisecond); d.store.Awaited() < 2; <-looks.C {
				select {
				case got := <-right:
					d.Fatalf("a commit was answered by a store that hears nothing: %+v", got)
				default:
				}
			}
			d.succeeds(right)
			d.succeeds(vain)
		},
		// What etcd refused a commit for says nothing of what came after it.
		"a refusal from before": func(d *deaf) {
			commit(d.T, d.other, put("a/x", "theirs"))
			sent := d.gate.came("Txn")
			wrong := d.begin("a/x", d.first["a/x"])
			d.gate.untilCame("Txn", sent+1)
			looked := d.gate.came("Range")
			right := d.begin("a/y", commit(d.T, d.other, put("a/y", "theirs")).Revision)
			d.gate.untilCame("Range", looked+1)
			d.conflicts(d.hears(wrong))
			d.succeeds(right)
		},
		// Neither does that a commit has come back.
		"a commit from before": func(d *deaf) {
			sent := d.gate.came("Txn")
			before := d.begin("a/x", d.first["a/x"])
			d.gate.untilCame("Txn", sent+1)
			looked := d.gate.came("Range")
			right := d.begin("a/y", commit(d.T, d.other, put("a/y", "theirs")).Revision)
			d.gate.untilCame("Range", looked+1)
			if got := d.hears(before); got.err != nil {
				d.Error(got.err)
			}
			d.succeeds(right)
		},
		// Nor that etcd was asked for another.
		"a look from before": func(d *deaf) {
			d.gate.hold("Range")
			looked := d.gate.came("Range")
			wrong := d.begin("a/x", 1)
			d.gate.untilCame("Range", looked+1)
			right := d.begin("a/y", commit(d.T, d.other, put("a/y", "theirs")).Revision)
			for looks := time.NewTicker(time.Millisecond); d.store.Asked() < 4; <-looks.C {
			}
			d.gate.pass("Range")
			d.conflicts(<-wrong)
			d.succeeds(right)
		},
	} {
		t.Run(name, func(t *testing.T) { try(newDeaf(t, address)) })
	}
}

// A commit that etcd refuses, because another epoch has begun, is sent again when the store has heard of that,
// and not before: it would be refused again.
func TestRefusedCommitWaitsForTheEpoch(t *testing.T) {
	d := newDeaf(t, etcdtest.Start(t))
	if _, err := raw(t, d.gate.address).Put(t.Context(), d.prefix+"/epoch", ""); err != nil {
		t.Fatal(err)
	}
	sent, begun := d.gate.came("Txn"), d.gate.came("Put")
	c := d.begin("a/x", store.Any)
	again := func() bool { return d.gate.came("Txn")-sent > 1 && d.gate.came("Put") == begun }
	for looks := time.NewTicker(time.Millisecond); d.store.Awaited() == 0 && !again(); <-looks.C {
	}
	if again() { // and not because the store itself has begun another, as on a busy machine
		t.Error("it was sent again before the store heard of the epoch")
	}
	d.succeeds(c)
}

// What a store has missed comes in parts that a connection can bear, and is whole again when it is shown.
func TestWhatWasMissedComesInParts(t *testing.T) {
	d := newDeaf(t, etcdtest.Start(t))
	const parts, bytes = 8, 1 << 20
	for n := range parts {
		commit(t, d.other, put("a/x", fmt.Sprint(n, strings.Repeat("x", bytes))), put("a/y", fmt.Sprint(n)))
	}
	d.gate.cut()
	d.gate.pass("Watch")
	w, err := d.store.Watch("pods", "", d.first["a/y"])
	if err != nil {
		t.Fatal(err)
	}
	for seen := 0; seen < parts; {
		events, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(events); i += 2 {
			if seen++; len(events) < i+2 || events[i].Entry.Revision != events[i+1].Entry.Revision {
				t.Fatalf("commit %d is not whole", seen)
			}
		}
	}
	if most := d.gate.largest("Watch"); most > 3*bytes {
		t.Errorf("%d bytes came at once, of commits of %d", most, bytes)
	}
}
