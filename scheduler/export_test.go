package scheduler

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Ledger is the ledger, for tests of decisions.
type Ledger struct{ *ledger }

func NewLedger() Ledger { return Ledger{newLedger()} }

func (l Ledger) SetNode(n *corev1.Node) { l.setNode(n) }
func (l Ledger) DropNode(name string)   { l.dropNode(name) }
func (l Ledger) SetPod(p *corev1.Pod)   { l.setPod(p) }
func (l Ledger) DropPod(p *corev1.Pod)  { l.dropPod(p.UID) }
func (l Ledger) Known() int             { return len(l.nodes) + len(l.pods) + len(l.nominees) }

// Preempt returns where room is made for a pod, and the names of those who have to go.
func (l Ledger) Preempt(p *corev1.Pod, budgets ...policyv1.PodDisruptionBudget) (node string, victims []string) {
	made := l.preempt(p, func(string) labels.Set { return nil }, budgetsOf(budgets))
	for _, v := range made.victims {
		victims = append(victims, v.Name)
	}
	return made.node, victims
}

func (l Ledger) Place(p *corev1.Pod) (string, string) {
	d := l.place(p, func(string) labels.Set { return nil })
	if d.node != "" {
		return d.node, ""
	}
	return "", d.message()
}

func NewReconciler(c client.Client, live client.Reader, clk clock.PassiveClock, rec events.EventRecorder) *Reconciler {
	return newReconciler(c, live, clk, rec, corev1.DefaultSchedulerName)
}

func (r *Reconciler) PodEvents() handler.EventHandler  { return r.podEvents() }
func (r *Reconciler) NodeEvents() handler.EventHandler { return r.nodeEvents() }
