// Package kubectl_test runs the commands of kubectl and looks at what they did: those of the module
// k8s.io/kubectl, and those of a kubectl on the PATH, if there is one.
package kubectl_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"

	"github.com/setpoint-dev/setpoint/conformance/server"
)

// beKubectl has the test's own program be kubectl, which its module has no main package for.
const beKubectl = "CONFORMANCE_BE_KUBECTL"

func TestMain(m *testing.M) {
	if os.Getenv(beKubectl) != "" {
		os.Exit(cli.Run(cmd.NewDefaultKubectlCommand()))
	}
	os.Exit(m.Run())
}

// patience bounds one command; kubectl's own waiting, which is shorter, comes first.
const patience = 4 * time.Minute

// kubectl is a kubectl that talks to a server.
type kubectl struct {
	t          *testing.T
	binary     string
	env        []string
	kubeconfig string
	dir        string
	setpoint   string // the program that the server is
}

// kubectls are the kubectls to test, by name.
func kubectls(t *testing.T) map[string]kubectl {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]kubectl{"0.37": {binary: own, env: []string{beKubectl + "=1"}}}
	if path, err := exec.LookPath("kubectl"); err == nil {
		all["on the PATH"] = kubectl{binary: path}
	}
	return all
}

// on returns the kubectl for a server, with caches of its own.
func (k kubectl) on(t *testing.T, s *server.Server) kubectl {
	k.t, k.kubeconfig, k.dir, k.setpoint = t, s.Kubeconfig, t.TempDir(), s.Binary
	return k
}

// in returns the kubectl for a test of its own namespace, which is then its default, and which goes with
// the test.
func (k kubectl) in(t *testing.T, namespace string) kubectl {
	t.Helper()
	k.t = t
	k.run("create", "namespace", namespace)
	data, err := os.ReadFile(k.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	k.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(k.kubeconfig, data, 0o600); err != nil {
		t.Fatal(err)
	}
	k.run("config", "set-context", "--current", "--namespace", namespace)
	t.Cleanup(func() { // what runs outlives the control plane; the test's context has ended by now
		out, err := k.command(context.Background(), "delete", "namespace", namespace, "--timeout=2m").CombinedOutput()
		if err != nil {
			t.Errorf("delete namespace %s: %v\n%s", namespace, err, out)
		}
	})
	return k
}

// run runs a command, which must succeed, and returns what it printed.
func (k kubectl) run(args ...string) string {
	k.t.Helper()
	out, errs, err := k.start("", args...)
	if err != nil {
		k.t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
	}
	return out
}

// given runs a command with something to read, which must succeed.
func (k kubectl) given(input string, args ...string) string {
	k.t.Helper()
	out, errs, err := k.start(input, args...)
	if err != nil {
		k.t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
	}
	return out
}

// fails runs a command, which must fail and say so with a text.
func (k kubectl) fails(with string, args ...string) {
	k.t.Helper()
	out, errs, err := k.start("", args...)
	if err == nil || !strings.Contains(out+errs, with) {
		k.t.Errorf("kubectl %s: %v, want a failure that says %q\n%s%s", strings.Join(args, " "), err, with, out, errs)
	}
}

func (k kubectl) start(input string, args ...string) (out, errs string, err error) {
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	command := k.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &stdout, &stderr
	err = command.Run()
	return stdout.String(), stderr.String(), err
}

func (k kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, k.binary, args...)
	command.Env = append(os.Environ(), append(k.env, "KUBECONFIG="+k.kubeconfig, "HOME="+k.dir)...)
	command.Dir = k.dir
	return command
}

// is fails the test unless a field has a value.
func (k kubectl) is(want, object, field string) {
	k.t.Helper()
	if got := k.run("get", object, "-o", "jsonpath={"+field+"}"); got != want {
		k.t.Errorf("%s of %s is %q, want %q", field, object, got, want)
	}
}

// becomes waits until a field has a value.
func (k kubectl) becomes(want, object, field string) {
	k.t.Helper()
	k.run("wait", object, "--for=jsonpath={"+field+"}="+want, "--timeout=3m")
}

// says fails the test unless a command prints all of these.
func (k kubectl) says(texts []string, args ...string) {
	k.t.Helper()
	out := k.run(args...)
	for _, text := range texts {
		if !strings.Contains(out, text) {
			k.t.Errorf("kubectl %s does not say %q:\n%s", strings.Join(args, " "), text, out)
		}
	}
}

func (k kubectl) file(name, content string) string {
	k.t.Helper()
	path := filepath.Join(k.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		k.t.Fatal(err)
	}
	return path
}
