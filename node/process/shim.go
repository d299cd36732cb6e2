package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/logs"
)

// shimConfig is config.json.
type shimConfig struct {
	node.ContainerConfig
	Log    logs.Options
	Cgroup string // to be made for this instance; empty means none
}

// The signals by which an agent speaks to a shim.
const (
	signalTerminate = unix.SIGTERM // ask the container's processes to end
	signalKill      = unix.SIGUSR1 // end them
)

// readyFD is where a shim's agent waits: closed means started, or failed.
const readyFD = 3

// drainTimeout bounds the wait for the rest of the output once every process
// is dead. It passes only if a process outside the container was handed a pipe.
const drainTimeout = 5 * time.Second

// shim runs one instance of a container from its start to its end.
func shim(d dir) error {
	// The kernel sends the parent-death signal when the thread ends that
	// started the child; this one ends with the shim.
	runtime.LockOSThread()
	unix.CloseOnExec(readyFD)
	ready := os.NewFile(readyFD, "ready")

	lock, ours, err := acquire(d.lock())
	if err != nil {
		return err
	}
	if !ours {
		return fmt.Errorf("%s: is running", d)
	}
	defer lock.Close()
	for _, path := range []string{d.state(), d.exit()} {
		if _, err := os.Stat(path); err == nil {
			return fmt.Errorf("%s: has been run", d)
		}
	}
	var config shimConfig
	if err := readJSON(d.config(), &config); err != nil {
		return err
	}
	s := &container{dir: d, config: config, commands: map[int]chan unix.WaitStatus{}}
	exit, err := s.run(ready)
	if err != nil {
		exit = exitRecord{ExitCode: startErrorCode, Reason: node.ReasonStartError, Message: err.Error()}
	}
	exit.FinishedAt = time.Now()
	return writeJSON(d.exit(), exit)
}

// container is the running instance inside its shim. One goroutine uses it.
type container struct {
	dir      dir
	config   shimConfig
	cgroup   *cgroup
	pid      int
	sessions *sessions
	commands map[int]chan unix.WaitStatus // that run beside it, by process
}

// run starts the process, tells ready, and returns when all of it is dead.
func (c *container) run(ready *os.File) (exitRecord, error) {
	defer ready.Close()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return exitRecord{}, fmt.Errorf("become subreaper: %w", err)
	}
	// Before the start, so that no end of a child is missed.
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	orders := make(chan os.Signal, 8)
	signal.Notify(orders, signalTerminate, signalKill)

	log, err := logs.Open(c.dir.log(), c.config.Log)
	if err != nil {
		return exitRecord{}, err
	}
	defer log.Close()
	defer func() { c.cgroup.remove() }()
	listener, err := c.dir.listen()
	if err != nil {
		return exitRecord{}, err
	}
	c.sessions = newSessions(listener)
	drained, err := c.start(log)
	if err != nil {
		return exitRecord{}, err
	}
	run := runRecord{PID: c.pid, StartedAt: time.Now(), Cgroup: c.config.Cgroup}
	if err := writeJSON(c.dir.state(), run); err != nil {
		c.killAll()
		return exitRecord{}, err
	}
	go c.sessions.serve()
	ready.Close()

	status := c.wait(ended, orders)
	close(c.sessions.over)
	listener.Close()
	oom := c.cgroup.oomKilled()
	c.killAll()
	select {
	case <-drained:
	case <-time.After(drainTimeout):
	}
	return exitOf(status, oom), nil
}

// start starts the process and the copying of its output, whose end it returns.
func (c *container) start(log *logs.Writer) (drained <-chan struct{}, err error) {
	if c.cgroup, err = newCgroup(c.config.Cgroup, c.config.Resources); err != nil {
		return nil, err
	}
	streams, theirs, err := openStreams(c.config.ContainerConfig)
	defer closeAll(theirs[:])
	if err != nil {
		return nil, err
	}
	c.pid, err = spawn(program{ContainerConfig: c.config.ContainerConfig}, c.cgroup, theirs)
	if err != nil {
		return nil, err
	}
	s := c.sessions
	s.terminal = streams.terminal
	if streams.input != nil {
		s.stdin = newInput(streams.input, c.config.StdinOnce, streams.terminal == nil)
	}
	var copies sync.WaitGroup
	for _, out := range []struct {
		name     string
		from     *os.File
		audience *audience
	}{{logs.Stdout, streams.stdout, s.stdout}, {logs.Stderr, streams.stderr, s.stderr}} {
		if out.from == nil {
			continue
		}
		copies.Go(func() {
			defer out.from.Close()
			// An error of the disk loses lines and must not end the container.
			_ = log.Copy(out.name, io.TeeReader(out.from, out.audience))
		})
	}
	done := make(chan struct{})
	go func() { copies.Wait(); close(done) }()
	return done, nil
}

