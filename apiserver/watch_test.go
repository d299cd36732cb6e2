package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/store"
)

// watching is an open watch, whose frames are read as they come.
type watching struct {
	t      testing.TB
	resp   *http.Response
	frames chan string // closed at the end of the stream
	cancel context.CancelFunc
}

func (s *site) watch(path string, header ...string) *watching {
	s.t.Helper()
	w, refusal := s.tryWatch(path, header...)
	if w == nil {
		s.t.Fatalf("watch: %d %s", refusal.code, refusal.text)
	}
	return w
}

// tryWatch is watch for what may be refused.
func (s *site) tryWatch(path string, header ...string) (*watching, *reply) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://setpoint"+path, nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer cancel()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			s.t.Fatal(err)
		}
		return nil, &reply{resp.StatusCode, resp.Header, string(text)}
	}
	w := &watching{t: s.t, resp: resp, frames: make(chan string, 1000), cancel: cancel}
	go func() {
		defer close(w.frames)
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			w.frames <- lines.Text()
		}
	}()
	return w, nil
}

// seen returns the frames that have come when nothing moves any more, as "TYPE name@revision".
func (w *watching) seen() []string {
	w.t.Helper()
	synctest.Wait()
	var all []string
	for {
		select {
		case frame, ok := <-w.frames:
			if !ok {
				return append(all, "end")
			}
			all = append(all, w.summary(frame))
		default:
			return all
		}
	}
}

func (w *watching) summary(frame string) string {
	w.t.Helper()
	var ev struct {
		Type   string
		Object object
	}
	if err := json.Unmarshal([]byte(frame), &ev); err != nil {
		w.t.Fatalf("%v in %q", err, frame)
	}
	if ev.Type == "ERROR" {
		return fmt.Sprintf("ERROR %v %s", ev.Object["code"], ev.Object.str("reason"))
	}
	text := ev.Type + " " + ev.Object.str("metadata.name") + "@" + ev.Object.revision()
	if annotations, ok := ev.Object.at("metadata.annotations").(map[string]any); ok {
		text += fmt.Sprint(" ", annotations["k8s.io/initial-events-end"])
	}
	return text
}

func (w *watching) expect(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.seen()); diff != "" {
		w.t.Error(diff)
	}
}

// expectRuns is expect for what may be said several times in a row, such as that nothing has changed.
func (w *watching) expectRuns(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, slices.Compact(w.seen())); diff != "" {
		w.t.Error(diff)
	}
}

// pass lets fake time go by.
func pass(d time.Duration) { <-time.After(d) }

// inBubble runs a test with fake time; the watch goroutines end with it.
func inBubble(t *testing.T, f func(t *testing.T, s *site)) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		f(t, s)
		s.server.Stop()
		synctest.Wait()
	})
}

func TestWatchFollows(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		before := s.configMap("a", "").revision()
		w := s.watch(cm + "?watch=1&resourceVersion=" + before)
		w.expect()
		b := s.configMap("b", "").revision()
		w.expect("ADDED b@" + b)
		a := s.must("PATCH", cm+"/a", `{"data":{"k":"w"}}`, "Content-Type", "application/merge-patch+json").revision()
		w.expect("MODIFIED a@" + a)
		s.must("PATCH", cm+"/a", `{"data":{"k":"w"}}`, "Content-Type", "application/merge-patch+json")
		w.expect() // nothing was changed
		s.must("POST", "/api/v1/namespaces/kube-system/configmaps", `{"metadata":{"name":"elsewhere"}}`)
		w.expect()
		s.must("DELETE", cm+"/a", "")
		w.expect("DELETED a@" + strconv.Itoa(int(s.store.Revision())))

		late := s.watch(cm + "?watch=1&resourceVersion=" + b)
		late.expect("MODIFIED a@"+a, "DELETED a@"+strconv.Itoa(int(s.store.Revision())))
	})
}

