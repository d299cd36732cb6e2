package btree_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/setpoint-dev/setpoint/store/internal/btree"
)

// TestAgainstMap runs random writes on a tree and a map, clones now and then, and compares all
// clones with the maps of their time at the end.
func TestAgainstMap(t *testing.T) {
	type pair struct {
		tree  btree.Tree[int]
		model map[string]int
	}
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var tree btree.Tree[int]
		model := map[string]int{}
		var clones []pair
		for step := range 5_000 {
			// Grow in the first half, shrink in the second.
			key := fmt.Sprintf("%04d", rnd.IntN(2_000))
			if grows := step < 2_500; (rnd.IntN(4) != 0) == grows {
				tree.Set(key, step)
				model[key] = step
			} else {
				_, want := model[key]
				if got := tree.Delete(key); got != want {
					t.Fatalf("seed %d step %d: Delete(%s) = %v, want %v", seed, step, key, got, want)
				}
				delete(model, key)
			}
			if rnd.IntN(200) == 0 {
				clones = append(clones, pair{tree.Clone(), maps.Clone(model)})
				tree.Seal()
			}
		}
		for i, c := range append(clones, pair{tree, model}) {
			if err := same(&c.tree, c.model, rnd); err != nil {
				t.Fatalf("seed %d clone %d: %v", seed, i, err)
			}
		}
	}
}

func same(tree *btree.Tree[int], model map[string]int, rnd *rand.Rand) error {
	keys := slices.Sorted(maps.Keys(model))
	if tree.Len() != len(keys) {
		return fmt.Errorf("Len() = %d, want %d", tree.Len(), len(keys))
	}
	from := fmt.Sprintf("%04d", rnd.IntN(2_000))
	rank, found := slices.BinarySearch(keys, from)
	if got := tree.Rank(from); got != rank {
		return fmt.Errorf("Rank(%s) = %d, want %d", from, got, rank)
	}
	if _, ok := tree.Get(from); ok != found {
		return fmt.Errorf("Get(%s) = %v, want %v", from, ok, found)
	}
	for start, want := range map[string][]string{"": keys, from: keys[rank:]} {
		var got []string
		for k, v := range tree.From(start) {
			if v != model[k] {
				return fmt.Errorf("%s is %d, want %d", k, v, model[k])
			}
			got = append(got, k)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("From(%q) has %d keys, want %d", start, len(got), len(want))
		}
	}
	return nil
}

func TestStopsWhenTold(t *testing.T) {
	var tree btree.Tree[int]
	for i := range 1_000 {
		tree.Set(fmt.Sprintf("%04d", i), i)
	}
	for limit := 1; limit < 1_000; limit += 37 {
		n := 0
		for range tree.From("0000") {
			if n++; n == limit {
				break
			}
		}
		if n != limit {
			t.Errorf("stopped after %d, want %d", n, limit)
		}
	}
}

// BenchmarkSetSealed is a write after each clone: the worst case, a copied node a level.
func BenchmarkSetSealed(b *testing.B) {
	var tree btree.Tree[int]
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("default/web-%05d", i)
		tree.Set(keys[i], i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		tree.Seal()
		tree.Set(keys[i*7919%len(keys)], i)
	}
}
