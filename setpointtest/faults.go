package setpointtest

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
)

// Faults makes requests fail as they do in production. It decides by rules, which a test may add
// and remove while requests are made:
//
//	faults := setpointtest.NewFaults(1)
//	cp := setpointtest.Start(t, setpointtest.Inject(faults))
//	faults.Add(setpointtest.Rule{
//		Verbs: []string{"create"}, Resources: []string{"pods"}, Chance: 0.3,
//		Effect: setpointtest.LoseReply(),
//	})
//
// Whether a rule with a Chance applies to a request follows from the seed, the request and how many
// of its like came before, and not from the order in which different requests arrive.
//
// Make it with NewFaults; its methods may be called concurrently.
type Faults struct {
	seed uint64

	mu      sync.Mutex // guards all below
	rules   []*rule
	added   int               // rules so far, to tell them apart
	seen    map[string]uint64 // of each kind of request, how many were drawn for
	frozen  []*freeze
	streams map[*stream]struct{}
}

// Rule says which requests have which effect. Of several rules that apply, the first one added does.
type Rule struct {
	// Verbs are "get", "list", "watch", "create", "update", "patch", "delete" and
	// "deletecollection"; none means all of them.
	Verbs []string
	// Resources are resources in the plural, "pods", or of subresources, "pods/status"; none means
	// all. Rules do not apply to requests for what is no resource, such as discovery.
	Resources []string
	// Namespace and Name, if not empty, are those of the object. A create names none.
	Namespace, Name string
	// Chance is the part of these requests that are affected, above 0 and up to 1; zero means all.
	Chance float64
	// Times is how many requests are affected at most; zero means no end.
	Times int
	// Effect is what happens to them.
	Effect Effect
}

type rule struct {
	Rule
	number int
	left   int // of Times
}

// NewFaults returns faults without rules: nothing fails yet.
func NewFaults(seed uint64) *Faults {
	return &Faults{seed: seed, seen: map[string]uint64{}, streams: map[*stream]struct{}{}}
}

// Add puts a rule in force, until the function it returns is called. It panics if the rule has no
// effect or an impossible chance.
func (f *Faults) Add(r Rule) (remove func()) {
	if r.Effect == nil {
		panic("setpointtest: a rule needs an Effect, found nil")
	}
	if r.Chance < 0 || r.Chance > 1 {
		panic(fmt.Sprintf("setpointtest: a rule's Chance is from 0 to 1, found %v", r.Chance))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.added++
	added := &rule{Rule: r, number: f.added, left: r.Times}
	f.rules = append(f.rules, added)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rules = slices.DeleteFunc(f.rules, func(r *rule) bool { return r == added })
	}
}

// Transport puts the faults before a transport. It has the form that rest.Config.Wrap takes.
func (f *Faults) Transport(next http.RoundTripper) http.RoundTripper {
	return &faulty{faults: f, next: next}
}

type faulty struct {
	faults *Faults
	next   http.RoundTripper
}

// WrappedRoundTripper is how client-go finds what is below.
func (t *faulty) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *faulty) RoundTrip(req *http.Request) (*http.Response, error) {
	target, ok := parse(req)
	if !ok {
		return t.next.RoundTrip(req)
	}
	answer := t.next.RoundTrip
	if effect := t.faults.choose(target); effect != nil {
		answer = func(req *http.Request) (*http.Response, error) { return effect(req, t.next) }
	}
	resp, err := answer(req)
	if err == nil && target.verb == "watch" && resp.StatusCode == http.StatusOK {
		resp.Body = t.faults.newStream(target.resource, resp.Body)
	}
	return resp, err
}

// choose returns what happens to a request, nil for nothing unusual.
func (f *Faults) choose(target target) Effect {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if !r.covers(target) || !f.drawn(r, target) {
			continue
		}
		if r.Times > 0 {
			if r.left == 0 {
				continue
			}
			r.left--
		}
		return r.Effect
	}
	return nil
}

func (r *rule) covers(target target) bool {
	return (len(r.Verbs) == 0 || slices.Contains(r.Verbs, target.verb)) &&
		(len(r.Resources) == 0 || slices.Contains(r.Resources, target.resource)) &&
		(r.Namespace == "" || r.Namespace == target.namespace) &&
		(r.Name == "" || r.Name == target.name)
}

// drawn says whether the rule's chance falls on the request.
func (f *Faults) drawn(r *rule, target target) bool {
	if r.Chance == 0 {
		return true
	}
	like := fmt.Sprintf("%d %+v", r.number, target)
	nth := f.seen[like]
	f.seen[like]++
	h := fnv.New64a()
	h.Write([]byte(like))
	h.Write(binary.BigEndian.AppendUint64(nil, nth))
	return rand.New(rand.NewPCG(f.seed, h.Sum64())).Float64() < r.Chance
}
