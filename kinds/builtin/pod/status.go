package pod

import (
	"net/netip"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// validateStatusUpdate checks a status that an agent or a scheduler reports.
func validateStatusUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	status, oldStatus := check.Root(obj).Child("status"), check.Root(old).Child("status")
	conditions(&e, status)
	if tree.Str(obj, "spec", "nodeName") != tree.Str(old, "spec", "nodeName") {
		e.Forbidden(status.At("nodeName"), "may not be changed directly")
	}
	nominated(&e, status, oldStatus.Str("nominatedNodeName"),
		tree.Str(old, "spec", "nodeName") != "")
	if n := status.Int("observedGeneration"); n < 0 {
		e.Invalid(status.At("observedGeneration"), n, "must be a non-negative integer")
	}
	e.Unchanged(status, oldStatus, "qosClass")
	spec := tree.Map(old, "spec")
	stayTerminated(&e, status, oldStatus, "containerStatuses", tree.List(spec, "containers"), spec)
	stayTerminated(&e, status, oldStatus, "initContainerStatuses", tree.List(spec, "initContainers"), spec)
	stayTerminated(&e, status, oldStatus, "ephemeralContainerStatuses", nil, spec)
	addresses(&e, status, "podIP", "podIPs")
	if status.Len("podIPs") == 0 && status.Str("podIP") != "" {
		e.Invalid(status.At("podIPs"), nil,
			"podIP and podIPs must either both be set or both be unset")
	}
	addresses(&e, status, "hostIP", "hostIPs")
	return e.List()
}

// ownConditions are those whose names need not be qualified, because they are Kubernetes' own.
var ownConditions = sets.New("PodScheduled", "Ready", "Initialized")

func conditions(e *check.Errors, status check.At) {
	for _, c := range status.Each("conditions") {
		if n := c.Int("observedGeneration"); n < 0 {
			e.Invalid(c.At("observedGeneration"), n, "must be a non-negative integer")
		}
		if kind := c.Str("type"); !ownConditions.Has(kind) {
			e.QualifiedName(c.At("Type"), kind)
		}
	}
}

func nominated(e *check.Errors, status check.At, was string, bound bool) {
	name := status.Str("nominatedNodeName")
	if name == "" || name == was {
		return
	}
	path := status.At("nominatedNodeName")
	e.Messages(path, name, apivalidation.NameIsDNSSubdomain(name, false))
	if bound {
		e.Forbidden(path, "may not be set on pods that are already bound to a node")
	}
}

// stayTerminated checks that a container that has ended for good is not said to run again. Without
// containers to look up, none may.
func stayTerminated(e *check.Errors, status, old check.At, list string, containers []any,
	spec map[string]any) {
	if restartsAll(spec) {
		return
	}
	now := tree.List(status.Map, list)
	path := status.At(list)
	for i, was := range tree.Maps(old.Map, list) {
		ended := tree.Map(was, "state", "terminated")
		name := tree.Str(was, "name")
		is := tree.Find(now, "name", name)
		if ended == nil || is == nil || tree.Has(is, "state", "terminated") {
			continue
		}
		c := tree.Find(containers, "name", name)
		if c == nil || !restarts(c, spec, tree.Int(ended, "exitCode")) {
			e.Forbidden(path.Index(i).Child("state"),
				"may not be transitioned to non-terminated state")
		}
	}
}

// restarts says whether a container that ended with an exit code is started again: by its own rules,
// by its own policy, or by the pod's.
func restarts(c, spec map[string]any, exitCode int64) bool {
	for _, rule := range tree.Maps(c, "restartPolicyRules") {
		in := slices.Contains(tree.List(rule, "exitCodes", "values"), any(exitCode))
		if in == (tree.Str(rule, "exitCodes", "operator") == "In") {
			return true
		}
	}
	policy := tree.Str(c, "restartPolicy")
	if policy == "" {
		policy = tree.Str(spec, "restartPolicy")
	}
	switch policy {
	case "Always":
		return true
	case "OnFailure":
		return exitCode != 0
	}
	return false
}

// restartsAll says whether the end of some container may start all of them again.
func restartsAll(spec map[string]any) bool {
	for _, list := range []string{"initContainers", "containers"} {
		for _, c := range tree.Maps(spec, list) {
			for _, rule := range tree.Maps(c, "restartPolicyRules") {
				if tree.Str(rule, "action") == "RestartAllContainers" {
					return true
				}
			}
		}
	}
	return false
}

// addresses checks a list of addresses, at most one of each family, and that the single field is its
// first.
func addresses(e *check.Errors, status check.At, single, list string) {
	path := status.At(list)
	var families []bool // is it IPv6
	first := ""
	for i, v := range tree.List(status.Map, list) {
		m, _ := v.(map[string]any)
		ip := tree.Str(m, "ip")
		if i == 0 {
			first = ip
		}
		e.IP(path.Index(i), ip)
		addr, err := netip.ParseAddr(ip)
		families = append(families, err == nil && addr.Is6())
	}
	if len(families) > 2 || len(families) == 2 && families[0] == families[1] {
		e.Invalid(path, status.Get(list), "may specify no more than one IP for each IP family")
	}
	if len(families) > 0 && first != status.Str(single) {
		e.Invalid(path.Index(0).Child("ip"), first, "must be equal to `"+single+"`")
	}
}
