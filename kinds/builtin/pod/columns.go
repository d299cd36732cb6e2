package pod

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func columns() []kinds.Column {
	cell := func(f func(summary, time.Time) string) func(kinds.Object, time.Time) any {
		return func(obj kinds.Object, now time.Time) any { return f(summarize(obj), now) }
	}
	orNone := func(path ...string) func(kinds.Object, time.Time) any {
		return func(obj kinds.Object, _ time.Time) any {
			return table.Or(tree.Str(obj, path...), table.None)
		}
	}
	status, spec := corev1.PodStatus{}.SwaggerDoc(), corev1.PodSpec{}.SwaggerDoc()
	return append([]kinds.Column{
		table.Name(),
		table.Column("Ready", "The aggregate readiness state of this pod for accepting traffic.",
			cell(func(s summary, _ time.Time) string { return fmt.Sprintf("%d/%d", s.ready, s.total) })),
		table.Column("Status", "The aggregate status of the containers in this pod.",
			cell(func(s summary, _ time.Time) string { return s.reason })),
		table.Column("Restarts",
			"The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
			cell(summary.restartsText)),
		table.Age(),
	}, table.Wide(
		table.Column("IP", status["podIP"], orNone("status", "podIP")),
		table.Column("Node", spec["nodeName"], orNone("spec", "nodeName")),
		table.Column("Nominated Node", status["nominatedNodeName"],
			orNone("status", "nominatedNodeName")),
		table.Column("Readiness Gates", spec["readinessGates"], readinessGatesCell),
	)...)
}

func readinessGatesCell(obj kinds.Object, _ time.Time) any {
	gates := tree.List(obj, "spec", "readinessGates")
	if len(gates) == 0 {
		return table.None
	}
	met := 0
	for _, g := range tree.Maps(obj, "spec", "readinessGates") {
		if conditionTrue(obj, tree.Str(g, "conditionType")) {
			met++
		}
	}
	return fmt.Sprintf("%d/%d", met, len(gates))
}

func conditionTrue(obj kinds.Object, kind string) bool {
	c := tree.Find(tree.List(obj, "status", "conditions"), "type", kind)
	return tree.Str(c, "status") == "True"
}

// summary is a pod in the few words of a line of kubectl get pods.
type summary struct {
	ready, total int
	reason       string
	restarts     int64
	lastRestart  time.Time
}

func (s summary) restartsText(now time.Time) string {
	if s.restarts == 0 || s.lastRestart.IsZero() {
		return strconv.FormatInt(s.restarts, 10)
	}
	return fmt.Sprintf("%d (%s ago)", s.restarts,
		table.Since(s.lastRestart.Format(time.RFC3339), now))
}

func summarize(obj kinds.Object) summary {
	phase, statusReason := tree.Str(obj, "status", "phase"), tree.Str(obj, "status", "reason")
	s := summary{
		total:  len(tree.List(obj, "spec", "containers")),
		reason: table.Or(statusReason, phase),
	}
	scheduled := tree.Find(tree.List(obj, "status", "conditions"), "type", "PodScheduled")
	if tree.Str(scheduled, "reason") == "SchedulingGated" {
		s.reason = "SchedulingGated"
	}
	for _, c := range tree.Maps(obj, "spec", "initContainers") {
		if isSidecar(c) {
			s.total++
		}
	}
	sidecars, initializing := s.addInit(obj)
	if !initializing || conditionTrue(obj, "Initialized") {
		s.restarts, s.lastRestart = sidecars.restarts, sidecars.lastRestart
		s.addContainers(obj)
	}
	if tree.Has(obj, "metadata", "deletionTimestamp") {
		switch {
		case statusReason == "NodeLost":
			s.reason = "Unknown"
		case phase != "Succeeded" && phase != "Failed":
			s.reason = "Terminating"
		}
	}
	return s
}

func isSidecar(c map[string]any) bool { return tree.Str(c, "restartPolicy") == "Always" }

// addInit goes through the init containers up to the first that is not done; it returns the restarts
// of sidecars among them, and whether there is one that is not done.
func (s *summary) addInit(obj kinds.Object) (sidecars summary, initializing bool) {
	containers := tree.List(obj, "spec", "initContainers")
	for i, c := range tree.Maps(obj, "status", "initContainerStatuses") {
		s.addRestarts(c)
		sidecar := isSidecar(tree.Find(containers, "name", tree.Str(c, "name")))
		if sidecar {
			sidecars.addRestarts(c)
		}
		ended := tree.Map(c, "state", "terminated")
		waiting := tree.Str(c, "state", "waiting", "reason")
		switch {
		case ended != nil && tree.Int(ended, "exitCode") == 0:
			continue
		case sidecar && tree.Bool(c, "started"):
			if tree.Bool(c, "ready") {
				s.ready++
			}
			continue
		case ended != nil:
			s.reason = "Init:" + endReason(ended)
		case waiting != "" && waiting != "PodInitializing":
			s.reason = "Init:" + waiting
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(containers))
		}
		return sidecars, true
	}
	return sidecars, false
}

// addContainers goes through the regular containers from the last to the first, so that the first
// with something to say is heard.
func (s *summary) addContainers(obj kinds.Object) {
	running, failure := false, ""
	statuses := tree.List(obj, "status", "containerStatuses")
	for i := len(statuses) - 1; i >= 0; i-- {
		c, _ := statuses[i].(map[string]any)
		s.addRestarts(c)
		ended := tree.Map(c, "state", "terminated")
		waiting := tree.Str(c, "state", "waiting", "reason")
		switch {
		case waiting != "":
			s.reason = waiting
		case ended != nil:
			s.reason = endReason(ended)
			if tree.Int(ended, "exitCode") != 0 {
				failure = s.reason
			}
		case tree.Bool(c, "ready") && tree.Has(c, "state", "running"):
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	switch { // some ended well, but not all did
	case running && conditionTrue(obj, "Ready"):
		s.reason = "Running"
	case failure != "":
		s.reason = failure
	case running:
		s.reason = "NotReady"
	}
}

func (s *summary) addRestarts(c map[string]any) {
	s.restarts += tree.Int(c, "restartCount")
	if t := table.Time(tree.Str(c, "lastState", "terminated", "finishedAt")); t.After(s.lastRestart) {
		s.lastRestart = t
	}
}

func endReason(ended map[string]any) string {
	if reason := tree.Str(ended, "reason"); reason != "" {
		return reason
	}
	if signal := tree.Int(ended, "signal"); signal != 0 {
		return fmt.Sprintf("Signal:%d", signal)
	}
	return fmt.Sprintf("ExitCode:%d", tree.Int(ended, "exitCode"))
}
