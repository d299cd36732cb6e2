package logs_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/node/logs"
)

// clock ticks a second at each reading.
func clock() func() time.Time {
	now := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	return func() time.Time {
		now = now.Add(time.Second)
		return now
	}
}

func write(t *testing.T, opts logs.Options, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log")
	opts.Now = clock()
	w, err := logs.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Copy(logs.Stdout, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string, opts logs.ReadOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := logs.Read(t.Context(), path, opts, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func ptr[T any](v T) *T { return &v }

func TestRead(t *testing.T) {
	path := write(t, logs.Options{}, "one\ntwo\n\nthree")
	for name, c := range map[string]struct {
		opts logs.ReadOptions
		want string
	}{
		"all":              {logs.ReadOptions{}, "one\ntwo\n\nthree\n"},
		"tail":             {logs.ReadOptions{TailLines: ptr[int64](2)}, "\nthree\n"},
		"tail none":        {logs.ReadOptions{TailLines: ptr[int64](0)}, ""},
		"tail of more":     {logs.ReadOptions{TailLines: ptr[int64](9)}, "one\ntwo\n\nthree\n"},
		"bytes":            {logs.ReadOptions{LimitBytes: ptr[int64](6)}, "one\ntw"},
		"other stream":     {logs.ReadOptions{Stream: logs.Stderr}, ""},
		"since":            {logs.ReadOptions{Since: time.Date(2026, 1, 2, 3, 4, 3, 0, time.UTC)}, "\nthree\n"},
		"tail and since":   {logs.ReadOptions{Since: time.Date(2026, 1, 2, 3, 4, 3, 0, time.UTC), TailLines: ptr[int64](3)}, "\nthree\n"},
		"times":            {logs.ReadOptions{Timestamps: true, TailLines: ptr[int64](1)}, "2026-01-02T03:04:04.000000000Z three\n"},
		"times with bytes": {logs.ReadOptions{Timestamps: true, LimitBytes: ptr[int64](12)}, "2026-01-02T0"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := read(t, path, c.opts); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestLongLineIsOneLine(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	path := write(t, logs.Options{}, long+"\nshort\n")
	if got := read(t, path, logs.ReadOptions{}); got != long+"\nshort\n" {
		t.Errorf("%d bytes, want %d", len(got), len(long)+7)
	}
	got := read(t, path, logs.ReadOptions{Timestamps: true, TailLines: ptr[int64](2)})
	if lines := strings.Count(got, "2026-"); lines != 2 {
		t.Errorf("%d times, want one for each line", lines)
	}
}

func TestRotationBoundsTheDiskAndKeepsTheOrder(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	path := write(t, logs.Options{BytesMax: 2000, FilesMax: 3}, text.String())
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 3 {
		t.Fatalf("files: %v, %v; want three", files, err)
	}
	for _, f := range files {
		if info, _ := os.Stat(f); info.Size() > 2000 {
			t.Errorf("%s has %d bytes", f, info.Size())
		}
	}
	got := read(t, path, logs.ReadOptions{})
	if !strings.HasSuffix(text.String(), got) || strings.Count(got, "\n") < 60 {
		t.Errorf("what is kept is not the end: %q", got)
	}
	if got := read(t, path, logs.ReadOptions{TailLines: ptr[int64](50)}); !strings.HasSuffix(text.String(), got) || strings.Count(got, "\n") != 50 {
		t.Errorf("the last 50 lines, over two files, are %q", got)
	}
}

func TestFollowReadsThroughRotationToTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	w, err := logs.Open(path, logs.Options{BytesMax: 200, FilesMax: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	in, feed := io.Pipe()
	copied := make(chan error, 1)
	go func() { copied <- w.Copy(logs.Stdout, in) }()

	out, follower := io.Pipe()
	done := make(chan struct{})
	followed := make(chan error, 1)
	go func() {
		err := logs.Read(context.Background(), path, logs.ReadOptions{Follow: true, Done: done}, follower)
		follower.Close()
		followed <- err
	}()
	// Each line is awaited before the next, so that the follower never falls
	// behind by more than a file.
	var got strings.Builder
	line := make([]byte, 100)
	for i := range 12 {
		fmt.Fprintf(feed, "line %d of those that make the file rotate\n", i)
		n, err := out.Read(line)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(line[:n])
	}
	fmt.Fprint(feed, "the last")
	feed.Close()
	if err := <-copied; err != nil {
		t.Fatal(err)
	}
	close(done)
	rest, err := io.ReadAll(out)
	if err != nil || string(rest) != "the last\n" {
		t.Errorf("the end is %q, %v", rest, err)
	}
	if err := <-followed; err != nil {
		t.Error(err)
	}
	if n := strings.Count(got.String(), "\n"); n != 12 {
		t.Errorf("followed %d lines, want 12: %q", n, got.String())
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(t.TempDir(), "not-yet")
	if err := logs.Read(ctx, path, logs.ReadOptions{Follow: true}, io.Discard); err != nil {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:05.000000000Z stdout F hello\n"), int64(1))
	f.Add([]byte("2026-01-02T03:04:05Z stdout P he\n\n x\n"), int64(0))
	f.Fuzz(func(t *testing.T, file []byte, tail int64) {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		var all, some bytes.Buffer
		if err := logs.Read(t.Context(), path, logs.ReadOptions{}, &all); err != nil {
			t.Fatal(err)
		}
		tail = max(0, tail)
		if err := logs.Read(t.Context(), path, logs.ReadOptions{TailLines: &tail}, &some); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(all.Bytes(), some.Bytes()) {
			t.Errorf("the tail %q is not the end of %q", some.Bytes(), all.Bytes())
		}
	})
}
