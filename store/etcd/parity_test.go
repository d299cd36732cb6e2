package etcd_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
)

// soon is the Timeout of stores that are to fail.
const soon = time.Second

// lonely is a cluster of one member in a process of its own, at an address that stays.
type lonely struct {
	testing.TB
	conf    memberConf
	address string
	running atomic.Pointer[process]
}

func newLonely(t testing.TB, quotaBytes int64) *lonely {
	l := &lonely{TB: t}
	p := startProxy(t, &proxy{
		target:   func() string { return l.running.Load().clients },
		callerOf: func([]byte) int { return 0 },
		lines:    func(int) (there, back *line) { return &unknown, &unknown },
	})
	l.address = p.address()
	l.conf = memberConf{
		Name: "m", Dir: t.TempDir(), Initial: "m=http://127.0.0.1:1",
		Peers: "127.0.0.1:1", Clients: "127.0.0.1:1", QuotaBytes: quotaBytes,
	}
	l.start()
	t.Cleanup(l.stop)
	return l
}

func (l *lonely) start() { l.running.Store(startMember(l, l.conf)) }
func (l *lonely) stop()  { l.running.Load().kill() }

// replace puts a copy of a folder in the place of another.
func replace(t *testing.T, dir, by string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(by)); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o700) // as etcd wants it
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A cluster that has been put back to what it was is refused: while it is behind, and when it has
// caught up with other commits.
func TestClusterThatWasRolledBack(t *testing.T) {
	l, prefix := newLonely(t, 0), space()
	var s *etcd.Store
	until(t, nil, func() (err error) { // on a busy machine it may take longer
		s, err = etcd.Open(t.Context(), etcd.Options{Endpoints: []string{l.address}, Prefix: prefix, Timeout: 2 * soon})
		return err
	})
	defer s.Close()
	persist := func(op store.Op) (r store.Result) {
		t.Helper()
		until(t, nil, func() (err error) { r, err = s.Commit(t.Context(), op); return err })
		return r
	}
	write := func() error { _, err := s.Commit(t.Context(), put("a/new", "1")); return err }
	read := func() error { _, err := s.Snapshot(t.Context()); return err }
	persist(put("a/x", "1"))
	l.stop()
	backup := filepath.Join(t.TempDir(), "backup")
	replace(t, backup, l.conf.Dir)
	l.start()
	lost := persist(put("a/x", "2"))
	w, err := s.Watch("pods", "", lost.Revision)
	if err != nil {
		t.Fatal(err)
	}
	l.stop()
	replace(t, l.conf.Dir, backup)
	l.start()

	until(t, etcd.ErrRolledBack, write)
	until(t, etcd.ErrRolledBack, read)
	other := open(t, etcd.Options{Endpoints: []string{l.address}, Prefix: prefix})
	if x, added := value(t, other, "a/x"), value(t, other, "a/new"); x != "1@128" || added != "" {
		t.Errorf("a store that starts now reads %q and %q", x, added)
	}
	for i := range 5 {
		commit(t, other, put("a/x", fmt.Sprint("else", i)))
	}
	if other.Revision() <= lost.Revision {
		t.Fatalf("the cluster is at %d, not further than it was", other.Revision())
	}
	// By now what is there must have been looked at: it is refused for good.
	if _, err := w.Next(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a watch of a cluster that has other commits: %v", err)
	}
	for what, do := range map[string]func() error{"read": read, "commit": write} {
		if err := do(); !errors.Is(err, etcd.ErrRolledBack) {
			t.Errorf("a %s on a cluster that has other commits: %v", what, err)
		}
	}
}

// until repeats something that may fail because nothing has answered yet, until it fails as it should,
// or does not where it should not.
func until(t *testing.T, want error, do func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		err := do()
		if errors.Is(err, want) {
			return
		}
		if err == nil || time.Now().After(end) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
}

// Somebody else has filled etcd up to its quota.
func TestEtcdThatIsFull(t *testing.T) {
	l, prefix := newLonely(t, 4<<20), space()
	s := open(t, etcd.Options{Endpoints: []string{l.address}, Prefix: prefix})
	other := open(t, etcd.Options{Endpoints: []string{l.address}, Prefix: prefix})
	last := commit(t, s, put("a/x", "1")).Revision
	c := raw(t, l.address)
	padding, filled := strings.Repeat("x", 200<<10), int64(0)
	for n := 0; ; n++ {
		answer, err := c.Put(t.Context(), "/elsewhere", padding)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			break
		}
		if err != nil || n > 100 {
			t.Fatalf("put %d: %v", n, err)
		}
		filled = answer.Header.Revision
	}
	snap, err := other.Snapshot(t.Context())
	if err != nil || snap.Revision() != last {
		t.Errorf("a read of full etcd: %v, want revision %d", err, last)
	}
	for _, op := range []store.Op{put("a/y", "1"), deletion("a/x")} {
		if _, err := s.Commit(t.Context(), op); !errors.Is(err, store.ErrNoSpace) {
			t.Errorf("a commit to full etcd: %v, want %v", err, store.ErrNoSpace)
		}
	}
	_, _ = c.Compact(t.Context(), filled) // a store may have done so
	if _, err := c.Defragment(t.Context(), l.address); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	recovers(t, s, put("a/y", "1"))
}

