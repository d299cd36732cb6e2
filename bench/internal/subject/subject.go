// Package subject runs what the benchmarks measure, each as a process of its own: Setpoint, what it
// is compared with, and a bare server that shows what is left when all work is taken away.
package subject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Subject is a control plane under measurement.
type Subject interface {
	// Start runs it on an empty folder and returns how long the first answer took.
	Start(context.Context) (time.Duration, error)
	// Stop ends it and returns when it has ended.
	Stop()
	// Lists says whether there are lists and watches.
	Lists() bool
	// Client returns a client that is an administrator, and the address to ask.
	Client() (*http.Client, string, error)
	// Processor is what its processes have used of the processors so far.
	Processor() time.Duration
	// Memory is what its processes have in memory.
	Memory() Memory
	// ForgetPeak has Memory.Peak begin anew.
	ForgetPeak()
}

// Memory is what processes have in memory, in bytes.
type Memory struct {
	Resident int64
	Made     int64 // by themselves: without what is mapped of files, which are the programs
	Peak     int64 // the most that was ever resident
}

// processes are what a subject consists of.
type processes struct{ running []*exec.Cmd }

func (p *processes) run(dir, name string, args ...string) error {
	log, err := os.Create(filepath.Join(dir, filepath.Base(name)+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running = append(p.running, cmd)
	return nil
}

func (p *processes) Lists() bool { return true }

func (p *processes) Stop() {
	for i := len(p.running) - 1; i >= 0; i-- {
		_ = p.running[i].Process.Signal(syscall.SIGTERM)
		_ = p.running[i].Wait()
	}
}

func (p *processes) Processor() time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ of Linux
	var sum time.Duration
	for _, cmd := range p.running {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if _, rest, ok := strings.Cut(string(stat), ") "); ok {
			fields := strings.Fields(rest) // the state is the first; utime and stime come 11 later
			user, _ := strconv.ParseInt(fields[11], 10, 64)
			system, _ := strconv.ParseInt(fields[12], 10, 64)
			sum += time.Duration(user+system) * tick
		}
	}
	return sum
}

func (p *processes) Memory() (sum Memory) {
	for _, cmd := range p.running {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		for line := range strings.Lines(string(status)) {
			name, value, _ := strings.Cut(line, ":")
			into := map[string]*int64{"VmRSS": &sum.Resident, "RssAnon": &sum.Made, "VmHWM": &sum.Peak}[name]
			if into == nil {
				continue
			}
			kb, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			*into += kb << 10
		}
	}
	return sum
}

func (p *processes) ForgetPeak() {
	for _, cmd := range p.running {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", cmd.Process.Pid), []byte("5"), 0)
	}
}

// untilReady asks until /readyz answers 200.
func untilReady(ctx context.Context, s Subject) error {
	for began := time.Now(); time.Since(began) < time.Minute && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		web, host, err := s.Client()
		if err != nil {
			continue
		}
		resp, err := web.Get(host + "/readyz")
		web.CloseIdleConnections()
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
	}
	return errors.Join(ctx.Err(), errors.New("not ready within a minute"))
}

// freePort returns a port that nobody listens on.
func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
