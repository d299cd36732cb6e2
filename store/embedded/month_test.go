package embedded_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
	"github.com/setpoint-dev/setpoint/store/storetest"
)

// TestMonthOfLeasesStaysFlat has 1,000 nodes renew their leases every ten seconds for thirty days, and
// nobody who looks after the store: neither its files nor its history grow. That is 259 million renewals
// if SETPOINT_TORTURE is set, and six hours of a hundred nodes if it is not.
func TestMonthOfLeasesStaysFlat(t *testing.T) {
	nodes, whole := 100, 6*time.Hour
	if storetest.Tortured(t) {
		nodes, whole = 1000, 30*24*time.Hour
	}
	const every, checks = 10 * time.Second, 120
	dir := t.TempDir()
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		options := embedded.Options{CheckpointBytes: 4 << 20}
		s, err := embedded.Open(dir, options)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var sizes, kept []int64
		for range checks {
			for range whole / every / checks {
				renew(t, s, nodes)
				<-time.After(every)
			}
			sizes = append(sizes, bytesIn(t, dir))
			kept = append(kept, int64(s.Revision()-s.Compacted()))
		}
		// History is nine minutes of sixty commits and a sixty-fourth of them; on disk it is its log and at
		// most as much of checkpoints, and then come two checkpoints and their logs, for one is written
		// while the next fills, segments that are open or made ahead, and the reserve.
		const commits = int64(9*time.Minute/every) * 66 / 64
		log := commits * int64(nodes) * renewalBytes
		limit := 2*log + 6*options.CheckpointBytes + 5*embedded.SegmentBytes
		if got := slices.Max(sizes); got > limit {
			t.Errorf("the directory had %d bytes, want at most %d", got, limit)
		}
		if got := slices.Max(kept); got > commits+2 {
			t.Errorf("the history had %d commits, want at most %d", got, commits+2)
		}
		// Flat: the last quarter needs no more than the first did.
		quarter := len(sizes) / 4
		if first, last := slices.Max(sizes[:quarter]), slices.Max(sizes[3*quarter:]); last > first+2*embedded.SegmentBytes {
			t.Errorf("the directory had %d bytes in the first quarter and %d in the last", first, last)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if s.Compacted() != s.Revision() {
			t.Errorf("an hour after the last renewal the history still begins at %d of %d", s.Compacted(), s.Revision())
		}
		t.Logf("%d renewals of %d nodes in %d commits; at most %d MB on disk and %d commits of history",
			int64(s.Revision())*int64(nodes), nodes, s.Revision(), slices.Max(sizes)>>20, slices.Max(kept))
	})
	t.Logf("in %v", time.Since(began).Round(time.Second))
}

// renewalBytes is more than one takes in the log.
const renewalBytes = 400

// renew writes a lease for each node, in one commit to be quick.
func renew(t *testing.T, s store.Store, nodes int) {
	t.Helper()
	ops := make([]store.Op, nodes)
	now := time.Now().Format(time.RFC3339)
	for i := range ops {
		ops[i] = put(fmt.Sprintf("kube-node-lease/node-%d", i), fmt.Appendf(nil,
			`{"kind":"Lease","metadata":{"name":"node-%d"},"spec":{"holderIdentity":"node-%d","renewTime":%q}}`, i, i, now))
		ops[i].Key.Resource = "leases.coordination.k8s.io"
	}
	commit(t, s, ops...)
}

func bytesIn(t *testing.T, dir string) (size int64) {
	t.Helper()
	err := filepath.Walk(dir, func(_ string, info fs.FileInfo, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// TestHistoryAgesWithoutCommits looks at a store to which nothing happens any more.
func TestHistoryAgesWithoutCommits(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := embedded.Open(dir, embedded.Options{HistoryAge: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range 5 {
			commit(t, s, put("a", fmt.Append(nil, i)))
		}
		<-time.After(59 * time.Minute)
		synctest.Wait()
		if s.Compacted() != 0 {
			t.Errorf("within the hour the history was compacted to %d", s.Compacted())
		}
		<-time.After(time.Minute + time.Second)
		synctest.Wait()
		if s.Compacted() != s.Revision() {
			t.Errorf("after an hour the history begins at %d, want %d", s.Compacted(), s.Revision())
		}
	})
}