// streams are the shim's ends of the container's.
type streams struct {
	input          *os.File // nil without one
	stdout, stderr *os.File // stderr is nil with a terminal
	terminal       *os.File // nil without one
}

// openStreams makes what a container is declared to have, and the three files
// that its process is given. Those are returned with an error, too.
func openStreams(config node.ContainerConfig) (s streams, theirs [3]*os.File, err error) {
	if config.TTY {
		if s.terminal, theirs[0], err = openTerminal(); err != nil {
			return s, theirs, err
		}
		if config.User != nil { // so that it can open its terminal by name
			_ = theirs[0].Chown(int(*config.User), -1)
		}
		s.stdout = s.terminal
		if config.Stdin {
			s.input = s.terminal
		}
		return s, theirs, nil
	}
	if config.Stdin {
		theirs[0], s.input, err = os.Pipe()
	} else {
		theirs[0], err = os.Open(os.DevNull)
	}
	if err != nil {
		return s, theirs, err
	}
	if s.stdout, theirs[1], err = os.Pipe(); err != nil {
		return s, theirs, err
	}
	s.stderr, theirs[2], err = os.Pipe()
	return s, theirs, err
}

// wait obeys orders until the process has ended.
func (c *container) wait(ended, orders <-chan os.Signal) unix.WaitStatus {
	for {
		select {
		case order := <-orders:
			sig := unix.SIGTERM
			if order == signalKill {
				sig = unix.SIGKILL
			}
			// Its number can't have been reused: only this loop reaps it.
			_ = unix.Kill(-c.pid, sig)
		case start := <-c.sessions.starts:
			start.started <- c.command(start)
		case pid := <-c.sessions.kills:
			if _, lives := c.commands[pid]; lives {
				killSession(pid)
			}
		case <-ended:
			if status, ok := c.reap(); ok {
				return status
			}
		}
	}
}

// reap takes note of all children that have ended, and reports the end of the
// container's process.
func (c *container) reap() (unix.WaitStatus, bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return 0, false
		}
		if pid == c.pid {
			return status, true
		}
		if told, ok := c.commands[pid]; ok {
			told <- status
			delete(c.commands, pid)
		}
	}
}

// command starts a command beside the container's process.
func (c *container) command(start *startOrder) startOutcome {
	stdio, err := start.stdio()
	if err != nil {
		return startOutcome{err: err}
	}
	p := program{ContainerConfig: c.config.ContainerConfig, join: c.pid}
	p.Command, p.TTY = start.Exec, start.Terminal
	pid, err := spawn(p, c.cgroup, stdio)
	for i, f := range stdio {
		if f != nil && !start.has(f) {
			stdio[i].Close()
		}
	}
	if err != nil {
		return startOutcome{err: err}
	}
	told := make(chan unix.WaitStatus, 1)
	c.commands[pid] = told
	return startOutcome{pid: pid, ended: told}
}

// killAll kills and reaps all that descends from this shim: what loses its
// parent becomes the subreaper's child, so it ends when there are no children.
func (c *container) killAll() {
	for {
		c.cgroup.kill()
		for _, pid := range childrenOf(os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func exitOf(status unix.WaitStatus, oom bool) exitRecord {
	exit := exitRecord{ExitCode: int32(status.ExitStatus())}
	if status.Signaled() {
		exit.Signal = int32(status.Signal())
		exit.ExitCode = 128 + exit.Signal
	}
	if oom && exit.ExitCode != 0 {
		exit.Reason = node.ReasonOOMKilled
	}
	return exit
}

// sysProcAttr is what every process of a container is started with: a session
// of its own, dead when its parent is.
func sysProcAttr(config node.ContainerConfig) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if config.User != nil || config.Group != nil || len(config.Groups) > 0 {
		attr.Credential = credential(config)
	}
	return attr
}

func credential(config node.ContainerConfig) *syscall.Credential {
	c := &syscall.Credential{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())}
	if config.User != nil {
		c.Uid = uint32(*config.User)
	}
	if config.Group != nil {
		c.Gid = uint32(*config.Group)
	}
	for _, g := range config.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}
