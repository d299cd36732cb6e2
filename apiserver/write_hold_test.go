package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
	"github.com/setpoint-dev/setpoint/store/memory"
)

// newAPIs makes servers that share a store, with addresses for more than a thousand services.
func newAPIs(t *testing.T, count int, options ...func(*apiserver.Options)) (all []*api, s store.Store) {
	s = memory.New(memory.Options{})
	t.Cleanup(func() { s.Close() })
	return newAPIsOn(t, count, func() store.Store { return s }, options...), s
}

// newAPIsOn makes servers, each on a store that is opened for it.
func newAPIsOn(
	t *testing.T, count int, open func() store.Store, options ...func(*apiserver.Options),
) (all []*api) {
	for range count {
		shared := func(o *apiserver.Options) { o.Store, o.ServiceCIDR = open(), netip.MustParsePrefix("10.0.0.0/21") }
		all = append(all, newAPI(t, append([]func(*apiserver.Options){shared}, options...)...))
	}
	return all
}

// onEngines runs a test on each engine of the store. What it opens is one store, or one of several on
// one etcd.
func onEngines(t *testing.T, test func(t *testing.T, open func() store.Store)) {
	for name, engine := range map[string]func(t *testing.T) func() store.Store{
		"memory": func(*testing.T) func() store.Store {
			s := memory.New(memory.Options{})
			return func() store.Store { return s }
		},
		"embedded": func(t *testing.T) func() store.Store {
			s := openEmbedded(t, t.TempDir())
			return func() store.Store { return s }
		},
		"etcd": onEtcd,
	} {
		t.Run(name, func(t *testing.T) {
			open := engine(t)
			test(t, func() store.Store {
				s := open()
				t.Cleanup(func() { s.Close() })
				return s
			})
		})
	}
}

