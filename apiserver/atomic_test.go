package apiserver_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// operations is the body of an atomic request: lines of a verb and an object.
func operations(lines ...string) string {
	var all []string
	for _, line := range lines {
		verb, object, _ := strings.Cut(line, " ")
		all = append(all, fmt.Sprintf(`{"verb":%q,"object":%s}`, verb, object))
	}
	return `{"operations":[` + strings.Join(all, ",") + `]}`
}

const postAtomic = "POST " + apiserver.AtomicPath

func configMap(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q},"data":{"k":%q}}`, name, value)
}

func TestAtomic_AllInOneRevision(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+cms, "", configMap("changed", "1"))
	a.want(201, "POST "+cms, "", configMap("deleted", "1"))
	same := a.want(201, "POST "+cms, "", configMap("same", "1"))
	before := a.store.Revision()
	w, err := a.store.Watch("configmaps", "", before)
	if err != nil {
		t.Fatal(err)
	}
	got := a.want(200, postAtomic+"?fieldManager=f&force=true", "", operations(
		`create {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
		`create {"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","generateName":"in-"}}`,
		`apply {"apiVersion":"v1","kind":"Service","metadata":{"namespace":"shop","name":"s"},"spec":{"ports":[{"port":80}]}}`,
		`apply `+configMap("applied", "1"),
		`update `+configMap("changed", "2"),
		`update `+configMap("same", "1"),
		`delete `+configMap("deleted", ""),
		`update `+configMap("applied", "2"),
	))
	at := got.rev()
	if want := fmt.Sprint(before + 1); at != want || fmt.Sprint(a.store.Revision()) != want {
		t.Errorf("the answer is of revision %s, the store at %d, want %s", at, a.store.Revision(), want)
	}
	items := tree.Maps(got.body, "items")
	var names []string
	for i, item := range items {
		names = append(names, tree.Str(item, "kind")+" "+tree.Str(item, "metadata", "name"))
		want := at
		if i == 5 {
			want = same.rev()
		}
		if rev := tree.Str(item, "metadata", "resourceVersion"); rev != want {
			t.Errorf("%s is of revision %s, want %s", names[i], rev, want)
		}
	}
	names[1] = names[1][:len("ConfigMap in-")]
	if got, want := strings.Join(names, ", "), "Namespace shop, ConfigMap in-, Service s, ConfigMap applied, ConfigMap changed, "+
		"ConfigMap same, ConfigMap deleted, ConfigMap applied"; got != want {
		t.Errorf("items are %s, want %s", got, want)
	}
	if v := a.want(200, "GET "+cms+"/applied", "", "").str("data", "k"); v != "2" {
		t.Errorf("what was written twice is %q", v)
	}
	a.want(404, "GET "+cms+"/deleted", "", "")
	events, err := w.TryNext()
	if err != nil || len(events) != 4 {
		t.Errorf("%d events of configmaps, %v; want 4", len(events), err)
	}
	for _, e := range events {
		if fmt.Sprint(e.Entry.Revision) != at {
			t.Errorf("an event of %s at %d", e.Entry.Key, e.Entry.Revision)
		}
	}
}