func deletion(path string) store.Op {
	return store.Op{Key: pod(path), Type: store.Delete, Expect: store.Any, RevisionAt: -1}
}

// recovers commits as soon as there is room for it.
func recovers(t *testing.T, s store.Store, ops ...store.Op) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		_, err := s.Commit(t.Context(), ops...)
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrNoSpace) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// Stores that fill etcd up are told so before etcd is full. What makes room goes on, leases can be
// renewed, and when enough was deleted all goes on by itself.
func TestStoresDoNotFillEtcd(t *testing.T) {
	l, prefix := newLonely(t, 64<<20), space()
	s := open(t, etcd.Options{Endpoints: []string{l.address}, Prefix: prefix})
	other := open(t, etcd.Options{Endpoints: []string{l.address}, Prefix: prefix})
	commit(t, s, put("a/lease", "me, until now"))
	padding, made := strings.Repeat("x", 10<<10), 0
	ten := func(n int, make func(path string) store.Op) (ops []store.Op) {
		for i := range 10 {
			ops = append(ops, make(fmt.Sprintf("a/%d-%d", n, i)))
		}
		return ops
	}
	full := func(s store.Store) bool {
		_, err := s.Commit(t.Context(), ten(made, func(path string) store.Op { return put(path, padding) })...)
		if err != nil && (!errors.Is(err, store.ErrNoSpace) || !strings.Contains(err.Error(), "quota of 64 MB")) {
			t.Fatalf("commit %d: %v", made, err)
		}
		if err == nil {
			made++
		}
		return err != nil
	}
	for !full(s) || !full(other) {
		s.Measure() // the test writes faster than a quota so small is measured
		other.Measure()
	}
	recovers(t, s, put("a/lease", "me, until then"))
	for n, err := 1, error(nil); !errors.Is(err, store.ErrNoSpace); n++ { // what is left of the room is used up first
		if _, err = s.Commit(t.Context(), put("a/lease", strings.Repeat(padding, n))); n == 100 {
			t.Fatalf("an object was made larger a hundred times: %v", err)
		}
		s.Measure()
	}
	marked := put("a/0-0", padding+"to be deleted")
	marked.Frees = true
	commit(t, s, marked)
	for i := range made * 3 / 4 {
		commit(t, []store.Store{s, other}[i%2], ten(i, deletion)...)
		s.Measure()
	}
	for i := range made / 2 {
		recovers(t, []store.Store{other, s}[i%2], ten(made+i, func(path string) store.Op { return put(path, padding) })...)
	}
	alarms, err := raw(t, l.address).AlarmList(t.Context())
	if err != nil || len(alarms.Alarms) > 0 {
		t.Errorf("etcd's alarms: %v, %v", alarms, err)
	}
	t.Logf("%d objects of 10 KB went into 64 MB", 10*made)
}

func TestEtcdThatCannotBeUsed(t *testing.T) {
	secure := secureMember(t)
	plain := etcdtest.Start(t)
	auth := raw(t, plain)
	for _, do := range []func() error{
		func() error { _, err := auth.RoleAdd(t.Context(), "root"); return err },
		func() error { _, err := auth.UserAdd(t.Context(), "root", "pass"); return err },
		func() error { _, err := auth.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := auth.AuthEnable(t.Context()); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	nobody := freeAddress(t)
	for at, want := range map[string]string{
		"etcd://" + nobody:                                     nobody,
		"etcd://" + plain:                                      "does not let the server in",
		"etcd://root:wrong@" + plain:                           "does not let the server in",
		"etcd://root:pass@" + plain:                            "",
		"etcd://" + secure.address:                             secure.address,
		"etcds://" + secure.address:                            "certificate",
		"etcds://" + secure.address + "?cacert=" + secure.file: "",
	} {
		options, err := etcd.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		// On a busy machine a member may take longer to answer, or to refuse.
		for options.Timeout = soon; ; options.Timeout *= 4 {
			said := tryOpen(t, options)
			if said == want || want != "" && strings.Contains(said, want) {
				t.Logf("%s: %s", at, said)
				break
			}
			if said == "" || options.Timeout > patience {
				t.Errorf("%s: %q, want %q", at, said, want)
				break
			}
		}
	}
}

// tryOpen returns what kept a store from being opened, or "".
func tryOpen(t *testing.T, options etcd.Options) string {
	s, err := etcd.Open(t.Context(), options)
	if err == nil {
		err = s.Close()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

type secureEtcd struct{ address, file string }

// secureMember starts an etcd that speaks TLS alone, with a certificate of its own.
func secureMember(t *testing.T) secureEtcd {
	conf := embed.NewConfig()
	conf.Dir, conf.LogLevel, conf.UnsafeNoFsync = t.TempDir(), "fatal", true
	conf.ClientAutoTLS, conf.SelfSignedCertValidity = true, 1
	conf.ListenPeerUrls = urls("127.0.0.1:0")
	conf.ListenClientUrls = []url.URL{{Scheme: "https", Host: "127.0.0.1:0"}}
	conf.AdvertiseClientUrls = conf.ListenClientUrls
	e, err := embed.StartEtcd(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return secureEtcd{e.Clients[0].Addr().String(), filepath.Join(conf.Dir, "fixtures", "client", "cert.pem")}
}

func freeAddress(t testing.TB) string {
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
