package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint"
)

// plane is a control plane without controllers, for commands to ask.
type plane struct {
	*testing.T
	kubeconfig string
	stop       func()
}

func newPlane(t *testing.T, opts setpoint.Options) *plane {
	t.Helper()
	opts.Listen, opts.Controllers = "127.0.0.1:0", []string{"none"}
	cp, err := setpoint.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { cp.Stop() })
	if err := cp.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	access, err := cp.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, access, 0o600); err != nil {
		t.Fatal(err)
	}
	return &plane{t, kubeconfig, stop}
}

// run runs a command on a control plane.
func (p *plane) run(stdin string, args ...string) (string, error) {
	return runCommand(p.T, stdin, append(args, "--kubeconfig", p.kubeconfig)...)
}

// must runs a command that succeeds.
func (p *plane) must(stdin string, args ...string) string {
	p.Helper()
	out, err := p.run(stdin, args...)
	if err != nil {
		p.Fatalf("%v: %v %s", args, err, out)
	}
	return out
}

// runCommand runs a command, and returns what it writes.
func runCommand(t *testing.T, stdin string, args ...string) (string, error) {
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func mustExecutable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// since are the options of a watch that goes on where a list ended.
func since(list client.ObjectList) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
}

func listLen(list client.ObjectList) int { return meta.LenList(list) }
