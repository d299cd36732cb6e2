package apiserver_test

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/store"
)

// readInBetween is a store in which something happens just after the next read.
type readInBetween struct {
	store.Store
	after func()
}

func (s *readInBetween) Snapshot(ctx context.Context) (store.Snapshot, error) {
	snap, err := s.Store.Snapshot(ctx)
	if after := s.after; after != nil {
		s.after = nil
		after()
	}
	return snap, err
}

// The bookmark that ends the initial events is of the state that they were of: what happened since comes after
// it, and is not passed over by who goes on from there.
func TestInitialEventsEndWhereTheyWereRead(t *testing.T) {
	var s *readInBetween
	a := newAPI(t, func(o *apiserver.Options) {
		s = &readInBetween{Store: o.Store}
		o.Store = s
	})
	a.want(201, "POST "+cms, "", configMap("before", "1"))
	s.after = func() { a.want(201, "POST "+cms, "", configMap("since", "1")) }
	resp, err := a.client.Get("http://setpoint" + cms +
		"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var types []string
	var at []int
	for d := json.NewDecoder(resp.Body); len(types) < 3; {
		var event struct {
			Type   string
			Object struct{ Metadata struct{ ResourceVersion string } }
		}
		if err := d.Decode(&event); err != nil {
			t.Fatal(err)
		}
		revision, err := strconv.Atoi(event.Object.Metadata.ResourceVersion)
		if err != nil {
			t.Fatal(err)
		}
		types, at = append(types, event.Type), append(at, revision)
	}
	if diff := cmp.Diff([]string{"ADDED", "BOOKMARK", "ADDED"}, types); diff != "" {
		t.Fatal(diff)
	}
	if at[1] >= at[2] {
		t.Errorf("the bookmark is of revision %d, and an event of %d comes after it", at[1], at[2])
	}
}
