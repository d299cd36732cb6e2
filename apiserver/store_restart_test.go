package apiserver_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
	"github.com/setpoint-dev/setpoint/store/memory"
)

// onStore has a site serve a store.
func onStore(s store.Store) func(*apiserver.Options) {
	return func(o *apiserver.Options) { o.Store = s }
}

func openEmbedded(t *testing.T, dir string) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// end stops a site and closes its store.
func (s *site) end() {
	s.t.Helper()
	s.server.Stop()
	synctest.Wait()
	if err := s.store.Close(); err != nil {
		s.t.Error(err)
	}
}

// TestB001_ResumeAfterARestart watches from revisions before, at and after that of an object, from the
// list that was empty on: a server that has kept its history through a restart shows what came after
// each, and one that has none says so, unless nothing came after.
func TestB001_ResumeAfterARestart(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		first   func(t *testing.T) store.Store
		again   func(t *testing.T, old store.Store) store.Store
		expired bool
	}{
		"history is kept": {
			func(t *testing.T) store.Store { return openEmbedded(t, dir) },
			func(t *testing.T, _ store.Store) store.Store { return openEmbedded(t, dir) },
			false,
		},
		"history begins anew": {
			func(*testing.T) store.Store { return memory.New(memory.Options{}) },
			func(_ *testing.T, old store.Store) store.Store { return old.(*memory.Store).Fork() },
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := test.first(t)
				s := newSite(t, onStore(first))
				empty := s.must("GET", cm+"?labelSelector=set=t", "")
				if names := empty.names(); names != "" {
					t.Fatalf("the list has %s", names)
				}
				a := s.configMap("a", "set=t").revision()
				s.end()

				s = newSite(t, onStore(test.again(t, first)))
				defer s.end()
				at, _ := strconv.Atoi(a)
				for from, missed := range map[string]bool{empty.revision(): true, strconv.Itoa(at - 1): true, a: false} {
					w := s.watch(cm + "?watch=1&labelSelector=set=t&resourceVersion=" + from)
					switch {
					case !missed:
						w.expect()
					case test.expired:
						w.expect("ERROR 410 Expired", "end")
					default:
						w.expect("ADDED a@" + a)
					}
				}
			})
		})
	}
}

// TestB008_QuietKindResumesAfterARestart has a client of a kind that nobody writes, while another kind is
// written for longer than history is kept. By its last bookmark it goes on where it was, without a list.
func TestB008_QuietKindResumesAfterARestart(t *testing.T) {
	const secrets = "/api/v1/namespaces/default/secrets"
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, onStore(openEmbedded(t, dir)))
		begin := s.must("GET", secrets, "").revision()
		quiet := s.watch(secrets + "?watch=1&allowWatchBookmarks=true&resourceVersion=" + begin)
		s.configMap("busy", "")
		for n := range 120 {
			pass(5 * time.Second)
			s.must("PATCH", cm+"/busy", fmt.Sprintf(`{"data":{"k":"%d"}}`, n), "Content-Type", "application/merge-patch+json")
		}
		pass(2 * time.Minute)
		told := quiet.seen()
		last := fmt.Sprint(s.store.Revision())
		if n := len(told); n == 0 || told[n-1] != "BOOKMARK @"+last {
			t.Fatalf("the watch was told %v, want the bookmark of %s in the end", told, last)
		}
		s.watch(secrets+"?watch=1&resourceVersion="+begin).expect("ERROR 410 Expired", "end")
		s.end()

		s = newSite(t, onStore(openEmbedded(t, dir)))
		defer s.end()
		quiet = s.watch(secrets + "?watch=1&allowWatchBookmarks=true&resourceVersion=" + last)
		quiet.expect()
		made := s.must("POST", secrets, `{"metadata":{"name":"s"}}`).revision()
		quiet.expect("ADDED s@" + made)
	})
}

// least makes every wait the shortest that it may be.
type least struct{}

func (least) Uint64() uint64 { return 1 << 20 } // of zero alone rand.Int64N would want another

// TestB010_BookmarksNeverOvertake has bookmarks come due at the moments at which four write, to watches
// that see what two of them do. When one says a revision, everything up to it was shown, also to those
// that do not read until the end.
func TestB010_BookmarksNeverOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watches, writers, writes = 10, 4, 430
		s := newSite(t, func(o *apiserver.Options) { o.Rand = least{} }) // bookmarks come after 50 s
		path := fmt.Sprint(cm, "?watch=1&allowWatchBookmarks=true&labelSelector=seen&resourceVersion=", s.store.Revision())
		written := make(chan struct{})
		var reading, writing sync.WaitGroup
		for i := range watches {
			stream, err := s.open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			reading.Go(func() {
				if i%2 == 1 {
					<-written
				}
				total, bookmarks := 0, 0
				readInOrder(t, stream, func(bookmark bool) {
					if total++; bookmark {
						bookmarks++
					}
				})
				if want := writers / 2 * (writes + 1); total-bookmarks != want || bookmarks == 0 {
					t.Errorf("watch %d was shown %d events and %d bookmarks, want %d events", i, total-bookmarks, bookmarks, want)
				}
			})
		}
		for w := range writers {
			s.configMap(fmt.Sprint("w", w), []string{"", "seen=yes"}[w%2])
			writing.Go(func() {
				if w%2 == 0 {
					pass(125 * time.Millisecond) // what is not seen comes last before a bookmark is due
				}
				for n := range writes {
					pass(250 * time.Millisecond)
					s.must("PATCH", fmt.Sprint(cm, "/w", w), fmt.Sprintf(`{"data":{"k":"%d"}}`, n), "Content-Type", "application/merge-patch+json")
				}
			})
		}
		writing.Wait()
		close(written)
		synctest.Wait()
		s.end()
		reading.Wait()
	})
}

// readInOrder reads a stream to its end. An event has to be newer than all before it; a bookmark may say
// once more where the watch is.
func readInOrder(t *testing.T, stream io.ReadCloser, each func(bookmark bool)) {
	defer stream.Close()
	last := 0
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		var ev watchEvent
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			t.Error(err)
			return
		}
		at, _ := strconv.Atoi(ev.Object.Metadata.ResourceVersion)
		if at < last || at == last && ev.Type != "BOOKMARK" {
			t.Errorf("%s at %d comes after %d", ev.Type, at, last)
		}
		last = at
		each(ev.Type == "BOOKMARK")
	}
}

// What the store takes is told, as far as its engine knows.
func TestMetricsTellWhatTheStoreTakes(t *testing.T) {
	for name, want := range map[string]map[string]bool{
		"memory":   {"history_bytes": true, "history_seconds": true, "disk_bytes": false},
		"embedded": {"history_bytes": true, "history_seconds": true, "disk_bytes": true},
	} {
		a := newAPI(t, func(o *apiserver.Options) {
			if name == "embedded" {
				o.Store = openEmbedded(t, t.TempDir())
			}
		})
		a.want(201, "POST "+cms, "", configMap("a", "1"))
		a.want(200, "PATCH "+cms+"/a", merge, `{"data":{"k":"2"}}`)
		text := a.want(200, "GET /metrics", "", "").text
		for metric, there := range want {
			if got := strings.Contains(text, "\nsetpoint_store_"+metric+" "); got != there {
				t.Errorf("%s: there is %s: %v, want %v", name, metric, got, there)
			}
		}
		if strings.Contains(text, "\nsetpoint_store_history_bytes 0\n") {
			t.Errorf("%s: two writes take nothing", name)
		}
	}
}