// Leaving a selection is a deletion, entering it is an addition, and each has the revision of the
// change that did it (B003, B004).
func TestB003_SelectorTransitions(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		paint := func(color string) string {
			return s.must("PATCH", cm+"/a", `{"metadata":{"labels":{"color":"`+color+`"}}}`,
				"Content-Type", "application/merge-patch+json").revision()
		}
		from := s.configMap("other", "").revision()
		red := s.watch(cm + "?watch=1&labelSelector=color=red&resourceVersion=" + from)
		a := s.configMap("a", "color=red").revision()
		blue := paint("blue")
		green := paint("green")
		again := paint("red")
		s.must("DELETE", cm+"/a", "")
		gone := strconv.Itoa(int(s.store.Revision()))
		red.expect("ADDED a@"+a, "DELETED a@"+blue, "ADDED a@"+again, "DELETED a@"+gone)

		notRed := s.watch(cm + "?watch=1&labelSelector=color!=red&resourceVersion=" + a)
		notRed.expect("ADDED a@"+blue, "MODIFIED a@"+green, "DELETED a@"+again)
	})
}

// A deleted object is shown as it last was, with the revision of its deletion, which is newer than all
// that was written before (B003): at once, and when its last finalizer goes.
func TestB003_DeletedCarriesLastState(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.must("POST", cm, `{"metadata":{"name":"a","finalizers":["example.com/f"]},"data":{"k":"last"}}`)
		s.must("POST", cm, `{"metadata":{"name":"b"},"data":{"k":"last"}}`)
		s.must("DELETE", cm+"/a", "")
		newest := s.configMap("c", "").revision()
		w := s.watch(cm + "?watch=1&resourceVersion=" + newest)
		s.must("PATCH", cm+"/a", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json")
		s.must("DELETE", cm+"/b", "")
		synctest.Wait()
		at, _ := strconv.Atoi(newest)
		for i, name := range []string{"a", "b"} {
			frame := <-w.frames
			want := fmt.Sprintf(`"resourceVersion":"%d"`, at+1+i)
			if !strings.HasPrefix(frame, `{"type":"DELETED"`) || !strings.Contains(frame, want) ||
				!strings.Contains(frame, `"name":"`+name+`"`) || !strings.Contains(frame, `"k":"last"`) {
				t.Errorf("%s: got %s, want %s", name, frame, want)
			}
		}
	})
}

func TestWatchBeginsWithWhatIsThere(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		a := s.configMap("a", "").revision()
		b := s.configMap("b", "").revision()
		now := strconv.Itoa(int(s.store.Revision()))
		for query, want := range map[string][]string{
			"":                   {"ADDED a@" + a, "ADDED b@" + b},
			"&resourceVersion=0": {"ADDED a@" + a, "ADDED b@" + b},
			"&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan": {
				"ADDED a@" + a, "ADDED b@" + b, "BOOKMARK @" + now + " true"},
			"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": {"ADDED a@" + a, "ADDED b@" + b},
			"&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name=b": {
				"ADDED b@" + b, "BOOKMARK @" + now + " true"},
			"&sendInitialEvents=false&resourceVersionMatch=NotOlderThan": nil,
			"&resourceVersion=" + a: {"ADDED b@" + b},
		} {
			w := s.watch(cm + "?watch=1" + query)
			if diff := cmp.Diff(want, w.seen()); diff != "" {
				t.Errorf("%s: %s", query, diff)
			}
		}
		w := s.watch("/api/v1/watch/namespaces/default/configmaps/a")
		w.expect("ADDED a@" + a)
	})
}

