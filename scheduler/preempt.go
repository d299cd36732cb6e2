package scheduler

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
)

// A pod that fits nowhere may have others of lower priority end. Until they have, it is the nominee
// of their node: what they leave is kept from all who do not come before it.

// preemption is how room is made for a pod. The zero value is not at all.
type preemption struct {
	node    string
	victims []*corev1.Pod // those that have to go, the most important first
	cost    cost
}

// cost is what a preemption does to others; the smaller is the better, part by part.
type cost struct {
	budgets  int       // victims whose disruption a budget does not allow
	highest  int32     // the victims' highest priority
	sum      int64     // of the victims' priorities, each counted as positive
	youngest time.Time // the latest start of the victims of that priority; the later the better
}

func (c cost) compare(o cost) int {
	return cmp.Or(cmp.Compare(c.budgets, o.budgets), cmp.Compare(c.highest, o.highest),
		cmp.Compare(c.sum, o.sum), o.youngest.Compare(c.youngest))
}

// candidatesMax is among how many nodes on which room could be made the best one is looked for.
// Each costs a look at all its pods, and at all pods where there are rules about them.
const candidatesMax = 100

// preempt chooses the node where room for a pod costs others least. Where as much as the pod needs is
// already on its way out, the answer names the node and no victims.
func preempt(pod *corev1.Pod, nodes map[string]*nodeInfo, labels labelsOf, budgets []budget) preemption {
	if policy := pod.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return preemption{}
	}
	w := newWant(pod, nodes, labels)
	var best preemption
	candidates := 0
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[name]
		if n.node == nil || w.unfit(n.node) != "" {
			continue
		}
		p, ok := w.makeRoom(name, nodes, labels, budgets)
		if !ok {
			continue
		}
		if best.node == "" || p.cost.compare(best.cost) < 0 {
			best = p
		}
		if candidates++; candidates == candidatesMax {
			break
		}
	}
	best.victims = slices.DeleteFunc(best.victims, leaving)
	return best
}

// makeRoom says who has to go from a node: of the pods of lower priority as few, and as unimportant
// ones, as will do; and that none would.
func (w *want) makeRoom(
	name string, nodes map[string]*nodeInfo, labels labelsOf, budgets []budget,
) (preemption, bool) {
	var lower []*podInfo
	for _, p := range nodes[name].pods {
		if schedulingcorev1.PodPriority(p.pod) < w.priority {
			lower = append(lower, p)
		}
	}
	if len(lower) == 0 {
		return preemption{}, false
	}
	left := w.meets(nodes[name]).clone()
	for _, p := range lower {
		left.drop(p)
	}
	world := nodes
	if w.apart.rules() {
		world = maps.Clone(nodes)
		world[name] = left
	}
	fits := func() bool {
		apart := &w.apart
		if apart.rules() {
			without := newTopology(w, world, labels)
			apart = &without
		}
		return len(w.occupied(left, apart)) == 0
	}
	if !fits() {
		return preemption{}, false
	}
	slices.SortFunc(lower, byImportance)
	guarded, free := guard(lower, budgets)
	p := preemption{node: name, cost: cost{highest: math.MinInt32}}
	for i, candidate := range slices.Concat(guarded, free) {
		left.put(candidate)
		if fits() {
			continue
		}
		left.drop(candidate)
		if i < len(guarded) {
			p.cost.budgets++
		}
		p.cost.add(candidate.pod)
		p.victims = append(p.victims, candidate.pod)
	}
	return p, true
}

func (c *cost) add(victim *corev1.Pod) {
	priority := schedulingcorev1.PodPriority(victim)
	c.sum += int64(priority) - math.MinInt32
	if started := startOf(victim); priority > c.highest || started.After(c.youngest) {
		c.youngest = started
	}
	c.highest = max(c.highest, priority)
}

