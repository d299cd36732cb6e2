package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// mendReservations makes what is reserved agree with what objects hold. It differs where objects were
// stored by a server that reserved nothing, or one was deleted that could not be read.
func (s *Server) mendReservations(ctx context.Context) error {
	snap, err := s.store.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, k := range s.kinds.Current().All() {
		if k.Holds == nil {
			continue
		}
		holders, _ := snap.List(k.GroupResource().String(), store.ListOptions{})
		for _, e := range holders {
			if err := s.mendHolder(ctx, snap, k, e.Key); err != nil {
				return err
			}
		}
	}
	reserved, _ := snap.List(reservedResource, store.ListOptions{})
	for _, e := range reserved {
		resource, path, _ := strings.Cut(string(e.Value), "/")
		holder := store.Key{Resource: resource, Path: path}
		if snap.Get(holder) != nil {
			continue
		}
		_, err := s.store.Commit(ctx, store.Op{Key: holder},
			store.Op{Key: e.Key, Type: store.Delete, Expect: e.Revision, RevisionAt: -1})
		// In a conflict another server has done so, or made the holder anew.
		if conflict := new(store.ConflictError); err != nil && !errors.As(err, &conflict) {
			return err
		}
	}
	return nil
}

// mendHolder reserves what an object holds and is not reserved. Where two objects hold the same the
// first in order gets it, and the other keeps what it says: changing it would break whoever uses it.
func (s *Server) mendHolder(ctx context.Context, snap store.Snapshot, k *kinds.Kind, key store.Key) error {
	for {
		e := snap.Get(key)
		if e == nil {
			return nil
		}
		obj, err := decodeStored(ctx, s.kinds.Current(), k, e.Value)
		if err != nil {
			return nil // whoever asks for it is told; what it holds cannot be known
		}
		ops := []store.Op{{Key: key, Expect: e.Revision}}
		for _, h := range k.Holds(obj) {
			switch r := snap.Get(reservation(h)); {
			case r == nil:
				ops = append(ops, store.Op{Key: reservation(h), Type: store.Put, Value: []byte(key.String()), RevisionAt: -1})
			case string(r.Value) != key.String():
				s.log.Warn("apiserver: two objects hold the same", slog.String("what", h.Space+" "+h.Name),
					slog.String("first", string(r.Value)), slog.String("second", key.String()))
			}
		}
		if len(ops) == 1 {
			return nil
		}
		_, err = s.store.Commit(ctx, ops...)
		if conflict := new(store.ConflictError); !errors.As(err, &conflict) {
			return err
		}
		if snap, err = s.store.Snapshot(ctx); err != nil {
			return err
		}
	}
}
