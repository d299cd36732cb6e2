package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// labelsOf returns the labels of a namespace.
type labelsOf func(namespace string) labels.Set

// domain is a part of the machines: those that have one value of a label.
type domain struct{ key, value string }

// topology is what a pod's rules about other pods say of each domain. It is computed once, over all
// pods, and only if there are any rules: the pod's own, or those of pods that are there.
type topology struct {
	beside  []affinity              // required: each must have a pod there
	apart   map[domain]bool         // required: none of these
	keptOut map[domain]bool         // domains that other pods keep for themselves
	spread  []spreading             // hard constraints
	counted map[spreadKey]int       // matching pods in a domain
	least   map[int]int             // the smallest count of any domain, by constraint
	known   map[int]map[string]bool // values that count as domains, by constraint
}

type affinity struct {
	key     string
	domains map[string]bool
	// first is set when nothing matches anywhere and the pod matches its own rule: somebody has to
	// be the first.
	first bool
}

type spreading struct {
	key  string
	skew int32
	self int // 1 if the pod counts itself
}

type spreadKey struct {
	constraint int
	value      string
}

func newTopology(w *want, nodes map[string]*nodeInfo, labelsOf labelsOf) topology {
	t := topology{apart: map[domain]bool{}, keptOut: map[domain]bool{}}
	if a := w.pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		for _, term := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			t.beside = append(t.beside, besideOf(w.pod, term, nodes, labelsOf))
		}
	}
	for _, term := range requiredAntiAffinity(w.pod) {
		match := matcher(w.pod, term, labelsOf)
		eachPod(nodes, func(n *nodeInfo, p *podInfo) {
			if value, ok := n.node.Labels[term.TopologyKey]; ok && match(p.pod) {
				t.apart[domain{term.TopologyKey, value}] = true
			}
		})
	}
	eachPod(nodes, func(n *nodeInfo, p *podInfo) {
		if !p.antiself {
			return
		}
		for _, term := range requiredAntiAffinity(p.pod) {
			if value, ok := n.node.Labels[term.TopologyKey]; ok && matcher(p.pod, term, labelsOf)(w.pod) {
				t.keptOut[domain{term.TopologyKey, value}] = true
			}
		}
	})
	t.countSpread(w, nodes)
	return t
}

// rules says whether other pods decide about any node. If they do not, fewer of them would not either.
func (t *topology) rules() bool {
	return len(t.beside)+len(t.apart)+len(t.keptOut)+len(t.spread) > 0
}

// eachPod calls a function with every pod on a node that exists.
func eachPod(nodes map[string]*nodeInfo, do func(*nodeInfo, *podInfo)) {
	for _, n := range nodes {
		if n.node == nil {
			continue
		}
		for _, p := range n.pods {
			do(n, p)
		}
	}
}

func besideOf(pod *corev1.Pod, term corev1.PodAffinityTerm, nodes map[string]*nodeInfo, labelsOf labelsOf) affinity {
	match := matcher(pod, term, labelsOf)
	a := affinity{key: term.TopologyKey, domains: map[string]bool{}}
	some := false
	eachPod(nodes, func(n *nodeInfo, p *podInfo) {
		if !match(p.pod) {
			return
		}
		some = true
		if value, ok := n.node.Labels[term.TopologyKey]; ok {
			a.domains[value] = true
		}
	})
	a.first = !some && match(pod)
	return a
}

func requiredAntiAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// matcher returns whether a term of a pod speaks of another pod.
func matcher(of *corev1.Pod, term corev1.PodAffinityTerm, labelsOf labelsOf) func(*corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	if err != nil {
		return func(*corev1.Pod) bool { return false } // refused by validation
	}
	namespaces, _ := metav1.LabelSelectorAsSelector(term.NamespaceSelector)
	inNamespace := func(ns string) bool {
		if len(term.Namespaces) == 0 && term.NamespaceSelector == nil {
			return ns == of.Namespace
		}
		return slices.Contains(term.Namespaces, ns) ||
			(term.NamespaceSelector != nil && namespaces.Matches(labelsOf(ns)))
	}
	return func(p *corev1.Pod) bool {
		return p.DeletionTimestamp == nil && inNamespace(p.Namespace) && selector.Matches(labels.Set(p.Labels))
	}
}

// countSpread counts, for each hard spread constraint, the pods it is about in each domain.
func (t *topology) countSpread(w *want, nodes map[string]*nodeInfo) {
	t.counted, t.least, t.known = map[spreadKey]int{}, map[int]int{}, map[int]map[string]bool{}
	for _, c := range w.pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			continue // refused by validation
		}
		i := len(t.spread)
		s := spreading{key: c.TopologyKey, skew: c.MaxSkew}
		if selector.Matches(labels.Set(w.pod.Labels)) {
			s.self = 1
		}
		t.spread = append(t.spread, s)
		t.known[i] = map[string]bool{}
		for _, n := range nodes {
			if n.node == nil {
				continue
			}
			value, ok := n.node.Labels[c.TopologyKey]
			if fits, err := w.required.Match(n.node); !ok || err != nil || !fits {
				continue
			}
			t.known[i][value] = true
			for _, p := range n.pods {
				if p.pod.Namespace == w.pod.Namespace && p.pod.DeletionTimestamp == nil &&
					selector.Matches(labels.Set(p.pod.Labels)) {
					t.counted[spreadKey{i, value}]++
				}
			}
		}
		t.least[i] = t.leastOf(i, c.MinDomains)
	}
}

func (t *topology) leastOf(constraint int, minDomains *int32) int {
	if minDomains != nil && len(t.known[constraint]) < int(*minDomains) {
		return 0
	}
	least := -1
	for value := range t.known[constraint] {
		if n := t.counted[spreadKey{constraint, value}]; least < 0 || n < least {
			least = n
		}
	}
	return max(least, 0)
}

// refuses says which rule keeps the pod off a node, or "".
func (t *topology) refuses(node *corev1.Node) string {
	for d := range t.keptOut {
		if value, ok := node.Labels[d.key]; ok && value == d.value {
			return keptAwayBy
		}
	}
	for _, a := range t.beside {
		value, ok := node.Labels[a.key]
		if !ok || (!a.first && !a.domains[value]) {
			return awayFrom
		}
	}
	for d := range t.apart {
		if value, ok := node.Labels[d.key]; ok && value == d.value {
			return apartFrom
		}
	}
	for i, s := range t.spread {
		value, ok := node.Labels[s.key]
		if !ok || t.counted[spreadKey{i, value}]+s.self-t.least[i] > int(s.skew) {
			return spreadUnevenly
		}
	}
	return ""
}
