package etcd_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
	"github.com/setpoint-dev/setpoint/store/storetest"
)

var stores atomic.Int64

// space returns a prefix that no other test uses.
func space() string { return fmt.Sprintf("/test-%d", stores.Add(1)) }

func open(t testing.TB, options etcd.Options) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	address := etcdtest.Start(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		return open(t, etcd.Options{Endpoints: []string{address}, Prefix: space()})
	})
}
