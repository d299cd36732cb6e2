package apiserver_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

// slowReader takes the first bytes of an answer and then reads nothing until it is told to.
type slowReader struct {
	header http.Header
	begun  func() // called at the first bytes
	resume <-chan struct{}

	once sync.Once
	sum  hash.Hash

	lines, linesMax int
	enough          func() // called at the last of linesMax lines
}

func (w *slowReader) Header() http.Header { return w.header }
func (w *slowReader) WriteHeader(int)     {}
func (w *slowReader) Flush()              {}

func (w *slowReader) Write(p []byte) (int, error) {
	w.once.Do(w.begun)
	<-w.resume
	if n := bytes.Count(p, []byte("\n")); n > 0 && w.lines < w.linesMax {
		if w.lines += n; w.lines >= w.linesMax {
			w.enough()
		}
	}
	return w.sum.Write(p)
}

// TestB156_ListsAreNotHeldInMemory has 32 lists and 64 watches that begin with a list, of 6 MB each, be
// read by nobody: each holds about one object, and what is read in the end is what others read.
func TestB156_ListsAreNotHeldInMemory(t *testing.T) {
	const objects, objectBytes, lists, watches = 60, 100 << 10, 32, 64
	s := newSite(t)
	text := strings.Repeat("x", objectBytes)
	for i := range objects {
		s.must("POST", cm, fmt.Sprintf(`{"metadata":{"name":"n-%03d"},"data":{"k":%q}}`, i, text))
	}
	want := sha256.Sum256([]byte(s.get(cm).text))

	resume := make(chan struct{})
	var begun, enough, ended sync.WaitGroup
	begun.Add(lists + watches)
	enough.Add(lists + watches)
	admin := &authn.User{Name: "admin", Groups: []string{authn.Masters}}
	ctx, cancel := context.WithCancel(authn.WithUser(t.Context(), admin))
	defer ended.Wait()
	defer cancel()
	open := func(query string, lines int) *slowReader {
		w := &slowReader{
			header: http.Header{}, begun: begun.Done, resume: resume, sum: sha256.New(),
			linesMax: lines, enough: enough.Done,
		}
		req, err := http.NewRequestWithContext(ctx, "GET", "http://setpoint"+cm+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		ended.Go(func() { s.server.ServeHTTP(w, req) })
		return w
	}
	before := heap()
	var readers []*slowReader
	for range lists {
		readers = append(readers, open("", 1))
	}
	for range watches { // a line for each object, and a bookmark
		open("?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", objects+1)
	}
	begun.Wait()
	if held := heap() - before; held > (lists+watches)*4*objectBytes {
		t.Errorf("%d answers that nobody reads hold %d MB, want less than four objects each, %d MB",
			lists+watches, held>>20, (lists+watches)*4*objectBytes>>20)
	}
	close(resume)
	enough.Wait()
	cancel()
	ended.Wait()
	for _, r := range readers {
		if got := r.sum.Sum(nil); !bytes.Equal(got, want[:]) {
			t.Error("a list that was read slowly differs from one that was not")
		}
	}
}
