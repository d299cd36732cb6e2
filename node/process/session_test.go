package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/nodewire"
	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/runtimetest"
)

const patience = time.Minute

// running starts a container of a script that says "ready".
func running(t *testing.T, script string, change func(*node.ContainerConfig)) (*runtimetest.Pod, node.ContainerID) {
	t.Helper()
	p := runtimetest.NewPod(t, open(t, t.TempDir()))
	id := node.ContainerID{Pod: p.UID, Name: "c"}
	config := runtimetest.Shell(id, script)
	if change != nil {
		change(&config)
	}
	if err := p.Runtime.StartContainer(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return p, id
}

// screen collects what is printed, and tells when it holds a text.
type screen struct {
	mu   sync.Mutex
	more *sync.Cond
	text bytes.Buffer
	over bool
}

func newScreen() *screen {
	s := &screen{}
	s.more = sync.NewCond(&s.mu)
	return s
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	s.more.Broadcast()
	return len(p), nil
}

func (s *screen) await(t *testing.T, text string) {
	t.Helper()
	timer := time.AfterFunc(patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.over = true
		s.more.Broadcast()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(s.text.String(), text) {
		if s.over {
			t.Fatalf("the screen shows %q, not %q", s.text.String(), text)
		}
		s.more.Wait()
	}
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestExecOnATerminal(t *testing.T) {
	p, id := running(t, "exec sleep 600", nil)
	in, typing := io.Pipe()
	sizes := make(chan nodewire.Size, 1)
	shows := newScreen()
	ended := make(chan int32, 1)
	go func() {
		code, err := p.Runtime.Exec(t.Context(), id, []string{"sh", "-c",
			`[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; echo begun; while read line; do echo "got $line at $(stty size)"; done; exit 5`},
			node.Streams{Stdin: in, Stdout: shows, TTY: true, Resize: sizes})
		if err != nil {
			t.Error(err)
		}
		ended <- code
	}()
	shows.await(t, "all\r\nbegun\r\n")
	sizes <- nodewire.Size{Width: 101, Height: 37}
	for n := 0; !strings.Contains(shows.String(), "at 37 101\r\n"); n++ { // it has that size some time
		if n == 1000 {
			t.Fatalf("the size never came\n%s", shows)
		}
		fmt.Fprintln(typing, n)
		shows.await(t, fmt.Sprintf("got %d at ", n))
	}
	typing.Close()
	if code := <-ended; code != 5 {
		t.Errorf("ended with %d, want 5\n%s", code, shows)
	}
}

// Everything that a command printed arrives, however slow its reader is, and whatever it leaves
// behind that holds its output open.
func TestExecLosesNothing(t *testing.T) {
	p, id := running(t, "exec sleep 600", nil)
	const bytesWanted = 5 << 20
	counted := &slow{}
	code, err := p.Runtime.Exec(t.Context(), id, []string{"sh", "-c",
		"sleep 600 & head -c " + strconv.Itoa(bytesWanted) + " /dev/zero"}, node.Streams{Stdout: counted})
	if err != nil || code != 0 || counted.n != bytesWanted {
		t.Errorf("code %d, %d bytes, %v; want %d", code, counted.n, err, bytesWanted)
	}
}

type slow struct{ n int }

func (s *slow) Write(p []byte) (int, error) {
	<-time.After(time.Microsecond)
	s.n += len(p)
	return len(p), nil
}

// A command goes with the context, and all of its session with it; what it left behind before goes
// with the container.
func TestExecIsKilled(t *testing.T) {
	p, id := running(t, "exec sleep 600", nil)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	shows := newScreen()
	ended := make(chan error, 1)
	go func() {
		_, err := p.Runtime.Exec(ctx, id, []string{"sh", "-c",
			"set -m; sleep 600 & echo $! >" + dir + "/job; echo begun; wait"}, node.Streams{Stdout: shows})
		ended <- err
	}()
	shows.await(t, "begun")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Exec: %v, want the context's error", err)
	}
	awaitDead(t, dir+"/job")

	if _, err := p.Runtime.Exec(t.Context(), id, []string{"sh", "-c",
		"sleep 600 >/dev/null 2>&1 & echo $! >" + dir + "/left"}, node.Streams{}); err != nil {
		t.Fatal(err)
	}
	if !alive(t, dir+"/left") {
		t.Error("what a command left behind went with it")
	}
	if err := p.Runtime.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if alive(t, dir+"/left") {
		t.Error("what a command left behind outlives the container")
	}
}

func alive(t *testing.T, file string) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func awaitDead(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(patience); alive(t, file); {
		if time.Now().After(end) {
			t.Fatalf("the process of %s lives on", file)
		}
		<-time.After(time.Millisecond)
	}
}

// The end of a container ends the commands beside it.
func TestExecEndsWithTheContainer(t *testing.T) {
	p, id := running(t, "exec sleep 600", nil)
	shows := newScreen()
	ended := make(chan int32, 1)
	go func() {
		code, err := p.Runtime.Exec(t.Context(), id, []string{"sh", "-c", "echo begun; exec sleep 600"}, node.Streams{Stdout: shows})
		if err != nil {
			t.Error(err)
		}
		ended <- code
	}()
	shows.await(t, "begun")
	if err := p.Runtime.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != 137 {
		t.Errorf("ended with %d, want 137", code)
	}
}

// Input declared to end once ends with the first client's, and the log has what the client saw.
func TestAttach(t *testing.T) {
	p, id := running(t, `while read line; do echo "got $line"; echo "err $line" >&2; done; echo bye; exit 3`,
		func(c *node.ContainerConfig) { c.Stdin, c.StdinOnce = true, true })
	in, typing := io.Pipe()
	out, errs := newScreen(), newScreen()
	watcher := newScreen()
	ended := make(chan error, 2)
	go func() { ended <- p.Runtime.Attach(t.Context(), id, node.Streams{Stdin: in, Stdout: out, Stderr: errs}) }()
	go func() { ended <- p.Runtime.Attach(t.Context(), id, node.Streams{Stdout: watcher}) }()
	io.WriteString(typing, "one\n")
	out.await(t, "got one\n")
	errs.await(t, "err one\n")
	typing.Close()
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("Attach: %v", err)
		}
	}
	if got := p.Ended(id); got.ExitCode != 3 {
		t.Errorf("ended with %d, want 3", got.ExitCode)
	}
	p.Printed(id, "bye")
	if !strings.HasSuffix(out.String(), "bye\n") || !strings.HasSuffix(watcher.String(), "bye\n") {
		t.Errorf("the clients saw %q and %q", out, watcher)
	}
}

// A container on a terminal is typed to by whoever is attached, one after the other.
func TestAttachToATerminal(t *testing.T) {
	p, id := running(t, `while read line; do echo "got $line"; [ "$line" = end ] && exit 0; done`,
		func(c *node.ContainerConfig) { c.Stdin, c.TTY = true, true })
	for _, line := range []string{"one", "end"} {
		in, typing := io.Pipe()
		shows := newScreen()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Runtime.Attach(ctx, id, node.Streams{Stdin: in, Stdout: shows}) }()
		io.WriteString(typing, line+"\n")
		shows.await(t, "got "+line+"\r\n")
		if line == "end" {
			if err := <-ended; err != nil {
				t.Errorf("Attach: %v", err)
			}
		}
		cancel()
		if line != "end" {
			<-ended
		}
	}
	if got := p.Ended(id); got.ExitCode != 0 {
		t.Errorf("ended with %+v", got)
	}
}
