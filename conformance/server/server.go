// Package server runs Setpoint in a process of its own for a test, as its users do.
package server

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Server is a Setpoint that listens on a port of 127.0.0.1, which it keeps over restarts.
type Server struct {
	// Kubeconfig is the file that lets an administrator in.
	Kubeconfig string
	// Config is what Kubeconfig says.
	Config *rest.Config
	// Binary is the program that runs.
	Binary string

	args   []string
	proc   *exec.Cmd
	log    string // the file that holds what the process printed
	exited chan error
}

// patience is how long a program may take for what it does in a second on a machine with nothing else
// to do.
const patience = 2 * time.Minute

// Start starts `setpoint COMMAND ARGS…` with a new data folder and returns when it serves requests. The
// process ends with the test, which fails if it ends any other way than it was asked to.
func Start(t testing.TB, command string, args ...string) *Server {
	t.Helper()
	data := t.TempDir()
	s := &Server{Kubeconfig: filepath.Join(data, "kubeconfig"), Binary: binary(t), log: filepath.Join(data, "log")}
	s.args = append([]string{command, "--data-dir", data, "--listen", freeAddress(t)}, args...)
	t.Cleanup(func() {
		if s.proc != nil {
			s.stop(t, syscall.SIGTERM)
		}
		if t.Failed() {
			t.Logf("setpoint printed:\n%s", s.printed())
		}
	})
	s.start(t)
	return s
}

// Restart ends the process, at once if it is killed, and starts another on the same data.
func (s *Server) Restart(t testing.TB, by syscall.Signal) {
	t.Helper()
	s.stop(t, by)
	s.start(t)
}

func (s *Server) start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.exited = make(chan error, 1)
	s.proc = exec.Command(s.Binary, s.args...)
	s.proc.Stdout, s.proc.Stderr = log, log
	if err := s.proc.Start(); err != nil {
		s.proc = nil
		t.Fatal(err)
	}
	go func(p *exec.Cmd, exited chan<- error) { exited <- p.Wait() }(s.proc, s.exited)
	s.awaitReady(t)
}

// awaitReady returns when the server says that it is ready. It asks again and again, since a process
// that is about to listen has no other way to say so than to answer.
func (s *Server) awaitReady(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	var last error
	for {
		if last = s.ask(ctx); last == nil {
			return
		}
		select {
		case <-again.C:
		case err := <-s.exited:
			s.proc = nil
			t.Fatalf("setpoint ended before it was ready: %v", err)
		case <-ctx.Done():
			t.Fatalf("setpoint is not ready after %v: %v", patience, last)
		}
	}
}

func (s *Server) ask(ctx context.Context) (err error) {
	if _, err := os.Stat(s.Kubeconfig); err != nil {
		return err
	}
	if s.Config, err = clientcmd.BuildConfigFromFlags("", s.Kubeconfig); err != nil {
		return err
	}
	s.Config.QPS, s.Config.Burst = -1, -1
	client, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		return err
	}
	return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func (s *Server) stop(t testing.TB, by syscall.Signal) {
	t.Helper()
	proc := s.proc
	s.proc = nil
	proc.Process.Signal(by)
	select {
	case err := <-s.exited:
		var exit *exec.ExitError
		killed := errors.As(err, &exit) && by == syscall.SIGKILL
		if err != nil && !killed {
			t.Errorf("setpoint: %v", err)
		}
	case <-time.After(patience):
		proc.Process.Kill()
		t.Errorf("setpoint did not end within %v of %v", patience, by)
	}
}

// binary is the file that SETPOINT names, as `make test` has it, or one that is built now, once for all
// tests of a package.
func binary(t testing.TB) string {
	t.Helper()
	if file := os.Getenv("SETPOINT"); file != "" {
		return file
	}
	file, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// build builds what `make test` builds, and leaves it where the next package finds that there is nothing
// left to do.
var build = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	file := filepath.Join(root, "bin", "setpoint.conformance")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // which releases it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, "./cmd/setpoint")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return file, nil
})

func (s *Server) printed() []byte {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// freeAddress is one that nobody listens on now.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