// onEtcd starts an etcd, and opens stores on it.
func onEtcd(t *testing.T) func() store.Store {
	address := etcdtest.Start(t)
	return func() store.Store {
		s, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{address}, Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

const nodePorts = `"spec":{"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81}]}}`

// holders returns who has each address and port, by what services say, and how many are reserved.
func holders(t *testing.T, a *api, s store.Store) (by map[string]string, reserved int) {
	t.Helper()
	by = map[string]string{}
	for _, item := range tree.Maps(a.want(200, "GET /api/v1/services", "", "").body, "items") {
		name := tree.Str(item, "metadata", "name")
		held := []string{tree.Str(item, "spec", "clusterIP")}
		for _, p := range tree.Maps(item, "spec", "ports") {
			if port := p["nodePort"]; port != nil {
				held = append(held, fmt.Sprint(port))
			}
		}
		for _, h := range held {
			if other := by[h]; other != "" {
				t.Errorf("%s and %s both have %s", name, other, h)
			}
			by[h] = name
		}
	}
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return by, snap.Count("@reserved", store.ListOptions{})
}

// expect is want for use beside the test's own goroutine.
func (a *api) expect(code int, line, body string) {
	if got := a.do(line, "", body); got.code != code {
		a.t.Errorf("%s: got %d, want %d: %s", line, got.code, code, got.text)
	}
}

// together has clients of each server make requests at the same time.
func together(apis []*api, requests, clients int, request func(a *api, n int)) {
	var group sync.WaitGroup
	for i, a := range apis {
		for c := range clients {
			group.Go(func() {
				for n := c; n < requests; n += clients {
					request(a, i*requests+n)
				}
			})
		}
	}
	group.Wait()
}

func TestB160_ServersOnOneStoreGiveNothingOutTwice(t *testing.T) {
	onEngines(t, testNothingIsGivenOutTwice)
}

func testNothingIsGivenOutTwice(t *testing.T, open func() store.Store) {
	const each = 200
	apis := newAPIsOn(t, 2, open)
	s := open()
	together(apis, each, 8, func(a *api, n int) {
		a.expect(201, "POST "+svcs, fmt.Sprintf(`{"metadata":{"name":"s%d"},%s`, n, nodePorts))
	})
	by, reserved := holders(t, apis[0], s)
	if want := 1 + 3*2*each; len(by) != want || reserved != want {
		t.Errorf("%d addresses and ports are held and %d reserved, want %d", len(by), reserved, want)
	}
	// A server that starts now knows it all.
	third := newAPI(t, func(o *apiserver.Options) { o.Store, o.ServiceCIDR = s, netip.MustParsePrefix("10.0.0.0/21") })
	for h := range by {
		if ip, err := netip.ParseAddr(h); err == nil {
			third.want(422, "POST "+svcs, "", `{"metadata":{"name":"again"},"spec":{"clusterIP":"`+ip.String()+`","ports":[{"port":80}]}}`)
		}
	}
	together(apis, each, 8, func(a *api, n int) { a.expect(200, fmt.Sprintf("DELETE %s/s%d", svcs, n), "") })
	if by, reserved = holders(t, third, s); len(by) != 1 || reserved != 1 {
		t.Errorf("after all was deleted, %v are held and %d reserved, want that of default/kubernetes", by, reserved)
	}
}

// Everybody wants the same address and the same port, on each server; one gets them.
func TestB160_OneOfManyGetsWhatAllAskFor(t *testing.T) { onEngines(t, testOneOfManyGetsIt) }

func testOneOfManyGetsIt(t *testing.T, open func() store.Store) {
	apis := newAPIsOn(t, 2, open)
	s := open()
	var mu sync.Mutex
	codes := map[int]int{}
	together(apis, 40, 4, func(a *api, n int) {
		got := a.do("POST "+svcs, "", fmt.Sprintf(
			`{"metadata":{"name":"s%d"},"spec":{"type":"NodePort","clusterIP":"10.0.0.99","ports":[{"port":80,"nodePort":30007}]}}`, n))
		mu.Lock()
		defer mu.Unlock()
		codes[got.code]++
	})
	if codes[201] != 1 || codes[422] != 79 {
		t.Errorf("answers by code: %v, want one 201 and otherwise 422", codes)
	}
	if by, reserved := holders(t, apis[0], s); len(by) != 3 || reserved != 3 {
		t.Errorf("%v are held and %d reserved, want three", by, reserved)
	}
}

// refusing fails every commit while it is on.
type refusing struct {
	store.Store
	on bool
}

func (r *refusing) Commit(ctx context.Context, ops ...store.Op) (store.Result, error) {
	if r.on {
		return store.Result{}, errors.New("refused")
	}
	return r.Store.Commit(ctx, ops...)
}

func TestB160_FailedWritesLeaveNothing(t *testing.T) { onEngines(t, testFailedWritesLeaveNothing) }

func testFailedWritesLeaveNothing(t *testing.T, open func() store.Store) {
	s := open()
	faulty := &refusing{Store: s}
	a := newAPI(t, func(o *apiserver.Options) { o.Store = faulty })
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"there"},`+nodePorts)
	_, before := holders(t, a, s)
	faulty.on = true
	for range 300 {
		a.want(500, "POST "+svcs, "", `{"metadata":{"name":"new"},`+nodePorts)
		a.want(500, "PATCH "+svcs+"/there", merge, `{"spec":{"type":"ClusterIP"}}`)
		a.want(500, "DELETE "+svcs+"/there", "", "")
	}
	if _, reserved := holders(t, a, s); reserved != before {
		t.Errorf("%d are reserved, and were %d", reserved, before)
	}
	faulty.on = false
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"new"},`+nodePorts)
	a.want(200, "PATCH "+svcs+"/there", merge, `{"spec":{"type":"ExternalName","externalName":"x.example"}}`)
	if by, reserved := holders(t, a, s); reserved != 4 || by[""] != "there" {
		t.Errorf("%d are reserved, want four: %v", reserved, by)
	}
}

// counting does something at a commit, by its number.
type counting struct {
	store.Store
	count int
	at    func(n int) error
}

func (c *counting) Commit(ctx context.Context, ops ...store.Op) (store.Result, error) {
	if c.at != nil {
		c.count++
		if err := c.at(c.count); err != nil {
			return store.Result{}, err
		}
	}
	return c.Store.Commit(ctx, ops...)
}

// Two servers each make a definition of the same short name, and each is about to give it out when
// the other does.
func TestServersOnOneStoreGiveANameToOneDefinition(t *testing.T) {
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	create := func(a *api, plural string) {
		a.expect(201, "POST "+path, fmt.Sprintf(`{"metadata":{"name":"%s.x.io"},"spec":{"group":"x.io",
			"scope":"Cluster","names":{"plural":"%[1]s","kind":"K%[1]s","shortNames":["th"]},"versions":[{"name":"v1",
			"served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, plural))
	}
	var stores []*counting
	apis, s := newAPIs(t, 2, func(o *apiserver.Options) {
		stores = append(stores, &counting{Store: o.Store})
		o.Store = stores[len(stores)-1]
	})
	stores[0].at = func(n int) error {
		if n == 2 { // the definition is there, and is to be given its names
			create(apis[1], "a")
		}
		return nil
	}
	stores[1].at = func(n int) error {
		if n == 3 { // a has its names, and b is to be told
			return errors.New("refused")
		}
		return nil
	}
	create(apis[0], "b")
	if stores[0].count < 2 || stores[1].count < 3 {
		t.Fatalf("%d and %d commits were made, want 2 and 3", stores[0].count, stores[1].count)
	}
	third := newAPI(t, func(o *apiserver.Options) { o.Store = s })
	for name, want := range map[string]string{"a.x.io": "[th]", "b.x.io": "[]"} {
		def := third.want(200, "GET "+path+"/"+name, "", "")
		if got := fmt.Sprint(tree.Strings(def.body, "status", "acceptedNames", "shortNames")); got != want {
			t.Errorf("%s has the short names %s, want %s", name, got, want)
		}
	}
}

// A server that starts on what one has stored that reserved nothing, and that left reservations of
// what is gone, finds both out.
func TestReservationsAreMendedAtTheStart(t *testing.T) {
	apis, s := newAPIs(t, 1)
	for _, name := range []string{"a", "b", "gone"} {
		apis[0].want(201, "POST "+svcs, "", `{"metadata":{"name":"`+name+`"},`+nodePorts)
	}
	before, all := holders(t, apis[0], s)
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reserved, _ := snap.List("@reserved", store.ListOptions{})
	ops := []store.Op{{Key: store.Key{Resource: "services", Path: "default/gone"}, Type: store.Delete, Expect: store.Any, RevisionAt: -1}}
	for _, e := range reserved {
		if string(e.Value) != "services/default/gone" {
			ops = append(ops, store.Op{Key: e.Key, Type: store.Delete, Expect: store.Any, RevisionAt: -1})
		}
	}
	if _, err := s.Commit(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	next := newAPI(t, func(o *apiserver.Options) { o.Store, o.ServiceCIDR = s, netip.MustParsePrefix("10.0.0.0/21") })
	by, now := holders(t, next, s)
	if now != all-3 || len(by) != now {
		t.Errorf("%d are reserved and %d held, want %d", now, len(by), all-3)
	}
	for h, name := range before {
		ip, err := netip.ParseAddr(h)
		if err != nil {
			continue
		}
		want := 422
		if name == "gone" {
			want = 201
		}
		next.want(want, "POST "+svcs, "", `{"metadata":{"generateName":"new-"},"spec":{"clusterIP":"`+ip.String()+`","ports":[{"port":80}]}}`)
	}
}

// Of two objects that held the same before there were reservations, the end of one does not give away
// what the other has.
func TestTheSecondHolderGivesNothingBack(t *testing.T) {
	apis, s := newAPIs(t, 1)
	a := apis[0]
	first := a.want(201, "POST "+svcs, "", `{"metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.77","ports":[{"port":80}]}}`)
	double := strings.Replace(first.text, `"name":"a"`, `"name":"b"`, 1)
	op := store.Op{Key: store.Key{Resource: "services", Path: "default/b"}, Type: store.Put, Value: []byte(double), RevisionAt: -1}
	if _, err := s.Commit(t.Context(), op); err != nil {
		t.Fatal(err)
	}
	if err := a.server.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.want(200, "DELETE "+svcs+"/b", "", "")
	a.want(422, "POST "+svcs, "", `{"metadata":{"name":"c"},"spec":{"clusterIP":"10.0.0.77","ports":[{"port":80}]}}`)
	a.want(200, "DELETE "+svcs+"/a", "", "")
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"c"},"spec":{"clusterIP":"10.0.0.77","ports":[{"port":80}]}}`)
}
