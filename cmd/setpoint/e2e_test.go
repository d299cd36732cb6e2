package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/setpoint-dev/setpoint/cmd/setpoint/internal/probe"
	"github.com/setpoint-dev/setpoint/cmd/setpoint/internal/scheme"
	"github.com/setpoint-dev/setpoint/examples"
	"github.com/setpoint-dev/setpoint/node/process"
)

// TestMain lets the test binary be the program: as a container's keeper, and under the name that
// the examples call it by.
func TestMain(m *testing.M) {
	if handled, code := process.Main(os.Args); handled {
		os.Exit(code)
	}
	if os.Getenv(asProgram) != "" || filepath.Base(os.Args[0]) == "setpoint" {
		os.Exit(run(os.Args))
	}
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const asProgram = "SETPOINT_TEST_RUN_MAIN"

// stepMax bounds each wait. What is waited for takes well under a second; a loaded machine with the
// race detector needs more.
const stepMax = 2 * time.Minute

// A machine is a folder, with a control plane that runs on it as a process of its own.
type machine struct {
	t      *testing.T
	dir    string
	listen string
	run    string // the command of the control plane: "up" or "server"
	args   []string
	up     *exec.Cmd
	client client.WithWatch
}

func newMachine(t *testing.T, run string, args ...string) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir(), listen: "127.0.0.1:" + strconv.Itoa(freePort(t)), run: run, args: args}
	if err := os.Symlink(mustExecutable(t), filepath.Join(m.dir, "setpoint")); err != nil {
		t.Fatal(err)
	}
	m.start()
	t.Cleanup(m.end)
	return m
}

// start runs `setpoint up` and returns when its kubeconfig works.
func (m *machine) start() {
	m.t.Helper()
	ready, w, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	defer ready.Close()
	out, err := os.OpenFile(m.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer out.Close()
	m.up = m.command(append([]string{m.run, "--data-dir", filepath.Join(m.dir, "data"),
		"--listen", m.listen, "--kubeconfig", m.kubeconfig()}, m.args...)...)
	m.up.Stdout, m.up.Stderr = w, out
	if err := m.up.Start(); err != nil {
		m.t.Fatal(err)
	}
	w.Close()
	// It says on its standard output that it is ready; the end of that output means that it died.
	if !firstLine(ready, "ready") {
		m.t.Fatalf("setpoint up did not get ready:\n%s", m.tail())
	}
	config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig())
	if err != nil {
		m.t.Fatal(err)
	}
	config.QPS = -1
	m.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		m.t.Fatal(err)
	}
}

// command is the program with arguments, not yet started.
func (m *machine) command(args ...string) *exec.Cmd {
	cmd := exec.Command(mustExecutable(m.t), args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "PATH="+m.dir+":"+os.Getenv("PATH"))
	return cmd
}

// firstLine reads until a line has the word in it.
func firstLine(r io.Reader, word string) bool {
	var read []byte
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		read = append(read, buf[:n]...)
		if bytes.Contains(read, []byte(word)) {
			return true
		}
		if err != nil {
			return false
		}
	}
}

// step is a subtest in which the machine reports to the subtest.
func (m *machine) step(do func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		whole := m.t
		m.t = t
		defer func() { m.t = whole }()
		do(t)
	}
}

// kill ends the control plane without giving it any time.
func (m *machine) kill() {
	m.t.Helper()
	if err := m.up.Process.Kill(); err != nil {
		m.t.Fatal(err)
	}
	_ = m.up.Wait()
}

func (m *machine) end() {
	if m.up.ProcessState == nil {
		_ = m.up.Process.Signal(syscall.SIGTERM)
		if err := m.up.Wait(); err != nil {
			m.t.Errorf("setpoint up ended with %v:\n%s", err, m.tail())
		}
	}
	if m.t.Failed() {
		m.t.Logf("the end of the log of setpoint up:\n%s", m.tail())
	}
	// Workloads outlive the control plane; those of a test that failed must not outlive the test.
	for _, pid := range m.processes("__shim") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (m *machine) kubeconfig() string { return filepath.Join(m.dir, "kubeconfig") }
func (m *machine) log() string        { return filepath.Join(m.dir, "up.log") }

func (m *machine) tail() string {
	data, _ := os.ReadFile(m.log())
	return string(data[max(0, len(data)-6000):])
}

// apply declares the example as a server-side apply does.
func (m *machine) apply(ctx context.Context) {
	m.t.Helper()
	docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(examples.Web), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := docs.Decode(obj); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			m.t.Fatal(err)
		}
		obj.SetNamespace("default")
		err := m.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("e2e"))
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// until lists again after each event, until the condition holds.
func until[L client.ObjectList](m *machine, what string, list L, holds func(L) bool, opts ...client.ListOption) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), stepMax)
	defer cancel()
	for {
		if err := m.client.List(ctx, list, opts...); err != nil {
			m.t.Fatalf("%s: %v", what, err)
		}
		if holds(list) {
			return
		}
		watch, err := m.client.Watch(ctx, list, append(opts, &client.ListOptions{Raw: since(list)})...)
		if err != nil {
			m.t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-watch.ResultChan():
		case <-ctx.Done():
			m.t.Errorf("did not come true within %s: %s", stepMax, what)
		}
		watch.Stop()
		if ctx.Err() != nil {
			m.t.FailNow()
		}
	}
}

