package apiserver_test

import (
	"context"
	"encoding/json"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/store"
)

// inBetween is a store in which something happens just after the next read, or just after a watch has looked
// and found nothing.
type inBetween struct {
	store.Store
	afterRead func()
	afterLook atomic.Pointer[func()]
}

func (s *inBetween) Snapshot(ctx context.Context) (store.Snapshot, error) {
	snap, err := s.Store.Snapshot(ctx)
	if after := s.afterRead; after != nil {
		s.afterRead = nil
		after()
	}
	return snap, err
}

func (s *inBetween) Watch(resource, prefix string, after store.Revision) (store.Watch, error) {
	w, err := s.Store.Watch(resource, prefix, after)
	return &look{w, s}, err
}

type look struct {
	store.Watch
	store *inBetween
}

func (l *look) TryNext() ([]*store.Event, error) {
	events, err := l.Watch.TryNext()
	if len(events) == 0 {
		if after := l.store.afterLook.Swap(nil); after != nil {
			(*after)()
		}
	}
	return events, err
}

func newInBetween(t *testing.T) (*api, *inBetween) {
	s := &inBetween{}
	return newAPI(t, func(o *apiserver.Options) { s.Store, o.Store = o.Store, s }), s
}

// shown reads some events, which have to be of these types, and returns their revisions.
func shown(t *testing.T, d *json.Decoder, types ...string) (at []int) {
	t.Helper()
	for _, want := range types {
		var event struct {
			Type   string
			Object struct {
				Metadata struct{ ResourceVersion string }
			}
		}
		if err := d.Decode(&event); err != nil || event.Type != want {
			t.Fatalf("event %d: %+v, %v; want %s", len(at), event, err, want)
		}
		revision, err := strconv.Atoi(event.Object.Metadata.ResourceVersion)
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, revision)
	}
	return at
}

// The bookmark that ends the initial events is of the state that they were of: what happened since comes after
// it, and is not passed over by who goes on from there.
func TestInitialEventsEndWhereTheyWereRead(t *testing.T) {
	a, s := newInBetween(t)
	a.want(201, "POST "+cms, "", configMap("before", "1"))
	s.afterRead = func() { a.want(201, "POST "+cms, "", configMap("since", "1")) }
	resp, err := a.client.Get("http://setpoint" + cms +
		"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	at := shown(t, json.NewDecoder(resp.Body), "ADDED", "BOOKMARK", "ADDED")
	if at[1] >= at[2] {
		t.Errorf("the bookmark is of revision %d, and an event of %d comes after it", at[1], at[2])
	}
}

// The bookmark of a quiet watch is of what the watch has looked at, and not of what has happened since.
func TestBookmarkIsOfWhatWasLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newInBetween(t)
		first := a.want(201, "POST "+cms, "", configMap("before", "1"))
		resp, err := a.client.Get("http://setpoint" + cms + "?watch=1&allowWatchBookmarks=true&resourceVersion=" + first.rev())
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		synctest.Wait() // until the watch waits, too
		since := func() { a.want(201, "POST "+cms, "", configMap("since", "1")) }
		s.afterLook.Store(&since)
		a.clock.Step(70 * time.Second)
		at := shown(t, json.NewDecoder(resp.Body), "BOOKMARK", "ADDED")
		if at[0] >= at[1] {
			t.Errorf("the bookmark is of revision %d, and an event of %d comes after it", at[0], at[1])
		}
	})
}
