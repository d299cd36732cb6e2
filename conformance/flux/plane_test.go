package flux

import (
	"context"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// plane is a control plane in a process of its own, with a node, and what runs against it.
type plane struct {
	dir        string // where programs and data are
	kubeconfig string
	client     dynamic.Interface
	storage    string // where source-controller serves what it fetched
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{dir: t.TempDir(), storage: freeAddress(t)}
	build(t, filepath.Join("..", ".."), filepath.Join(p.dir, "setpoint"), "./cmd/setpoint")
	data := filepath.Join(p.dir, "data")
	p.kubeconfig = filepath.Join(data, "kubeconfig")
	log := p.run(t, "setpoint", "up", "--data-dir", data, "--listen", "127.0.0.1:0")
	log.await(t, "ready after")

	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	p.client = dynamic.NewForConfigOrDie(config)
	namespace := &unstructured.Unstructured{}
	namespace.SetAPIVersion("v1")
	namespace.SetKind("Namespace")
	namespace.SetName("flux-system")
	if _, err := p.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// storageFlags have source-controller serve what it fetched on an address that the others can reach.
func (p *plane) storageFlags(t *testing.T) []string {
	return []string{"--storage-path=" + t.TempDir(), "--storage-addr=" + p.storage, "--storage-adv-addr=" + p.storage}
}

// applyDefinitions installs the CustomResourceDefinitions that the controllers' modules hold.
func (p *plane) applyDefinitions(t *testing.T, controllers ...string) {
	t.Helper()
	definitions := schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
	for _, controller := range controllers {
		folder := filepath.Join(moduleDir(t, controller), "config", "crd", "bases")
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no definitions in %s: %v", folder, err)
		}
		for _, file := range files {
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(read(t, file), &obj.Object); err != nil {
				t.Fatal(err)
			}
			if _, err := p.client.Resource(definitions).Apply(t.Context(), obj.GetName(), obj,
				metav1.ApplyOptions{FieldManager: "flux"}); err != nil {
				t.Fatalf("%s: %v", filepath.Base(file), err)
			}
		}
	}
}

// runController builds a controller of Flux and runs it until the test ends.
func (p *plane) runController(t *testing.T, name string, flags ...string) {
	t.Helper()
	build(t, ".", filepath.Join(p.dir, name), "github.com/fluxcd/"+name)
	p.run(t, name, append([]string{
		"--health-addr=127.0.0.1:0", "--metrics-addr=0", "--log-encoding=console",
	}, flags...)...)
}

// run runs a program until the test ends. What it printed is shown if the test has failed by then.
func (p *plane) run(t *testing.T, name string, args ...string) *output {
	t.Helper()
	out := &output{grew: make(chan struct{}, 1)}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(p.dir, name), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig, "RUNTIME_NAMESPACE=flux-system")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, out)
		}
	})
	return out
}

// repository is a git repository, served over HTTP by git itself.
type repository struct{ url, folder string }

func newRepository(t *testing.T) *repository {
	t.Helper()
	root := t.TempDir()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	git(t, root, "init", "-q", "--bare", "-b", "main", "served.git")
	git(t, root, "init", "-q", "-b", "main", "work")
	server := httptest.NewServer(http.Handler(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
	}))
	t.Cleanup(server.Close)
	return &repository{url: server.URL + "/served.git", folder: filepath.Join(root, "work")}
}

// commit makes the repository hold these files and no others.
func (r *repository) commit(t *testing.T, files map[string]string) {
	t.Helper()
	git(t, r.folder, "rm", "-q", "-r", "--ignore-unmatch", ".")
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(r.folder, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, r.folder, "add", "-A")
	git(t, r.folder, "-c", "user.name=somebody", "-c", "user.email=somebody@example.dev", "commit", "-q", "-m", "change")
	git(t, r.folder, "push", "-q", "../served.git", "main")
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func build(t *testing.T, dir, to, what string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", to, what)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", what, err, out)
	}
}

func moduleDir(t *testing.T, controller string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fluxcd/"+controller).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// freeAddress is one that nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