func TestWatchListRefusals(t *testing.T) {
	s := newSite(t)
	for query, want := range map[string]string{
		"sendInitialEvents=true&allowWatchBookmarks=true":                            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
		"resourceVersion=1&resourceVersionMatch=Exact":                               "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=x": `resourceVersion: Invalid value: "x"`,
		"timeoutSeconds=soon": `strconv.ParseInt: parsing "soon": invalid syntax`,
	} {
		r := s.get(cm + "?watch=1&" + query)
		if r.code != 422 && r.code != 400 && !strings.HasPrefix(want, "resourceVersion: Invalid") || !strings.Contains(r.object(t).str("message"), want) {
			t.Errorf("%s: %d %s", query, r.code, r.text)
		}
	}
	r := s.get(cm + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999")
	if r.code != http.StatusGatewayTimeout {
		t.Errorf("a watch-list from the future: %d %s", r.code, r.text)
	}
}

// Resuming gives every event after the revision, or says 410; never an open, silent stream.
func TestB001_ResumeOrExpired(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		a := s.configMap("a", "").revision()
		b := s.configMap("b", "").revision()
		c := s.configMap("c", "").revision()
		old := s.watch(cm + "?watch=1&resourceVersion=" + b) // reads nothing yet that it could lose
		old.expect("ADDED c@" + c)
		at, _ := strconv.Atoi(c)
		if err := s.store.Compact(t.Context(), store.Revision(at)); err != nil {
			t.Fatal(err)
		}
		s.watch(cm+"?watch=1&resourceVersion="+a).expect("ERROR 410 Expired", "end")
		s.watch(cm + "?watch=1&resourceVersion=" + c).expect()
		d := s.configMap("d", "").revision()
		old.expect("ADDED d@" + d)
	})
}

func TestWatchFromTheFutureWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		from := int(s.store.Revision()) + 2
		w := s.watch(cm + "?watch=1&resourceVersion=" + strconv.Itoa(from))
		s.configMap("a", "")
		s.configMap("b", "")
		w.expect()
		c := s.configMap("c", "").revision()
		w.expect("ADDED c@" + c)
	})
}

// A quiet watch is told once a minute how far it has come, and never further than what it was sent, also if what
// came was of its kind, and not of its selection (B008, B010).
func TestB010_Bookmarks(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		a := s.configMap("a", "").revision()
		w := s.watch(cm + "?watch=1&allowWatchBookmarks=true&resourceVersion=" + a)
		plain := s.watch(cm + "?watch=1&resourceVersion=" + a)
		pass(71 * time.Second)
		w.expect("BOOKMARK @" + a) // it has not come further than it began, and is alive
		other := s.must("POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"}}`).revision()
		pass(71 * time.Second)
		w.expect("BOOKMARK @" + other)
		pass(5 * time.Minute)
		w.expectRuns("BOOKMARK @" + other)
		red := s.watch(cm + "?watch=1&allowWatchBookmarks=true&labelSelector=color=red&resourceVersion=" + other)
		b := s.configMap("b", "").revision()
		pass(5 * time.Minute)
		w.expectRuns("ADDED b@"+b, "BOOKMARK @"+b)
		plain.expect("ADDED b@" + b)
		red.expectRuns("BOOKMARK @" + b)
	})
}

func TestWatchEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		from := s.configMap("a", "").revision()
		asked := s.watch(cm + "?watch=1&timeoutSeconds=90&resourceVersion=" + from)
		old := s.watch(cm + "?watch=1&allowWatchBookmarks=true&resourceVersion=" + from)
		gone := s.watch(cm + "?watch=1&resourceVersion=" + from)
		pass(89 * time.Second)
		asked.expect()
		pass(2 * time.Second)
		asked.expect("end")
		gone.cancel()
		gone.expect("end")
		pass(28 * time.Minute)
		old.expectRuns("BOOKMARK @" + from)
		last := s.must("POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"}}`).revision()
		pass(31 * time.Minute)
		old.expectRuns("BOOKMARK @"+last, "end")

		stopped := s.watch(cm + "?watch=1&allowWatchBookmarks=true&resourceVersion=" + last)
		stopped.expect()
		s.server.Stop()
		stopped.expect("end")
		if r := s.get("/readyz"); r.code != http.StatusInternalServerError || !strings.Contains(r.text, "[-]shutdown failed") {
			t.Errorf("readyz of a stopping server: %d %s", r.code, r.text)
		}
	})
}

