package engine

import (
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	tidwall "github.com/tidwall/wal"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
)

// etcdWAL stores a group as one entry of a single member's log that never changes its term.
type etcdWAL struct {
	log   *wal.WAL
	index uint64
	buf   []byte
}

func openEtcdWAL(dir string, replay func([]byte)) (Engine, error) {
	dir = filepath.Join(dir, "wal")
	if !wal.Exist(dir) {
		log, err := wal.Create(nil, dir, nil)
		return &etcdWAL{log: log}, err
	}
	log, err := wal.Open(nil, dir, &walpb.Snapshot{})
	if err != nil {
		return nil, err
	}
	_, _, entries, err := log.ReadAll()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		split(e.Data, replay)
	}
	return &etcdWAL{log: log, index: uint64(len(entries))}, nil
}

func (e *etcdWAL) Append(records [][]byte) error {
	e.index++
	e.buf = join(e.buf[:0], records)
	entry := raftpb.Entry{Term: new(uint64(1)), Index: new(e.index), Data: e.buf}
	return e.log.Save(nil, []*raftpb.Entry{&entry})
}

func (e *etcdWAL) Close() error { return e.log.Close() }

type raftWAL struct {
	log   *raftwal.WAL
	index uint64
	buf   []byte
}

func openRaftWAL(dir string, replay func([]byte)) (Engine, error) {
	log, err := raftwal.Open(dir, raftwal.WithLogger(hclog.NewNullLogger()))
	if err != nil {
		return nil, err
	}
	last, err := log.LastIndex()
	if err != nil {
		return nil, err
	}
	for i := uint64(1); i <= last; i++ {
		var entry raft.Log
		if err := log.GetLog(i, &entry); err != nil {
			return nil, err
		}
		split(entry.Data, replay)
	}
	return &raftWAL{log: log, index: last}, nil
}

func (r *raftWAL) Append(records [][]byte) error {
	r.index++
	r.buf = join(r.buf[:0], records)
	return r.log.StoreLog(&raft.Log{Index: r.index, Term: 1, Data: r.buf})
}

func (r *raftWAL) Close() error { return r.log.Close() }

type tidwallWAL struct {
	log   *tidwall.Log
	index uint64
	buf   []byte
}

func openTidwall(dir string, replay func([]byte)) (Engine, error) {
	log, err := tidwall.Open(filepath.Join(dir, "wal"), nil)
	if err != nil {
		return nil, err
	}
	last, err := log.LastIndex()
	if err != nil {
		return nil, err
	}
	for i := uint64(1); i <= last; i++ {
		data, err := log.Read(i)
		if err != nil {
			return nil, err
		}
		split(data, replay)
	}
	return &tidwallWAL{log: log, index: last}, nil
}

func (t *tidwallWAL) Append(records [][]byte) error {
	t.index++
	t.buf = join(t.buf[:0], records)
	return t.log.Write(t.index, t.buf)
}

func (t *tidwallWAL) Close() error { return t.log.Close() }