func TestAtomic_NothingIfOneFails(t *testing.T) {
	a := newAPI(t)
	there := a.want(201, "POST "+cms, "", configMap("there", "1"))
	before := a.store.Revision()
	service := func(name string) string {
		return `create {"apiVersion":"v1","kind":"Service","metadata":{"namespace":"default","name":"` + name +
			`"},"spec":{"clusterIP":"10.0.0.77","ports":[{"port":80}]}}`
	}
	for _, test := range []struct {
		operation, message string
		code               int
	}{
		{"create " + configMap("there", "2"), `(create ConfigMap default/there): configmaps \"there\" already exists`, 409},
		{"update " + configMap("none", "2"), `(update ConfigMap default/none): configmaps \"none\" not found`, 404},
		{"delete " + configMap("none", "2"), `not found`, 404},
		{"delete " + strings.Replace(configMap("there", "2"), `"name"`, `"uid":"other","name"`, 1), "UID in the precondition", 409},
		{"create " + configMap("B_D", "2"), "metadata.name", 422},
		{`create {"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"none","name":"x"}}`, `namespaces \"none\" not found`, 404},
		{`create {"apiVersion":"v1","kind":"Thing","metadata":{"name":"x"}}`, `there is no kind \"Thing\"`, 400},
		{"scale " + configMap("there", "2"), `verb: found \"scale\", want create, update, apply or delete`, 400},
	} {
		got := a.do(postAtomic, "", operations(service("s"), "update "+configMap("there", "new"), test.operation))
		if got.code != test.code || !strings.Contains(got.text, test.message) || !strings.Contains(got.text, "operations[2] (") {
			t.Errorf("%s: %d %s, want %d and %q", test.operation, got.code, got.text, test.code, test.message)
		}
	}
	for _, body := range []string{`{}`, `{"operations":[]}`, `{"operations":[null]}`, `[`, `{"operations":[{"verb":"create"}]}`} {
		if got := a.do(postAtomic, "", body); got.code != 400 {
			t.Errorf("%s: %d %s", body, got.code, got.text)
		}
	}
	if now := a.store.Revision(); now != before {
		t.Errorf("the store went from %d to %d", before, now)
	}
	if rev := a.want(200, "GET "+cms+"/there", "", "").rev(); rev != there.rev() {
		t.Errorf("an object went from %s to %s", there.rev(), rev)
	}
	a.want(200, postAtomic+"?dryRun=All", "", operations(service("s"), "update "+configMap("there", "new")))
	// The address that all of them had reserved is free.
	a.want(200, postAtomic, "", operations(service("s")))
	a.want(200, postAtomic, "", operations(`delete {"apiVersion":"v1","kind":"Service","metadata":{"namespace":"default","name":"s"}}`, "update "+configMap("there", "new")))
	a.want(200, postAtomic, "", operations(service("again")))
}

func TestAtomic_BeginsAgainIfSomethingGetsInBetween(t *testing.T) {
	var s *interrupted
	a := newAPI(t, func(o *apiserver.Options) {
		s = &interrupted{Store: o.Store}
		o.Store = s
	})
	a.want(201, "POST "+cms, "", configMap("a", "1"))
	s.before = func() { a.want(200, "PATCH "+cms+"/a", merge, `{"data":{"other":"2"}}`) }
	a.want(200, postAtomic+"?fieldManager=f&force=true", "", operations(
		"create "+configMap("b", "1"), "apply "+configMap("a", "3")))
	got := a.want(200, "GET "+cms+"/a", "", "")
	if got.str("data", "k") != "3" || got.str("data", "other") != "2" {
		t.Errorf("a is %s", got.text)
	}
}

func TestAtomic_IsFenced(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+leases, "", leaseOf("me", 3))
	a.withFence("default/l;epoch=3;holder=me").want(200, postAtomic, "", operations("create "+configMap("a", "1")))
	a.withFence("default/l;epoch=2;holder=me").want(409, postAtomic, "", operations("create "+configMap("b", "1")))
}

// The lease is lost after all operations were looked at, and before the commit.
func TestAtomic_IsFencedInTheStepThatCommits(t *testing.T) {
	var s *interrupted
	a := newAPI(t, func(o *apiserver.Options) {
		s = &interrupted{Store: o.Store}
		o.Store = s
	})
	a.want(201, "POST "+leases, "", leaseOf("me", 3))
	s.before = func() { a.want(200, "PATCH "+leases+"/l", merge, leaseOf("other", 4)) }
	a.withFence("default/l;epoch=3;holder=me").want(409, postAtomic, "", operations(
		"create "+configMap("a", "1"), "create "+configMap("b", "1")))
	a.want(404, "GET "+cms+"/a", "", "")
}

// Two counters are moved together by several writers; nobody ever sees them apart.
func TestAtomic_IsSeenWhole(t *testing.T) {
	a := newAPI(t)
	a.want(200, postAtomic, "", operations("create "+configMap("left", "0"), "create "+configMap("right", "0")))
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 25 {
				value := fmt.Sprint(w, "-", i)
				if got := a.do(postAtomic, "", operations("update "+configMap("left", value), "update "+configMap("right", value))); got.code != 200 {
					t.Errorf("%d %s", got.code, got.text)
				}
			}
		})
	}
	for at := store.Revision(0); ; {
		snap, err := a.store.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		left := snap.Get(store.Key{Resource: "configmaps", Path: "default/left"})
		right := snap.Get(store.Key{Resource: "configmaps", Path: "default/right"})
		if left.Revision != right.Revision {
			t.Fatalf("left is of %d, right of %d", left.Revision, right.Revision)
		}
		if at++; at > 1000 {
			break
		}
	}
	writers.Wait()
}
