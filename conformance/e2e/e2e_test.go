// Package e2e_test runs those of Kubernetes' own conformance tests that need no container image. Their
// program is not part of this module, and so the test is skipped where nobody names one:
//
//	E2E_TEST=FILE KUBECTL=FILE go test ./e2e -timeout 1h -v
//
// E2E_TEST is e2e.test of Kubernetes 1.37, which a release has among its test files, and KUBECTL the
// kubectl beside it. Which tests there are, and what runs them, says testdata.
package e2e_test

import (
	"cmp"
	"encoding/xml"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/conformance/server"
)

// groups are the tests by what they need of a cluster. Each has a file in testdata and a cluster of its
// own.
var groups = []struct {
	name    string
	command string // that starts the cluster
	args    []string
	join    []string // the arguments of `setpoint node` for nodes that join it
	nodes   int      // that there are
}{
	{name: "alone", command: "server", args: []string{"--history=2m"}}, // whose end a test waits for
	{name: "controllers", command: "server"},
	{name: "nodes", command: "server", join: []string{"--simulated=3"}, nodes: 3},
	{name: "jobs", command: "server", join: []string{"--simulated=3", "--simulated-jobs-end"}, nodes: 3},
	{name: "processes", command: "up", nodes: 1},
}

// processesMax is how many programs of tests run side by side; most of the time all of them wait.
const processesMax = 4

// serial marks tests that must have the cluster for themselves.
const serial = "[Serial]"

func TestKubernetes(t *testing.T) {
	program := os.Getenv("E2E_TEST")
	if program == "" {
		t.Skip("E2E_TEST names no program of Kubernetes' tests")
	}
	known := knownFailures(t)
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			s := server.Start(t, g.command, g.args...)
			if g.join != nil {
				joinNodes(t, s, g.join)
			}
			names := lines(t, g.name)
			r := &runner{program: program, kubeconfig: s.Kubeconfig, nodes: g.nodes, dir: t.TempDir(), outcomes: map[string]outcome{}}
			r.run(t, names)
			passed := 0
			for _, name := range names {
				o := r.outcomes[name]
				if o.Status == "passed" {
					passed++
				}
				t.Run(name, func(t *testing.T) { o.report(t, known[name]) })
			}
			t.Logf("%d of %d pass", passed, len(names))
		})
	}
}

// outcome is what became of a test, as the program's report has it.
type outcome struct {
	Name    string `xml:"name,attr"`
	Status  string `xml:"status,attr"`
	Failure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	} `xml:"failure"`
}

// report passes what is as expected: a test that is known to fail is skipped, with the reason, as long
// as it does.
func (o outcome) report(t *testing.T, why string) {
	switch {
	case o.Status == "passed" && why != "":
		t.Errorf("it passes: take it out of testdata/failing.txt, where it says: %s", why)
	case o.Status == "passed":
	case why != "":
		t.Skip(why)
	default:
		t.Errorf("%s: %s\n%s", cmp.Or(o.Status, "it was not run"), o.Failure.Message, o.Failure.Text)
	}
}

// runner runs tests on one cluster.
type runner struct {
	program, kubeconfig, dir string
	nodes                    int

	mu       sync.Mutex // guards outcomes
	outcomes map[string]outcome
}

// run runs the tests, several at a time but for those that must be alone, which come last.
func (r *runner) run(t *testing.T, names []string) {
	shards := make([][]string, processesMax+1)
	for i, name := range names {
		at := i % processesMax
		if strings.Contains(name, serial) {
			at = processesMax
		}
		shards[at] = append(shards[at], name)
	}
	var running sync.WaitGroup
	for i, shard := range shards[:processesMax] {
		running.Go(func() { r.runOne(t, strconv.Itoa(i), shard) })
	}
	running.Wait()
	r.runOne(t, "serial", shards[processesMax])
}

// runOne runs one program with some of the tests, and notes what became of them.
func (r *runner) runOne(t *testing.T, id string, names []string) {
	if len(names) == 0 {
		return
	}
	focus := make([]string, len(names))
	for i, name := range names {
		focus[i] = regexp.QuoteMeta(name)
	}
	report := filepath.Join(r.dir, id+".xml")
	cmd := exec.CommandContext(t.Context(), r.program,
		"--kubeconfig="+r.kubeconfig, "--kubectl-path="+cmp.Or(os.Getenv("KUBECTL"), "kubectl"),
		"--provider=skeleton", "--num-nodes="+strconv.Itoa(r.nodes), "--allowed-not-ready-nodes=-1", "--minStartupPods=-1",
		"--disable-log-dump", "--dump-logs-on-failure=false", "--ginkgo.timeout=30m", "--ginkgo.no-color",
		"--ginkgo.focus=("+strings.Join(focus, "|")+")", "--ginkgo.junit-report="+report)
	cmd.Dir = r.dir
	said, err := cmd.CombinedOutput() // which fails if a test does; the report has more to say
	text, readErr := os.ReadFile(report)
	var suites struct {
		Cases []outcome `xml:"testsuite>testcase"`
	}
	if readErr == nil {
		readErr = xml.Unmarshal(text, &suites)
	}
	if readErr != nil {
		t.Errorf("%s: %v, and no report: %v\n%s", r.program, err, readErr, said)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range suites.Cases {
		for _, name := range names {
			if o.Status != "skipped" && strings.HasPrefix(strings.TrimPrefix(o.Name, "[It] "), name) {
				r.outcomes[name] = o
			}
		}
	}
}

// joinNodes has nodes join the cluster until the test ends.
func joinNodes(t *testing.T, s *server.Server, args []string) {
	t.Helper()
	cmd := exec.Command(s.Binary, append([]string{"node", "--node-name", "node",
		"--kubeconfig", s.Kubeconfig, "--data-dir", t.TempDir()}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("setpoint node: %v", err)
		}
	})
	runSystemPods(t, s)
}

// runSystemPods has a pod on each node that goes by the names of those which the tests look for there,
// and else wait for, a minute each.
func runSystemPods(t *testing.T, s *server.Server) {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "system"}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy.fluentd-elasticsearch.node-problem-detector"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
			},
		},
	}
	if _, err := client.AppsV1().DaemonSets("kube-system").Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// lines are those of a file in testdata, without empty ones.
func lines(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return line == "" })
}

// knownFailures says of tests why they fail, by their names.
func knownFailures(t *testing.T) map[string]string {
	t.Helper()
	known := map[string]string{}
	for _, line := range lines(t, "failing") {
		name, why, ok := strings.Cut(line, " # ")
		if !ok {
			t.Fatalf("failing.txt: %q is not NAME # WHY", line)
		}
		known[name] = why
	}
	return known
}

// TestListsAreInOrder has no test in two groups, and none known to fail that is in none.
func TestListsAreInOrder(t *testing.T) {
	of := map[string]string{}
	for _, g := range groups {
		for _, name := range lines(t, g.name) {
			if other := of[name]; other != "" {
				t.Errorf("%s is in %s and in %s", name, other, g.name)
			}
			of[name] = g.name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(knownFailures(t))) {
		if of[name] == "" {
			t.Errorf("failing.txt has %s, which is in no group", name)
		}
	}
}
