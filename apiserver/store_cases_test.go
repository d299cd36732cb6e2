package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/memory"
	"github.com/setpoint-dev/setpoint/store/storetest"
)

// open asks for a watch and returns its stream, which nobody reads yet.
func (s *site) open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://setpoint"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("watch: %s", resp.Status)
	}
	return resp.Body, nil
}

type watchEvent struct {
	Type   string
	Object struct {
		Code     int
		Metadata struct{ Name, ResourceVersion string }
	}
}

// fold reads a stream until it has shown a revision, or has ended with 410, and takes what it shows into
// what is known. Revisions have to rise, and an addition has to be new.
func fold(stream io.Reader, known map[string]int, from, until int) (expired bool, err error) {
	last := from
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		var ev watchEvent
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			return false, err
		}
		if ev.Type == "ERROR" {
			if ev.Object.Code != http.StatusGone {
				return false, fmt.Errorf("error %d", ev.Object.Code)
			}
			return true, nil
		}
		name := ev.Object.Metadata.Name
		at, _ := strconv.Atoi(ev.Object.Metadata.ResourceVersion)
		if at <= last {
			return false, fmt.Errorf("%s %s at %d comes after %d", ev.Type, name, at, last)
		}
		if _, there := known[name]; there == (ev.Type == "ADDED") {
			return false, fmt.Errorf("%s %s at %d, and it was there before: %v", ev.Type, name, at, there)
		}
		if known[name] = at; ev.Type == "DELETED" {
			delete(known, name)
		}
		if last = at; at >= until {
			return false, nil
		}
	}
	return false, io.ErrUnexpectedEOF
}

// known lists, and returns the revision of each object, and that of the list.
func (s *site) known() (map[string]int, int) {
	o := s.must("GET", cm, "")
	all := map[string]int{}
	items, _ := o["items"].([]any)
	for _, item := range items {
		i := object(item.(map[string]any))
		all[i.str("metadata.name")], _ = strconv.Atoi(i.revision())
	}
	at, _ := strconv.Atoi(o.revision())
	return all, at
}

// churn has writers make, change and delete fifty configmaps.
func (s *site) churn(seed uint64, writers, each int) {
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := range each {
				name := fmt.Sprintf("key-%d", rnd.IntN(50))
				switch {
				case i%5 == 4:
					s.ask("DELETE", cm+"/"+name, "")
				case i%2 == 0:
					s.ask("POST", cm, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
				default:
					s.ask("PATCH", cm+"/"+name, fmt.Sprintf(`{"data":{"k":"%d"}}`, rnd.Int()), "Content-Type", "application/merge-patch+json")
				}
			}
		})
	}
	group.Wait()
}

// TestB005_StreamsNeverGoBack opens watches at recent revisions while many write. Each goes forward only,
// and what was listed at its revision, with what it shows, is what is listed in the end.
func TestB005_StreamsNeverGoBack(t *testing.T) {
	s, seed, count := newSite(t), storetest.Seed(t), storetest.Rounds(t, 200)
	writers := min(64, count/12)
	s.configMap("first", "")
	_, begin := s.known()
	var watches sync.WaitGroup
	written := make(chan struct{})
	for w := range count {
		rnd := rand.New(rand.NewPCG(seed, uint64(w)))
		watches.Go(func() {
			upTo := int(s.store.Revision())
			at := begin + rnd.IntN(upTo-begin+1)
			snapshot, err := s.store.SnapshotAt(t.Context(), store.Revision(at))
			if err != nil {
				t.Error(err)
				return
			}
			known := map[string]int{}
			entries, _ := snapshot.List("configmaps", store.ListOptions{Prefix: "default/"})
			for _, e := range entries {
				known[e.Key.Path[len("default/"):]] = int(e.Revision)
			}
			stream, err := s.open(t.Context(), fmt.Sprintf("%s?watch=1&resourceVersion=%d", cm, at))
			if err != nil {
				t.Error(err)
				return
			}
			defer stream.Close()
			<-written
			want, now := s.known()
			if _, err := fold(stream, known, at, now); err != nil || fmt.Sprint(known) != fmt.Sprint(want) {
				t.Errorf("a watch from %d: %v; knows %v, want %v", at, err, known, want)
			}
		})
	}
	s.churn(seed, writers, max(13, count/20))
	s.configMap("last", "")
	close(written)
	watches.Wait()
}

// TestB006_WatchesOpenedWhileHistoryGoes opens watches while history is cut away below them as fast as it
// comes. Each shows everything, or ends with 410.
func TestB006_WatchesOpenedWhileHistoryGoes(t *testing.T) {
	const openers = 8
	s, seed, each := newSite(t), storetest.Seed(t), max(1, storetest.Rounds(t, 200)/openers)
	s.configMap("first", "")
	done := make(chan struct{})
	var compactor, watches sync.WaitGroup
	compactor.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if err := s.store.Compact(t.Context(), s.store.Revision()); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	whole, gone := 0, 0
	var mu sync.Mutex
	for opener := range openers {
		watches.Go(func() {
			for n := range each {
				known, at := s.known()
				stream, err := s.open(t.Context(), fmt.Sprintf("%s?watch=1&resourceVersion=%d", cm, at))
				if err != nil {
					t.Error(err)
					return
				}
				s.churn(seed+uint64(each*opener+n), 1, 4)
				last := s.must("PUT", cm+"/first", fmt.Sprintf(`{"metadata":{"name":"first"},"data":{"k":"%d %d"}}`, opener, n)).revision()
				until, _ := strconv.Atoi(last)
				expired, err := fold(stream, known, at, until)
				stream.Close()
				if err != nil {
					t.Errorf("a watch from %d: %v", at, err)
				}
				mu.Lock()
				if expired {
					gone++
				} else {
					whole++
				}
				mu.Unlock()
			}
		})
	}
	watches.Wait()
	close(done)
	compactor.Wait()
	t.Logf("%d streams were whole, %d ended with 410", whole, gone)
}