var ofWeb = client.MatchingLabels{"app": "web"}

// pods waits until the pods of the example are as they should be, and returns them.
func (m *machine) pods(what string, holds func([]corev1.Pod) bool) []corev1.Pod {
	m.t.Helper()
	var list corev1.PodList
	until(m, what, &list, func(l *corev1.PodList) bool { return holds(l.Items) }, client.InNamespace("default"), ofWeb)
	return list.Items
}

// settled waits until the deployment is as declared, and returns its pods.
func (m *machine) settled(what string) []corev1.Pod {
	m.t.Helper()
	var list appsv1.DeploymentList
	until(m, what, &list, func(l *appsv1.DeploymentList) bool {
		if len(l.Items) != 1 {
			return false
		}
		d := &l.Items[0]
		return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == *d.Spec.Replicas &&
			d.Status.AvailableReplicas == *d.Spec.Replicas && d.Status.Replicas == *d.Spec.Replicas
	}, client.InNamespace("default"), ofWeb)
	want := int(*list.Items[0].Spec.Replicas)
	return m.pods(what, func(pods []corev1.Pod) bool { return len(pods) == want })
}

// processOf returns the id of the process that runs a pod of the example.
func (m *machine) processOf(pod *corev1.Pod) int {
	m.t.Helper()
	pid, err := probe.Process(m.t.Context(), net.JoinHostPort(pod.Status.PodIP, "8080"))
	if err != nil {
		m.t.Fatalf("%s: %v", pod.Name, err)
	}
	return pid
}

// TestMainJob is what the whole thing is for, with real processes: declare a service, and it runs,
// heals, rolls out, survives the control plane's death in the middle of that, and goes.
func TestMainJob(t *testing.T) {
	m := newMachine(t, "up")
	ctx := t.Context()

	m.apply(ctx)
	pods := m.settled("three processes answer")
	pids := map[string]int{}
	for i := range pods {
		pids[pods[i].Name] = m.processOf(&pods[i])
	}

	t.Run("heals", m.step(func(t *testing.T) {
		victim := &pods[0]
		began := time.Now()
		if err := syscall.Kill(pids[victim.Name], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		m.pods("the killed process is replaced", func(now []corev1.Pod) bool {
			for i := range now {
				if now[i].Name == victim.Name {
					return ready(&now[i]) && now[i].Status.ContainerStatuses[0].RestartCount == 1
				}
			}
			return false
		})
		t.Logf("a ready replacement after %s", time.Since(began))
		if pid := m.processOf(victim); pid == pids[victim.Name] {
			t.Errorf("process %d answers, which was killed", pid)
		}
	}))

	t.Run("rolls out without a failed request", m.step(func(t *testing.T) {
		stop := m.startProbe(t)
		m.setGreeting("second")
		m.settled("the rollout is complete")
		stop()
	}))

	t.Run("finishes a rollout that the control plane died in", m.step(func(t *testing.T) {
		stop := m.startProbe(t)
		m.setGreeting("third")
		half := m.pods("one process of three is new", func(pods []corev1.Pod) bool {
			return len(withGreeting(pods, "third")) > 0
		})
		m.kill()
		alive := map[string]int{}
		for _, pod := range withGreeting(half, "third") {
			alive[pod.Name] = m.processOf(&pod)
		}
		m.start()
		done := m.settled("the rollout is complete after the restart")
		stop()
		for _, pod := range withGreeting(done, "third") {
			before, was := alive[pod.Name]
			if restarts := pod.Status.ContainerStatuses[0].RestartCount; was && (restarts != 0 || m.processOf(&pod) != before) {
				t.Errorf("%s was right before the restart and was started again", pod.Name)
			}
		}
		if n := len(withGreeting(done, "third")); n != 3 {
			t.Errorf("%d processes are of the new template, want 3", n)
		}
		if got := len(m.processes("echo")); got != 3 {
			t.Errorf("%d processes run, want the 3 that are declared", got)
		}
	}))

	t.Run("goes", m.step(func(t *testing.T) {
		for _, obj := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}} {
			obj.SetNamespace("default")
			obj.SetName("web")
			if err := m.client.Delete(ctx, obj); err != nil {
				t.Fatal(err)
			}
		}
		m.pods("no pod is left", func(pods []corev1.Pod) bool { return len(pods) == 0 })
		var sets appsv1.ReplicaSetList
		until(m, "no replica set is left", &sets, func(l *appsv1.ReplicaSetList) bool { return len(l.Items) == 0 },
			client.InNamespace("default"))
		if left := m.processes("echo"); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	}))
}

