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
	s := &container{dir: d, config: config}
	exit, err := s.run(ready)
	if err != nil {
		exit = exitRecord{ExitCode: startErrorCode, Reason: node.ReasonStartError, Message: err.Error()}
	}
	exit.FinishedAt = time.Now()
	return writeJSON(d.exit(), exit)
}

// container is the running instance inside its shim. One goroutine uses it.
type container struct {
	dir    dir
	config shimConfig
	cgroup *cgroup
	pid    int
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
	drained, err := c.start(log)
	if err != nil {
		return exitRecord{}, err
	}
	run := runRecord{PID: c.pid, StartedAt: time.Now(), Cgroup: c.config.Cgroup}
	if err := writeJSON(c.dir.state(), run); err != nil {
		c.killAll()
		return exitRecord{}, err
	}
	ready.Close()

	status := c.wait(ended, orders)
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
	if c.cgroup, err = newCgroup(c.config.Cgroup, c.config.ContainerConfig); err != nil {
		return nil, err
	}
	out, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer outW.Close()
	errs, errsW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer errsW.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()

	c.pid, err = spawn(c.config.ContainerConfig, c.cgroup, [3]*os.File{null, outW, errsW})
	if err != nil {
		return nil, err
	}
	var copies sync.WaitGroup
	for stream, r := range map[string]io.ReadCloser{logs.Stdout: out, logs.Stderr: errs} {
		copies.Go(func() {
			defer r.Close()
			// An error of the disk loses lines and must not end the container.
			_ = log.Copy(stream, r)
		})
	}
	done := make(chan struct{})
	go func() { copies.Wait(); close(done) }()
	return done, nil
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
		case <-ended:
			for {
				var status unix.WaitStatus
				pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
				if errors.Is(err, unix.EINTR) {
					continue
				}
				if err != nil || pid == 0 {
					break
				}
				if pid == c.pid {
					return status
				}
			}
		}
	}
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
