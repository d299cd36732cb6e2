package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cmd/setpoint/internal/scheme"
)

// A plane is the control plane of the demonstration: a process of its own, so that it can be
// killed as processes are.
type plane struct {
	dir    string // of data, kubeconfig and log
	listen string
	cmd    *exec.Cmd
}

// start runs `setpoint up` and returns when it answers, with the time that took.
func (p *plane) start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	log, err := os.OpenFile(filepath.Join(p.dir, "up.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	p.cmd = exec.Command(self, "up", "--data-dir", filepath.Join(p.dir, "data"),
		"--listen", p.listen, "--kubeconfig", p.kubeconfig())
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A process group of its own: Ctrl-C in the terminal is for the demonstration, which ends its
	// control plane after it has cleaned up.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return 0, err
	}
	for {
		if p.answers(ctx) {
			return time.Since(began), nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return 0, err
		}
		if time.Since(began) > 30*time.Second {
			return 0, fmt.Errorf("the control plane did not answer within 30 s; its log is %s", log.Name())
		}
	}
}

func (p *plane) kubeconfig() string { return filepath.Join(p.dir, "kubeconfig") }

func (p *plane) config() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", p.kubeconfig())
}

// answers says whether the control plane is ready to be asked.
func (p *plane) answers(ctx context.Context) bool {
	config, err := p.config()
	if err != nil {
		return false
	}
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := web.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}

// client returns a client of the control plane. It outlives restarts: the certificates stay.
func (p *plane) client() (client.Client, error) {
	config, err := p.config()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return client.New(config, client.Options{Scheme: scheme.New()})
}

// kill ends the control plane without giving it any time.
func (p *plane) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// stop asks the control plane to end.
func (p *plane) stop() {
	if p.cmd == nil || p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