// TestServerAndNodeApart runs the two in processes of their own: the node finds the server, and the
// server asks the node for a log over the connection that the node has opened.
func TestServerAndNodeApart(t *testing.T) {
	m := newMachine(t, "server")
	node := m.command("node", "--kubeconfig", m.kubeconfig(), "--data-dir", filepath.Join(m.dir, "node"), "--node-name", "far")
	var said bytes.Buffer
	node.Stderr = &said
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = node.Process.Signal(syscall.SIGTERM)
		if err := node.Wait(); err != nil || t.Failed() {
			t.Errorf("setpoint node ended with %v:\n%s", err, said.String())
		}
	}()
	m.apply(t.Context())
	pods := m.settled("three processes answer")
	if got := pods[0].Spec.NodeName; got != "far" {
		t.Errorf("the pod is on node %q, want far", got)
	}
	config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := web.Get(config.Host + "/api/v1/namespaces/default/pods/" + pods[0].Name + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if want := pods[0].Name + ": listening on " + pods[0].Status.PodIP + ":8080\n"; err != nil || string(text) != want {
		t.Errorf("the log is %q (%v), want %q", text, err, want)
	}
	for _, obj := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}} {
		obj.SetNamespace("default")
		obj.SetName("web")
		if err := m.client.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	m.pods("no pod is left", func(pods []corev1.Pod) bool { return len(pods) == 0 })
}

// TestNamespaceGoesWithEverythingInIt deletes a namespace with 500 objects.
func TestNamespaceGoesWithEverythingInIt(t *testing.T) {
	m := newMachine(t, "up")
	ctx := t.Context()
	ns := &corev1.Namespace{}
	ns.Name = "full"
	if err := m.client.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		var obj client.Object = &corev1.ConfigMap{Data: map[string]string{"i": strconv.Itoa(i)}}
		if i%5 == 0 {
			obj = &corev1.Secret{StringData: map[string]string{"i": strconv.Itoa(i)}}
		}
		obj.SetNamespace("full")
		obj.SetName(fmt.Sprintf("o%d", i))
		if err := m.client.Create(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.client.Delete(ctx, ns); err != nil {
		t.Fatal(err)
	}
	var all corev1.NamespaceList
	until(m, "the namespace is gone", &all, func(l *corev1.NamespaceList) bool {
		for _, ns := range l.Items {
			if ns.Name == "full" {
				return false
			}
		}
		return true
	})
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}} {
		if err := m.client.List(ctx, list, client.InNamespace("full")); err != nil {
			t.Fatal(err)
		}
		if n := listLen(list); n != 0 {
			t.Errorf("%d objects of %T outlived their namespace", n, list)
		}
	}
	err := m.client.Get(ctx, client.ObjectKeyFromObject(ns), ns)
	if !apierrors.IsNotFound(err) {
		t.Errorf("reading the namespace: %v, want not found", err)
	}
}

// startProbe has a client ask the service; the function it returns ends that and says what failed.
func (m *machine) startProbe(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	p := probe.Start(ctx, m.client, "web")
	return func() {
		cancel()
		p.Wait()
		sent, failed := p.Counts()
		if failed > 0 || sent == 0 {
			t.Errorf("%d of %d requests failed, the last with: %v", failed, sent, p.LastError())
		}
		t.Logf("%d requests, %d failed", sent, failed)
	}
}

func (m *machine) setGreeting(to string) {
	m.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"GREETING","value":%q}]}]}}}}`, to)
	obj := &appsv1.Deployment{}
	obj.Namespace, obj.Name = "default", "web"
	err := m.client.Patch(m.t.Context(), obj, client.RawPatch("application/strategic-merge-patch+json", []byte(patch)))
	if err != nil {
		m.t.Fatal(err)
	}
}

// withGreeting returns the ready pods of a template.
func withGreeting(pods []corev1.Pod, greeting string) (with []corev1.Pod) {
	for _, pod := range pods {
		for _, env := range pod.Spec.Containers[0].Env {
			if env.Name == "GREETING" && env.Value == greeting && ready(&pod) {
				with = append(with, pod)
			}
		}
	}
	return with
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// processes returns the ids of the processes that were started from the machine's folder with a
// first argument: "echo" for the example's, "__shim" for the keepers of all.
func (m *machine) processes(argument string) (pids []int) {
	m.t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, proc := range dirs {
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		args := strings.Split(string(cmdline), "\x00")
		if len(args) > 1 && args[1] == argument && bytes.Contains(append(cmdline, environ...), []byte(m.dir)) {
			if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