// TestB011_DeleteAtTheCompactedRevision compacts to the revision of a delete, and resumes around it.
func TestB011_DeleteAtTheCompactedRevision(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.configMap("k", "")
		s.must("DELETE", cm+"/k", "")
		gone := s.store.Revision()
		open := s.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", cm, gone-1))
		open.expect(fmt.Sprintf("DELETED k@%d", gone))
		s.configMap("other", "")
		if err := s.store.Compact(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		other := fmt.Sprintf("ADDED other@%d", s.store.Revision())
		s.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", cm, gone-1)).expect("ERROR 410 Expired", "end")
		s.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", cm, gone)).expect(other)
		s.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", cm, gone+1)).expect()
		open.expect(other)
	})
}

// TestB018_StalledWatchersCostNothing has a thousand watchers that do not read. Others see each event
// before the next is written, memory does not grow with what is written, and who comes back is told that
// it has missed something.
func TestB018_StalledWatchersCostNothing(t *testing.T) {
	const watchers, healthy = 1000, 8
	s := newSite(t, func(o *apiserver.Options) { o.Store = memory.New(memory.Options{HistoryBytes: 1 << 20}) })
	s.configMap("a", "")
	from := fmt.Sprintf("%s?watch=1&resourceVersion=%d", cm, s.store.Revision())
	var stalled []io.ReadCloser
	var reading []*bufio.Scanner
	for i := range watchers + healthy {
		stream, err := s.open(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		if i < watchers {
			stalled = append(stalled, stream)
		} else {
			reading = append(reading, bufio.NewScanner(stream))
		}
	}
	filler := make([]byte, 4<<10)
	for i := range filler {
		filler[i] = 'x'
	}
	write := func(n int) {
		for i := range n {
			at := s.must("PUT", cm+"/a", fmt.Sprintf(`{"metadata":{"name":"a"},"data":{"k":"%d %s"}}`, i, filler)).revision()
			for _, lines := range reading {
				var ev watchEvent
				if !lines.Scan() || json.Unmarshal(lines.Bytes(), &ev) != nil || ev.Object.Metadata.ResourceVersion != at {
					t.Fatalf("a healthy watch shows %.100s after %s was written", lines.Text(), at)
				}
			}
		}
	}
	write(300) // fills the history, and what a stalled watch has in its hands
	before := heap()
	write(1000) // 4 MB, or 4 GB if each stalled watch kept it
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("%d stalled watches keep %d bytes more after 1,000 events of 4 KB", watchers, grown)
	}
	for i, stream := range stalled {
		expired, err := fold(stream, map[string]int{"a": 1}, 0, int(s.store.Revision())+1)
		if !expired || err != nil {
			t.Fatalf("stalled watch %d, when it comes back: %v, want 410", i, err)
		}
	}
}

// TestB018_SlowReadersDelayNobody has five hundred who read, and twenty who read one byte for each event:
// everybody who reads has an event before the next is written, and the slow miss nothing that is kept.
func TestB018_SlowReadersDelayNobody(t *testing.T) {
	const healthy, slow, writes = 500, 20, 40
	s := newSite(t)
	from := s.configMap("a", "").revision()
	var streams []io.ReadCloser
	var reading []*bufio.Scanner
	for range healthy + slow {
		stream, err := s.open(t.Context(), cm+"?watch=1&resourceVersion="+from)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		streams = append(streams, stream)
	}
	for _, stream := range streams[slow:] {
		reading = append(reading, bufio.NewScanner(stream))
	}
	said := make([][]byte, slow)
	for i := range writes {
		at := s.must("PUT", cm+"/a", fmt.Sprintf(`{"metadata":{"name":"a"},"data":{"k":"%d"}}`, i)).revision()
		for _, lines := range reading {
			if !lines.Scan() || !strings.Contains(lines.Text(), `"resourceVersion":"`+at+`"`) {
				t.Fatalf("a healthy watch shows %.100s after %s was written", lines.Text(), at)
			}
		}
		for w := range slow {
			one := make([]byte, 1)
			if _, err := streams[w].Read(one); err != nil {
				t.Fatal(err)
			}
			said[w] = append(said[w], one...)
		}
	}
	begin, _ := strconv.Atoi(from)
	for w := range slow {
		known := map[string]int{"a": begin}
		_, err := fold(io.MultiReader(bytes.NewReader(said[w]), streams[w]), known, begin, begin+writes)
		if err != nil || known["a"] != begin+writes {
			t.Errorf("slow watch %d: %v; has come to %d, want %d", w, err, known["a"], begin+writes)
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
