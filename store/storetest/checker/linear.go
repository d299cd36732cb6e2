package checker

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/setpoint-dev/setpoint/store"
)

// searchMax bounds the search. With some hundred operations and few clients it takes milliseconds;
// a record that is wrong in a way that takes longer to refute is not judged to be right.
const searchMax = time.Minute

// linearizable says whether there is an order of the commits and the reads of the newest state in
// which each stands between its call and its return, and each answer is right.
func linearizable(operations []operation) error {
	var history []porcupine.Operation
	for i := range operations {
		o := &operations[i]
		if o.at > 0 {
			continue // it is judged by the timeline
		}
		end := o.end
		if o.lost {
			end = math.MaxInt64 // whenever it happened
		}
		history = append(history, porcupine.Operation{
			ClientId: o.client, Input: o, Output: o, Call: o.call, Return: end,
		})
	}
	switch porcupine.CheckOperationsTimeout(contract, history, searchMax) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("the order of %d operations was not found in %v", len(history), searchMax)
	}
	return violation("linearizable", "no order explains the answers of %d operations; %s", len(history), stale(operations))
}

var contract = porcupine.Model{
	Init:  func() any { return world{} },
	Step:  func(state, input, _ any) (bool, any) { return step(state.(world), input.(*operation)) },
	Equal: func(a, b any) bool { return a.(world) == b.(world) },
	Hash:  func(state any) uint64 { return uint64(state.(world).revision) },
}

// step says whether an operation can happen in a state, and what comes of it.
func step(w world, o *operation) (bool, any) {
	if o.ops == nil {
		return o.seen.cells == w.cells && o.seen.revision >= w.revision, o.seen
	}
	next, changed, conflict := w.apply(o.ops, o.result.Revision)
	switch {
	case o.lost:
		return !conflict && changed && o.result.Revision > w.revision, next
	case o.err != nil:
		return conflict && foundAs(w, o.err), w
	case conflict || changed != o.result.Changed:
		return false, w
	case changed:
		return o.result.Revision > w.revision && resultOf(next, w, o), next
	}
	return o.result.Revision >= w.revision && resultOf(w, w, o), w
}

// foundAs says whether a conflict tells the state truly.
func foundAs(w world, err error) bool {
	var conflict *store.ConflictError
	if !errors.As(err, &conflict) {
		return false
	}
	found := store.Revision(0)
	if conflict.Found != nil {
		found = conflict.Found.Revision
	}
	return found == w.cells[keyIndex(conflict.Key)].revision && found != conflict.Expected
}

// resultOf says whether a commit returned the entries that there are after it.
func resultOf(now, was world, o *operation) bool {
	for i := range o.ops {
		at := keyIndex(o.ops[i].Key)
		want := now.cells[at]
		if o.ops[i].Type == store.Delete && was.cells[at] != (cell{}) {
			want = expected(&o.ops[i], was.cells[at], o.result.Revision).now
		}
		got := cell{}
		if e := o.result.Entries[i]; e != nil {
			var err error
			if got, err = read(e); err != nil {
				return false
			}
		}
		if got != want {
			return false
		}
	}
	return true
}

// stale names the most frequent reason, if it is the reason: an answer that is older than what was
// acknowledged before it was asked for.
func stale(operations []operation) string {
	for i := range operations {
		read := &operations[i]
		if read.ops != nil || read.at > 0 {
			continue
		}
		for j := range operations {
			if w := &operations[j]; w.ops != nil && w.err == nil && w.end < read.call && w.result.Revision > read.seen.revision {
				return fmt.Sprintf("a read shows revision %d, and %d was acknowledged before it began",
					read.seen.revision, w.result.Revision)
			}
		}
	}
	return "no read is stale by its revision alone"
}
