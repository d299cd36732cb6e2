package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/internal/room"
)

// decision is where a pod goes, or why it goes nowhere.
type decision struct {
	node    string         // "" for nowhere
	nodes   int            // how many there are
	reasons map[string]int // how many nodes were refused for it
}

// message says why a pod has no node, in the words that users of Kubernetes know.
func (d decision) message() string {
	if d.nodes == 0 {
		return "no nodes available to schedule pods"
	}
	parts := make([]string, 0, len(d.reasons))
	for reason, n := range d.reasons {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	return fmt.Sprintf("0/%d nodes are available: %s.", d.nodes, strings.Join(parts, ", "))
}

// Why a node is refused.
const (
	notSelected    = "node(s) didn't match Pod's node affinity/selector"
	untolerated    = "node(s) had untolerated taint(s)"
	cordoned       = "node(s) were unschedulable"
	portsTaken     = "node(s) didn't have free ports for the requested pod ports"
	apartFrom      = "node(s) didn't match pod anti-affinity rules"
	awayFrom       = "node(s) didn't match pod affinity rules"
	keptAwayBy     = "node(s) didn't satisfy existing pods anti-affinity rules"
	spreadUnevenly = "node(s) didn't match pod topology spread constraints"
)

// place chooses a node for a pod among those that can take it: the one that keeps pods of one
// controller apart and the machines evenly loaded. With nothing to choose between, the first name
// wins, so that the same state gives the same answer. A node that the pod is nominated for wins over
// all: others may have been ended for it.
func place(pod *corev1.Pod, nodes map[string]*nodeInfo, labels labelsOf) decision {
	d := decision{reasons: map[string]int{}}
	w := newWant(pod, nodes, labels)
	best, bestScore := "", -1.0
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[name]
		if n.node == nil {
			continue
		}
		d.nodes++
		if reasons := w.refusals(w.meets(n)); len(reasons) > 0 {
			for _, reason := range reasons {
				d.reasons[reason]++
			}
			continue
		}
		if name == pod.Status.NominatedNodeName {
			return decision{node: name}
		}
		if score := w.score(n); score > bestScore {
			best, bestScore = name, score
		}
	}
	d.node = best
	return d
}

// want is a pod's side of the decision, computed once for all nodes.
type want struct {
	pod       *corev1.Pod
	priority  int32
	asks      room.Amounts
	ports     []room.HostPort
	required  nodeaffinity.RequiredNodeAffinity
	preferred *nodeaffinity.PreferredSchedulingTerms
	apart     topology
	owner     *metav1.OwnerReference
}

func newWant(pod *corev1.Pod, nodes map[string]*nodeInfo, labels labelsOf) *want {
	w := &want{
		pod:      pod,
		priority: schedulingcorev1.PodPriority(pod),
		asks:     room.AskedBy(pod),
		ports:    room.HostPorts(pod),
		required: nodeaffinity.GetRequiredNodeAffinity(pod),
		owner:    metav1.GetControllerOfNoCopy(pod),
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		// A term that can't be parsed was refused by validation.
		w.preferred, _ = nodeaffinity.NewPreferredSchedulingTerms(
			a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	w.apart = newTopology(w, nodes, labels)
	return w
}

// refusals are the reasons that a node can't take the pod. A node is refused for what it is before
// it is asked what it has left, so that a message does not count a machine twice.
func (w *want) refusals(n *nodeInfo) []string {
	if reason := w.unfit(n.node); reason != "" {
		return []string{reason}
	}
	return w.occupied(n, &w.apart)
}

// unfit says what a node is that the pod can't have, whatever else is on it, or "".
func (w *want) unfit(node *corev1.Node) string {
	if node.Spec.Unschedulable && !w.tolerates(&corev1.Taint{
		Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule,
	}) {
		return cordoned
	}
	if ok, err := w.required.Match(node); err != nil || !ok {
		return notSelected
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !w.tolerates(taint) {
			return untolerated
		}
	}
	return ""
}

// occupied are the reasons that the pods that are there leave no place for one more.
func (w *want) occupied(n *nodeInfo, apart *topology) []string {
	for _, p := range n.pods {
		for _, taken := range p.ports {
			if slices.ContainsFunc(w.ports, taken.Collides) {
				return []string{portsTaken}
			}
		}
	}
	var reasons []string
	for _, name := range n.free.Lacking(w.asks) {
		if name == corev1.ResourcePods {
			reasons = append(reasons, "Too many pods")
		} else {
			reasons = append(reasons, "Insufficient "+string(name))
		}
	}
	if len(reasons) > 0 {
		return reasons
	}
	if reason := apart.refuses(n.node); reason != "" {
		return []string{reason}
	}
	return nil
}

func (w *want) tolerates(taint *corev1.Taint) bool {
	return schedulingcorev1.TolerationsTolerateTaint(klog.Logger{}, w.pod.Spec.Tolerations, taint, true)
}

// What counts for how much in a score, each part being between 0 and 1. Keeping the copies of one
// thing apart comes first: that is what several machines are for.
const (
	weightSpread    = 4
	weightPreferred = 2
	weightTaint     = 2
	weightFree      = 1
)

func (w *want) score(n *nodeInfo) float64 {
	siblings := 0
	for _, p := range n.pods {
		if o := metav1.GetControllerOfNoCopy(p.pod); o != nil && w.owner != nil && o.UID == w.owner.UID {
			siblings++
		}
	}
	score := weightSpread / float64(1+siblings)
	score += weightFree * (w.left(n, corev1.ResourceCPU, cpuUnasked) +
		w.left(n, corev1.ResourceMemory, memoryUnasked) + w.left(n, corev1.ResourcePods, 1)) / 3
	if w.preferred != nil {
		score += weightPreferred * share(w.preferred.Score(n.node), w.preferredMax())
	}
	unwanted := 0
	for i := range n.node.Spec.Taints {
		taint := &n.node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule && !w.tolerates(taint) {
			unwanted++
		}
	}
	return score + weightTaint/float64(1+unwanted)
}

// A pod that asks for nothing uses something: what it is counted for when nodes are compared, a
// tenth of a CPU and 200 MiB, as Kubernetes' scheduler counts it.
const (
	cpuUnasked    = 100
	memoryUnasked = 200 << 20
)

// left is the share of a resource that the node has left with the pod on it, where one that asks for none
// of it is counted for unasked.
func (w *want) left(n *nodeInfo, name corev1.ResourceName, unasked int64) float64 {
	return share(n.free.Get(name)-cmp.Or(w.asks.Get(name), unasked), n.size.Get(name))
}

func (w *want) preferredMax() (sum int64) {
	for _, term := range w.pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		sum += int64(term.Weight)
	}
	return sum
}

// share is a part of a whole, between 0 and 1.
func share(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return min(1, max(0, float64(part)/float64(whole)))
}
