package kubectl_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// sleeping is a deployment whose pods are processes that do nothing.
const sleeping = `apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 1
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: c, image: host, command: [sleep, "1000000"], env: [{name: A, value: "1"}]}
`

func set(k kubectl) {
	k.given(sleeping, "apply", "-f", "-")
	k.run("set", "env", "deployment/d", "A=2", "B=3")
	k.is("2 3", "deployment/d", ".spec.template.spec.containers[0].env[*].value")
	k.run("set", "image", "deployment/d", "c=other")
	k.is("other", "deployment/d", ".spec.template.spec.containers[0].image")
	k.run("set", "resources", "deployment/d", "--limits=cpu=200m")
	k.is("200m", "deployment/d", ".spec.template.spec.containers[0].resources.limits.cpu")
	k.run("set", "serviceaccount", "deployment/d", "default")
	k.is("default", "deployment/d", ".spec.template.spec.serviceAccountName")
	k.run("create", "service", "clusterip", "s", "--tcp=80")
	k.run("set", "selector", "service/s", "app=d")
	k.is("d", "service/s", ".spec.selector.app")
	k.run("create", "rolebinding", "r", "--clusterrole=view", "--user=u")
	k.run("set", "subject", "rolebinding/r", "--user=v")
	k.is("u v", "rolebinding/r", ".subjects[*].name")
}

func workloads(k kubectl) {
	k.given(sleeping, "apply", "-f", "-")
	k.says([]string{"successfully rolled out"}, "rollout", "status", "deployment/d", "--timeout=3m")
	k.run("scale", "deployment/d", "--replicas=2", "--current-replicas=1")
	k.run("wait", "deployment/d", "--for=jsonpath={.status.availableReplicas}=2", "--timeout=3m")
	k.fails("Expected", "scale", "deployment/d", "--replicas=3", "--current-replicas=1")

	k.run("set", "env", "deployment/d", "A=2")
	k.run("rollout", "status", "deployment/d", "--timeout=3m")
	k.says([]string{"1", "2"}, "rollout", "history", "deployment/d")
	k.says([]string{"A:", "1"}, "rollout", "history", "deployment/d", "--revision=1")
	k.run("rollout", "undo", "deployment/d")
	k.is("1", "deployment/d", ".spec.template.spec.containers[0].env[0].value")
	k.run("rollout", "pause", "deployment/d")
	k.is("true", "deployment/d", ".spec.paused")
	k.run("rollout", "resume", "deployment/d")
	k.run("rollout", "restart", "deployment/d")
	k.run("rollout", "status", "deployment/d", "--timeout=3m")

	k.run("autoscale", "deployment/d", "--min=1", "--max=3", "--cpu-percent=50")
	k.is("3", "hpa/d", ".spec.maxReplicas")
	k.run("expose", "deployment/d", "--port=80", "--target-port=8080")
	k.is("d", "service/d", ".spec.selector.app")
	k.run("delete", "deployment/d", "--cascade=foreground", "--timeout=3m")
	if pods := k.run("get", "pods", "-l", "app=d", "-o", "name"); pods != "" {
		k.t.Errorf("pods are left of a deployment that was deleted in the foreground: %s", pods)
	}
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)

// processes talks to what runs: a shell that prints and then serves a port.
func processes(k kubectl) {
	k.run("run", "p", "--image=host", "--restart=Never", "--command", "--", "sh", "-c",
		"echo to the log; exec "+k.setpoint+" echo --drain 0s")
	k.run("wait", "pod/p", "--for=condition=Ready", "--timeout=3m")
	k.says([]string{"to the log"}, "logs", "p")
	k.says([]string{"Z to the log"}, "logs", "p", "--tail=5", "--timestamps", "-c", "p")
	k.says([]string{"hello"}, "exec", "p", "--", "echo", "hello")
	if out := k.given("typed", "exec", "-i", "p", "--", "cat"); out != "typed" {
		k.t.Errorf("cat in the pod printed %q of what was typed", out)
	}
	k.fails("exit code 3", "exec", "p", "--", "sh", "-c", "exit 3")

	from, to := k.file("from.txt", "carried"), filepath.Join(k.dir, "to.txt")
	inside := filepath.Join(k.dir, "inside.txt")
	k.run("cp", from, "p:"+inside)
	k.run("cp", "p:"+inside, to)
	if data, err := os.ReadFile(to); err != nil || string(data) != "carried" {
		k.t.Errorf("what came back of a copy is %q, %v", data, err)
	}
	k.forwards("p")
	k.run("delete", "pod", "p", "--now", "--timeout=3m")
	k.fails("NotFound", "get", "pod", "p")

	if out := k.run("run", "once", "--image=host", "--restart=Never", "--rm", "-i", "--quiet", "--command", "--", "echo", "once"); !strings.Contains(out, "once") {
		k.t.Errorf("a pod that was attached to printed %q", out)
	}
	k.fails("NotFound", "get", "pod", "once")
}

// forwards fetches a page through a forwarded port.
func (k kubectl) forwards(pod string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	command := k.command(ctx, "port-forward", "pod/"+pod, ":8080")
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	defer func() {
		cancel()
		command.Wait() // that it was killed is what was wanted
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	at := forwarding.FindStringSubmatch(line)
	if at == nil {
		k.t.Fatalf("port-forward printed %q, %v", line, err)
	}
	res, err := http.Get("http://" + at[1])
	if err != nil {
		k.t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || !strings.HasPrefix(string(body), "hello from") {
		k.t.Errorf("behind the forwarded port is %q, %v", body, err)
	}
}

func nodes(k kubectl) {
	k.given(sleeping, "apply", "-f", "-")
	k.run("rollout", "status", "deployment/d", "--timeout=3m")
	k.run("taint", "node", "machine", "a=b:PreferNoSchedule")
	k.is("PreferNoSchedule", "node/machine", `.spec.taints[?(@.key=="a")].effect`)
	k.run("taint", "node", "machine", "a-")
	k.is("", "node/machine", `.spec.taints[?(@.key=="a")].effect`)
	k.run("cordon", "machine")
	k.is("true", "node/machine", ".spec.unschedulable")
	k.says([]string{"SchedulingDisabled"}, "get", "node", "machine")
	k.says([]string{"drained"}, "drain", "machine", "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=3m")
	k.run("wait", "deployment/d", "--for=jsonpath={.status.unavailableReplicas}=1", "--timeout=3m")
	k.run("uncordon", "machine")
	k.run("rollout", "status", "deployment/d", "--timeout=3m")
}
