package etcd_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const members = 3

// cluster is three members, each a process, that reach each other through proxies; so do the users
// of the cluster, each through proxies of its own. Parties are members, by number, and users after
// them.
type cluster struct {
	testing.TB
	confs [members]memberConf
	peers [members]*proxy
	users int
	lines [members + 2][members + 2]line // from one party to another
	ids   map[string]int                 // of members

	mu      sync.Mutex
	running [members]*process
}

var serverFrom = regexp.MustCompile(`X-Server-From: ([0-9a-f]+)`)

func newCluster(t testing.TB) *cluster {
	c := &cluster{TB: t, ids: map[string]int{}}
	for i := range members {
		c.running[i] = &process{}
	}
	var initial []string
	for i := range members {
		c.peers[i] = startProxy(t, &proxy{
			target:   func() string { return c.process(i).peers },
			callerOf: c.memberOf,
			lines:    func(caller int) (there, back *line) { return c.between(caller, i) },
		})
		initial = append(initial, fmt.Sprintf("m%d=http://%s", i, c.peers[i].address()))
	}
	t.Cleanup(c.heal)
	for i := range members {
		c.confs[i] = memberConf{
			Name: fmt.Sprint("m", i), Dir: t.TempDir(), Initial: strings.Join(initial, ","),
			Peers: c.peers[i].address(), Clients: "127.0.0.1:1", // clients do not ask for it
		}
	}
	for i := range members {
		c.start(i)
	}
	t.Cleanup(func() {
		for i := range members {
			c.process(i).kill()
		}
	})
	c.identify()
	return c
}

// identify finds out how members call themselves. Until then nothing can be held back between them.
func (c *cluster) identify() {
	for i := range members {
		client := c.client(c.process(i).clients)
		answer, err := client.Status(c.Context(), client.Endpoints()[0])
		if err != nil {
			c.Fatal(err)
		}
		c.mu.Lock()
		c.ids[fmt.Sprintf("%x", answer.Header.MemberId)] = i
		c.mu.Unlock()
	}
	for i := range members {
		c.peers[i].cut(func(int) bool { return true }) // those that have introduced themselves already
	}
}

func (c *cluster) client(endpoints ...string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { client.Close() })
	return client
}

func (c *cluster) memberOf(said []byte) int {
	found := serverFrom.FindSubmatch(said)
	if found == nil {
		return -1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.ids[string(found[1])]; ok {
		return i
	}
	return -1
}

// unknown is the line of those who have not said who they are.
var unknown line

func (c *cluster) between(from, to int) (there, back *line) {
	if from < 0 {
		return &unknown, &unknown
	}
	return &c.lines[from][to], &c.lines[to][from]
}

func (c *cluster) process(i int) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[i]
}

func (c *cluster) start(i int) {
	p := startMember(c, c.confs[i])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[i] = p
}

// user returns addresses of all members for one user more, each through a proxy, beginning with one.
func (c *cluster) user(first int) (endpoints []string) {
	user := members + c.users
	c.users++
	for n := range members {
		i := (first + n) % members
		p := startProxy(c, &proxy{
			target:   func() string { return c.process(i).clients },
			callerOf: func([]byte) int { return user },
			lines:    func(int) (there, back *line) { return c.between(user, i) },
		})
		endpoints = append(endpoints, p.address())
	}
	c.Cleanup(c.heal)
	return endpoints
}

func (c *cluster) heal() {
	for from := range c.lines {
		for to := range c.lines {
			c.lines[from][to].pass()
		}
	}
}

// leader waits until a member says that it leads, and the others that it does.
func (c *cluster) leader(ctx context.Context) int {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for ; ctx.Err() == nil; <-again.C {
		votes := map[uint64]int{}
		for i := range members {
			call, cancel := context.WithTimeout(ctx, time.Second)
			client, err := clientv3.New(clientv3.Config{
				Endpoints: []string{c.process(i).clients}, Logger: zap.NewNop(),
			})
			if err == nil {
				if answer, err := client.Status(call, client.Endpoints()[0]); err == nil {
					votes[answer.Leader]++
				}
				client.Close()
			}
			cancel()
		}
		for id, n := range votes {
			if i, ok := c.ids[fmt.Sprintf("%x", id)]; ok && n > members/2 {
				return i
			}
		}
	}
	return 0
}
