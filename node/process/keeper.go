package process

import (
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// sessions is the part of a shim that serves its socket: it has commands run
// beside the container, and connects clients to it. Commands are started and
// reaped by the shim's main goroutine alone (see container.wait), so that a
// process number always means the process it meant.
type sessions struct {
	listener *net.UnixListener
	starts   chan *startOrder
	kills    chan int
	over     chan struct{} // closed when the container's process has ended

	stdout, stderr *audience
	stdin          *input   // nil without one
	terminal       *os.File // the container's, nil without one
}

// startOrder is a command to be started, and where the outcome is told.
type startOrder struct {
	order
	files   []*os.File
	started chan startOutcome // buffered
}

// startOutcome is a process and where its end will be told, or why there is none.
type startOutcome struct {
	pid   int
	ended chan unix.WaitStatus
	err   error
}

func newSessions(l *net.UnixListener) *sessions {
	return &sessions{
		listener: l,
		starts:   make(chan *startOrder),
		kills:    make(chan int),
		over:     make(chan struct{}),
		stdout:   newAudience(),
		stderr:   newAudience(),
	}
}

// serve accepts sessions until the socket is closed.
func (s *sessions) serve() {
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // it has closed before it was accepted
		}
		go func() {
			c := control{conn}
			defer c.Close()
			var o order
			files, err := c.receive(&o)
			if err != nil {
				return
			}
			if len(o.Exec) > 0 {
				s.exec(c, o, files)
			} else {
				s.attach(c, o, files)
			}
		}()
	}
}

// exec runs a command until it has ended or the agent that wanted it is gone.
func (s *sessions) exec(c control, o order, files []*os.File) {
	start := &startOrder{order: o, files: files, started: make(chan startOutcome, 1)}
	select {
	case s.starts <- start:
	case <-s.over:
		closeAll(files)
		return
	}
	run := <-start.started
	closeAll(files)
	if run.err != nil {
		_ = c.send(answer{Error: run.err.Error()})
		return
	}
	gone := make(chan struct{})
	go func() { // ends with the connection, which is closed on return
		defer close(gone)
		var nothing struct{}
		_, _ = c.receive(&nothing)
	}()
	select {
	case status := <-run.ended:
		_ = c.send(answer{ExitCode: exitOf(status, false).ExitCode})
	case <-gone:
		select {
		case s.kills <- run.pid:
		case <-s.over:
		}
	case <-s.over: // it is being killed; without an answer the agent knows
	}
}

// killSession kills the processes of a session whose leader still is one, or
// is not yet reaped.
func killSession(leader int) {
	for _, pid := range processes() {
		if stat := statOf(pid); len(stat) > 3 && stat[3] == strconv.Itoa(leader) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	_ = unix.Kill(-leader, unix.SIGKILL)
}

// statOf returns the fields of a process's stat behind its name: state, parent,
// group, session, and more.
func statOf(pid int) []string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	// The name may hold anything, so look behind it.
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
}

// attach connects the agent's files to the container until one of them ends.
func (s *sessions) attach(c control, o order, files []*os.File) {
	var member membership
	defer member.leave()
	next := func(present bool) *os.File {
		if !present || len(files) == 0 {
			return nil
		}
		f := files[0]
		files = files[1:]
		if f, err := pollable(f); err == nil {
			return f
		}
		return nil
	}
	var typing sync.WaitGroup
	defer typing.Wait()
	if in := next(o.Stdin); in != nil {
		if s.stdin == nil {
			in.Close()
		} else {
			defer in.Close()
			typing.Go(func() { s.stdin.copy(in) })
		}
	}
	for _, of := range []struct {
		file *os.File
		to   *audience
	}{{next(o.Stdout), s.stdout}, {next(o.Stderr), s.stderr}} {
		if of.file != nil {
			member.join(of.to, of.file, func() {
				_ = c.send(answer{Error: "cut off: nothing was read for " + stallMax.String()})
				c.Close()
			})
		}
	}
	closeAll(files)
	c.sizesOf(s.terminal)
}

// stdio arranges the files of an order as those of a process. What an agent
// does not want goes nowhere.
func (o *startOrder) stdio() (stdio [3]*os.File, err error) {
	if o.Terminal {
		if len(o.files) != 1 {
			return stdio, errors.New("a terminal was ordered, and none came")
		}
		stdio[0] = o.files[0]
		return stdio, nil
	}
	files := o.files
	for i, present := range []bool{o.Stdin, o.Stdout, o.Stderr} {
		if !present {
			if stdio[i], err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
				return stdio, err
			}
			continue
		}
		if len(files) == 0 {
			return stdio, errors.New("a stream was ordered, and none came")
		}
		stdio[i], files = files[0], files[1:]
	}
	return stdio, nil
}

// has says whether a file came with the order, and is closed with it.
func (o *startOrder) has(f *os.File) bool { return slices.Contains(o.files, f) }
