package engine

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// storeEngine is the whole store, for comparison: revisions, trees, history and all.
type storeEngine struct {
	store *embedded.Store
	n     atomic.Uint64
}

func openStore(dir string, replay func([]byte)) (Engine, error) {
	s, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		return nil, err
	}
	snapshot, err := s.Snapshot(context.Background())
	if err != nil {
		return nil, err
	}
	entries, _ := snapshot.List("pods", store.ListOptions{})
	for _, e := range entries {
		replay(e.Value)
	}
	return &storeEngine{store: s}, nil
}

func (s *storeEngine) Append(records [][]byte) error {
	ops := make([]store.Op, len(records))
	for i, r := range records {
		n := s.n.Add(1)
		// No two values of a key may be equal, or nothing would be written.
		value := binary.LittleEndian.AppendUint64(make([]byte, 0, len(r)), n)
		value = append(value, r[8:]...)
		ops[i] = store.Op{
			Key:  store.Key{Resource: "pods", Path: string(keyOf(n))},
			Type: store.Put, Expect: store.Any, Value: value, RevisionAt: -1,
		}
	}
	_, err := s.store.Commit(context.Background(), ops...)
	return err
}

func (s *storeEngine) Close() error { return s.store.Close() }
