package etcd_test

import (
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/storetest"
)

// member starts an etcd of one member, and returns its address.
func member(t testing.TB) string {
	conf := embed.NewConfig()
	conf.Dir = t.TempDir()
	conf.LogLevel = "fatal"
	conf.UnsafeNoFsync = true // what etcd does about power loss is not what is tested
	anywhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	conf.ListenClientUrls, conf.ListenPeerUrls = anywhere, anywhere
	e, err := embed.StartEtcd(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return e.Clients[0].Addr().String()
}

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
	address := member(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		return open(t, etcd.Options{Endpoints: []string{address}, Prefix: space()})
	})
}
