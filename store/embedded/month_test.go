package embedded_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// TestMonthOfLeasesStaysFlat has 1,000 nodes renew their leases for thirty days, and nobody who looks
// after the store: neither its files nor its history grow. Nodes renew every hour, and every minute
// if SETPOINT_TORTURE is set; how long the days are makes no difference to the files.
func TestMonthOfLeasesStaysFlat(t *testing.T) {
	every := time.Hour
	if os.Getenv("SETPOINT_TORTURE") != "" {
		every = time.Minute
	}
	const nodes, days = 1000, 30
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		options := embedded.Options{CheckpointBytes: 4 << 20}
		s, err := embedded.Open(dir, options)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		// Checkpoints are of a state that does not grow; the log is at most as large as two of its
		// bounds, for one is written while the next fills; then come segments that are open or made
		// ahead, and the reserve.
		limit := 4*options.CheckpointBytes + 5*embedded.SegmentBytes
		for day := range days {
			for range 24 * time.Hour / every {
				renew(t, s, nodes)
				<-time.After(every)
			}
			if size := bytesIn(t, dir); size > limit {
				t.Fatalf("after %d days the directory has %d bytes, want at most %d", day+1, size, limit)
			}
		}
		synctest.Wait()
		if s.Compacted() != s.Revision() {
			t.Errorf("an hour after the last renewal the history still begins at %d of %d", s.Compacted(), s.Revision())
		}
	})
}

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
		<-time.After(2 * time.Hour)
		synctest.Wait()
		if s.Compacted() != s.Revision() {
			t.Errorf("hours later the history begins at %d, want %d", s.Compacted(), s.Revision())
		}
	})
}
