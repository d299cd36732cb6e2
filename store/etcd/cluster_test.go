package etcd_test

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
)

// cluster is three members, which reach each other through proxies.
type cluster struct {
	testing.TB
	confs   []*embed.Config
	members []*embed.Etcd // nil while killed
	proxies []*proxy      // in front of each member's address for the others
}

func newCluster(t testing.TB) *cluster {
	c := &cluster{TB: t, members: make([]*embed.Etcd, 3)}
	var initial []string
	for i := range c.members {
		conf := embed.NewConfig()
		conf.Name, conf.Dir = fmt.Sprint("m", i), t.TempDir()
		conf.LogLevel, conf.UnsafeNoFsync = "fatal", true
		conf.TickMs, conf.ElectionMs = 20, 200
		peer, client := freeAddress(t), freeAddress(t)
		conf.ListenPeerUrls, conf.ListenClientUrls = urls(peer), urls(client)
		conf.AdvertiseClientUrls = conf.ListenClientUrls
		c.proxies = append(c.proxies, newProxy(t, peer))
		conf.AdvertisePeerUrls = urls(c.proxies[i].address())
		initial = append(initial, conf.Name+"=http://"+c.proxies[i].address())
		c.confs = append(c.confs, conf)
	}
	for _, conf := range c.confs {
		conf.InitialCluster = strings.Join(initial, ",")
	}
	var starting sync.WaitGroup
	for i := range c.members {
		starting.Go(func() { c.start(i) })
	}
	starting.Wait()
	t.Cleanup(func() {
		for i := range c.members {
			c.kill(i)
		}
	})
	return c
}

func urls(address string) []url.URL { return []url.URL{{Scheme: "http", Host: address}} }

func freeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (c *cluster) start(i int) {
	e, err := embed.StartEtcd(c.confs[i])
	if err != nil {
		c.Errorf("starting member %d: %v", i, err)
		return
	}
	c.members[i] = e
	<-e.Server.ReadyNotify()
}

func (c *cluster) kill(i int) {
	if c.members[i] != nil {
		c.members[i].Close()
		c.members[i] = nil
	}
}

// leader returns a member that leads, or -1.
func (c *cluster) leader() int {
	for i, m := range c.members {
		if m != nil && m.Server.MemberID() == m.Server.Leader() {
			return i
		}
	}
	return -1
}

func (c *cluster) endpoints(first int) (all []string) {
	for i := range c.confs {
		all = append(all, c.confs[(first+i)%len(c.confs)].ListenClientUrls[0].Host)
	}
	return all
}

// Two stores write while members are killed and cut off, the leader first. No acknowledged write is
// lost, none goes back, and a watch tells the whole story.
func TestMembersFail(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of elections")
	}
	c := newCluster(t)
	if t.Failed() {
		return
	}
	prefix := space()
	stores := []*etcd.Store{
		open(t, etcd.Options{Endpoints: c.endpoints(0), Prefix: prefix, Timeout: time.Minute}),
		open(t, etcd.Options{Endpoints: c.endpoints(1), Prefix: prefix, Timeout: time.Minute}),
	}
	w, err := stores[0].Watch("pods", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var acknowledged atomic.Int64
	stop := make(chan struct{})
	last := make([]int, 4)
	var writers sync.WaitGroup
	for n := range last {
		s := stores[n%2]
		path := fmt.Sprintf("a/%d", n)
		writers.Go(func() {
			before := store.Revision(0)
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				op := put(path, fmt.Sprint(i))
				if op.Expect = before; before == 0 {
					op.Expect = store.Any
				}
				r, err := s.Commit(t.Context(), op)
				if err != nil {
					t.Errorf("writer %d: %v", n, err)
					return
				}
				before, last[n] = r.Revision, i
				acknowledged.Add(1)
			}
		})
	}
	// Each step of the way only goes on when writes go through again.
	progress := func(what string) {
		for goal, end := acknowledged.Load()+20, time.Now().Add(time.Minute); acknowledged.Load() < goal; {
			if time.Now().After(end) || t.Failed() {
				t.Fatalf("no writes go through: %s", what)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	progress("all members run")
	for round := range 2 {
		victim := (max(c.leader(), 0) + round) % 3 // the leader first
		c.kill(victim)
		progress(fmt.Sprintf("member %d is killed", victim))
		c.start(victim)
		progress(fmt.Sprintf("member %d is back", victim))
	}
	victim := (max(c.leader(), 0) + 1) % 3 // it believes that all is well
	c.proxies[victim].hold()
	c.proxies[victim].cut()
	progress(fmt.Sprintf("member %d is mute", victim))
	c.proxies[victim].pass()
	close(stop)
	writers.Wait()

	for n := range last {
		for i, s := range stores {
			if got, want := value(t, s, fmt.Sprintf("a/%d", n)), fmt.Sprintf("%d@", last[n]); !strings.HasPrefix(got, want) {
				t.Errorf("store %d has %q of writer %d, which had %q acknowledged", i, got, n, want)
			}
		}
	}
	told := map[string]int{}
	for {
		events, err := w.TryNext()
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			path := e.Entry.Key.Path
			told[path]++
			if want := fmt.Sprintf("%d@%d", told[path], e.Entry.Revision); string(e.Entry.Value) != want {
				t.Fatalf("the watch says %s is %q, want %q", path, e.Entry.Value, want)
			}
		}
	}
	for n := range last {
		if got := told[fmt.Sprintf("a/%d", n)]; got != last[n] {
			t.Errorf("the watch had %d writes of writer %d, which made %d", got, n, last[n])
		}
	}
	t.Logf("%d writes", acknowledged.Load())
}