// byImportance puts pods that are to be spared first: those that leave anyway last, then by priority
// and by how long they have run.
func byImportance(a, b *podInfo) int {
	stays := func(p *podInfo) int {
		if leaving(p.pod) {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(stays(a), stays(b)),
		cmp.Compare(schedulingcorev1.PodPriority(b.pod), schedulingcorev1.PodPriority(a.pod)),
		startOf(a.pod).Compare(startOf(b.pod)),
		cmp.Compare(a.pod.UID, b.pod.UID),
	)
}

func leaving(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }

func startOf(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return pod.CreationTimestamp.Time
}

// budget is what a PodDisruptionBudget allows now.
type budget struct {
	namespace string
	selector  labels.Selector
	allowed   int32
	disrupted map[string]metav1.Time // pods that are counted as gone already
}

func budgetsOf(list []policyv1.PodDisruptionBudget) (budgets []budget) {
	for i := range list {
		selector, err := metav1.LabelSelectorAsSelector(list[i].Spec.Selector)
		if err != nil {
			continue // refused by validation
		}
		budgets = append(budgets, budget{
			list[i].Namespace, selector, list[i].Status.DisruptionsAllowed, list[i].Status.DisruptedPods,
		})
	}
	return budgets
}

// guard divides pods, keeping their order, into those that a budget does not allow to be disrupted
// once the ones before them are, and the rest.
func guard(pods []*podInfo, budgets []budget) (guarded, free []*podInfo) {
	spent := make([]int32, len(budgets))
	for _, p := range pods {
		allowed := true
		for i, b := range budgets {
			_, gone := b.disrupted[p.pod.Name]
			if gone || leaving(p.pod) || b.namespace != p.pod.Namespace ||
				!b.selector.Matches(labels.Set(p.pod.Labels)) {
				continue
			}
			spent[i]++
			allowed = allowed && spent[i] <= b.allowed
		}
		if allowed {
			free = append(free, p)
		} else {
			guarded = append(guarded, p)
		}
	}
	return guarded, free
}

// meets returns a node as the pod finds it: with the nominees on it that do not come after the pod.
func (w *want) meets(n *nodeInfo) *nodeInfo {
	if len(n.nominees) == 0 {
		return n
	}
	met := n.clone()
	for uid, nominee := range n.nominees {
		if uid != w.pod.UID && schedulingcorev1.PodPriority(nominee.pod) >= w.priority {
			met.put(nominee)
		}
	}
	return met
}

// preempt decides how room is made for a pod, and notes it as the nominee of the node at once. A pod
// for which room is being made already is answered with its node, and no more victims.
func (l *ledger) preempt(pod *corev1.Pod, labels labelsOf, budgets []budget) preemption {
	l.mu.Lock()
	defer l.mu.Unlock()
	if node, ok := l.roomIsMade(pod); ok {
		return preemption{node: node}
	}
	p := preempt(pod, l.nodes, labels, budgets)
	l.denominate(pod.UID)
	if p.node != "" {
		l.nominate(newPodInfo(pod, p.node, true))
	}
	return p
}

// roomIsMade says for which node a pod is nominated, if pods of lower priority are leaving it.
func (l *ledger) roomIsMade(pod *corev1.Pod) (string, bool) {
	nominee := l.nominees[pod.UID]
	if nominee == nil {
		return "", false
	}
	n := l.nodes[nominee.node]
	if n.node == nil || newWant(pod, nil, nil).unfit(n.node) != "" {
		return "", false
	}
	for _, p := range n.pods {
		if leaving(p.pod) && schedulingcorev1.PodPriority(p.pod) < schedulingcorev1.PodPriority(pod) {
			return nominee.node, true
		}
	}
	return "", false
}

// heardOfNominee notes what a pod without a node says of itself. One that says nothing keeps a
// nomination made here: the event may be older.
func (l *ledger) heardOfNominee(pod *corev1.Pod) {
	known, node := l.nominees[pod.UID], pod.Status.NominatedNodeName
	if terminal(pod) || leaving(pod) || node == "" && known != nil && !known.assumed {
		l.denominate(pod.UID)
	} else if node != "" {
		l.denominate(pod.UID)
		l.nominate(newPodInfo(pod, node, false))
	}
}

func (l *ledger) nominate(p *podInfo) {
	l.nominees[p.pod.UID] = p
	l.node(p.node).nominees[p.pod.UID] = p
}

func (l *ledger) denominate(uid types.UID) {
	if p := l.nominees[uid]; p != nil {
		delete(l.nominees, uid)
		delete(l.nodes[p.node].nominees, uid)
		l.prune(p.node)
	}
}

// unnominate takes back a nomination that could not be written.
func (l *ledger) unnominate(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.denominate(uid)
}
