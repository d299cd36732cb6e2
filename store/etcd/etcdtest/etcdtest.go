// Package etcdtest starts etcd for tests.
package etcdtest

import (
	"net/url"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
)

// Start runs an etcd of one member in this process until the test ends, and returns the host and
// port at which it serves clients. It listens on loopback, and its files are the test's; it does not
// sync them, so that it must not be used to learn what a loss of power leaves behind.
func Start(t testing.TB) (address string) {
	t.Helper()
	conf := embed.NewConfig()
	conf.Dir, conf.LogLevel, conf.UnsafeNoFsync = t.TempDir(), "fatal", true
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