func TestWatchForms(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		from := s.configMap("first", "").revision()
		partial := s.watch(cm+"?watch=1&resourceVersion="+from, "Accept",
			"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
		table := s.watch(cm+"?watch=1&resourceVersion="+from, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		s.configMap("a", "x=y")
		s.configMap("b", "x=y")
		synctest.Wait()
		if frame := <-partial.frames; !strings.HasPrefix(frame,
			`{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a",`) || strings.Contains(frame, `"data":{"k"`) {
			t.Errorf("partial: %s", frame)
		}
		for i, columns := range []string{`"columnDefinitions":[{"name":"Name"`, `"columnDefinitions":null`} {
			if frame := <-table.frames; !strings.Contains(frame, columns) || !strings.Contains(frame, `"rows":[{"cells":["`) {
				t.Errorf("table event %d: %s", i, frame)
			}
		}
		if r := s.get(cm+"?watch=1", "Accept", "application/yaml"); r.code != http.StatusNotAcceptable {
			t.Errorf("YAML: %d", r.code)
		}
	})
}

// All watchers see the same events in the same order, and an event costs the same bytes for each.
func TestWatchersAgree(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		from := s.configMap("first", "").revision()
		var all []*watching
		for range 50 {
			all = append(all, s.watch(cm+"?watch=1&resourceVersion="+from))
		}
		for i := range 20 {
			s.configMap("x"+strconv.Itoa(i), "")
		}
		want := all[0].seen()
		if len(want) != 20 {
			t.Fatalf("%d events", len(want))
		}
		for _, w := range all[1:] {
			w.expect(want...)
		}
	})
}

// stuckStore lets a test decide when a read goes on.
type stuckStore struct {
	store.Store
	stuck chan struct{}
}

func (s *stuckStore) Snapshot(ctx context.Context) (store.Snapshot, error) {
	if s.stuck != nil {
		select {
		case <-s.stuck:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return s.Store.Snapshot(ctx)
}

// A client with too many requests in flight is told to wait, while others, and its own watches and
// health checks, are served (B155).
func TestB155_RunawayClientIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &stuckStore{}
		s := newSite(t, func(o *apiserver.Options) { stuck.Store, o.Store = o.Store, stuck })
		from := s.configMap("a", "").revision()
		stuck.stuck = make(chan struct{})
		const many = 400
		codes := make(chan int, many)
		for range many {
			go func() { codes <- s.get(cm + "/a").code }()
		}
		synctest.Wait()
		r := s.get(cm + "/a")
		if r.code != http.StatusTooManyRequests || r.header.Get("Retry-After") != "1" || r.object(t).str("reason") != "TooManyRequests" {
			t.Errorf("one too many: %d %s", r.code, r.text)
		}
		if r := s.get("/livez?exclude=store"); r.code != http.StatusOK { // which is stuck here
			t.Errorf("livez: %d", r.code)
		}
		w := s.watch(cm + "?watch=1&resourceVersion=" + from)
		w.expect()
		if r := s.get(cm+"/a", "Impersonate-User", "jane"); r.code != http.StatusForbidden {
			t.Errorf("another client: %d", r.code)
		}
		close(stuck.stuck)
		for range many {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("a request in flight: %d", code)
			}
		}
		if r := s.get(cm + "/a"); r.code != http.StatusOK {
			t.Errorf("afterwards: %d %s", r.code, r.text)
		}
		s.server.Stop()
		synctest.Wait()
	})
}

// A client that leaves ends its request.
func TestCancelledRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &stuckStore{}
		s := newSite(t, func(o *apiserver.Options) { stuck.Store, o.Store = o.Store, stuck })
		stuck.stuck = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://setpoint"+cm+"/a", nil)
			_, err := s.client.Do(req)
			failed <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		synctest.Wait() // no goroutine is left behind, or the bubble would say so
	})
}

// What watches are sent does not make the history larger: most of it is never sent again.
func TestSentEventsAreNotKept(t *testing.T) {
	s := newSite(t)
	from := s.configMap("a", "").revision()
	after, err := strconv.ParseInt(from, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	log, err := s.store.Watch("configmaps", "default/", store.Revision(after))
	if err != nil {
		t.Fatal(err)
	}
	w := s.watch(cm + "?watch=1&resourceVersion=" + from)
	s.configMap("b", "")
	<-w.frames
	events, err := log.Next(t.Context())
	if err != nil || len(events) != 1 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if kept := events[0].Memo.Load(); kept != nil {
		t.Errorf("the event holds %T after it was sent", kept)
	}
}
