// Package deployment rolls a Deployment's pods from one template to the next by scaling the
// ReplicaSets it owns, one per template.
//
// A pass decides everything from a snapshot: which set is current (its template is the declared
// one), what size each set should have, which old sets the history no longer needs, and what the
// status says. The rules are Kubernetes': at most maxSurge pods above the declared number, at most
// maxUnavailable below it, unhealthy old pods first, proportional scaling in the middle of a
// rollout, revisions and the conditions that kubectl rollout reads. A rollout that is interrupted
// anywhere goes on from what the next pass sees.
//
// The progress deadline measures rollouts: once a rollout has completed, pods that become
// unavailable later are reported by the Available condition alone.
package deployment

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// snapshot is what a pass decides on. Nothing in it is changed.
type snapshot struct {
	Deployment *appsv1.Deployment
	Sets       []*appsv1.ReplicaSet // owned by the deployment
	// Pods are those of the sets; needed only for the Recreate strategy.
	Pods []*corev1.Pod
	// Hash names the set of the declared template, should it have to be made.
	Hash string
	Now  time.Time
}

// actions is what a pass does, in this order.
type actions struct {
	Create *appsv1.ReplicaSet // nil: none
	Update []change
	Remove []*appsv1.ReplicaSet
	// Revision is what the deployment's revision annotation should say; empty leaves it alone.
	Revision string
	Status   appsv1.DeploymentStatus
	// Wait is how long until the pass should be made again, though nothing may have changed; zero
	// means never.
	Wait time.Duration
}

// change is a set as it is, and as it should be: other replicas, annotations or minReadySeconds.
type change struct {
	From, To *appsv1.ReplicaSet
}

// plan decides one pass.
func plan(s snapshot) actions {
	r := newRollout(s)
	if r.deployment.DeletionTimestamp != nil {
		return actions{Status: r.status()}
	}
	r.notePause()
	switch {
	case r.deployment.Spec.Paused || r.rescaled():
		r.syncCurrent()
		r.scale()
		if r.deployment.Spec.Paused {
			r.trimHistory()
		}
		return r.actions(r.status())
	case r.deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		r.recreate(s.Pods)
	default:
		r.roll()
	}
	return r.actions(r.rolloutStatus())
}

// rollout is the state of one pass: the sets as they should be, so far.
type rollout struct {
	deployment *appsv1.Deployment
	hash       string
	now        time.Time

	current *appsv1.ReplicaSet   // of the declared template; nil if there is none
	old     []*appsv1.ReplicaSet // the others, oldest first
	before  map[*appsv1.ReplicaSet]*appsv1.ReplicaSet
	touched []*appsv1.ReplicaSet // in the order decided on; may repeat
	created bool                 // current is to be made
	remove  []*appsv1.ReplicaSet

	conditions []appsv1.DeploymentCondition
}

func newRollout(s snapshot) *rollout {
	r := &rollout{
		deployment: s.Deployment,
		hash:       s.Hash,
		now:        s.Now,
		before:     map[*appsv1.ReplicaSet]*appsv1.ReplicaSet{},
		conditions: slices.Clone(s.Deployment.Status.Conditions),
	}
	sets := slices.Clone(s.Sets)
	slices.SortFunc(sets, byAge)
	for _, set := range sets {
		own := editable(set)
		r.before[own] = set
		if r.current == nil && sameTemplate(&set.Spec.Template, &s.Deployment.Spec.Template) {
			r.current = own
		} else {
			r.old = append(r.old, own)
		}
	}
	return r
}

// editable copies what a plan may change; all else is shared with the original.
func editable(set *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	own := *set
	own.Annotations = maps.Clone(set.Annotations)
	own.Spec.Replicas = ptr.To(ptr.Deref(set.Spec.Replicas, 1))
	return &own
}

// sameTemplate compares pod templates but for the label that tells sets apart.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return equality.Semantic.DeepEqual(withoutHash(a), withoutHash(b))
}

func withoutHash(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	own := *t
	own.Labels = maps.Clone(t.Labels)
	delete(own.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return &own
}

func byAge(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name))
}

// all returns every set, the current one last.
func (r *rollout) all() []*appsv1.ReplicaSet {
	if r.current == nil {
		return r.old
	}
	return append(slices.Clone(r.old), r.current)
}

// resize sets a set's size and notes on it how large the deployment is meant to be, from which a
// later pass sees that the deployment was scaled.
func (r *rollout) resize(set *appsv1.ReplicaSet, replicas int32) {
	*set.Spec.Replicas = replicas
	r.noteSize(set)
	r.touched = append(r.touched, set)
}

// roll moves a rolling update one step: up if there is room, else down if that is safe.
func (r *rollout) roll() {
	r.syncCurrent()
	if r.current == nil {
		r.createCurrent(newReplicas)
	}
	want := r.want()
	have := *r.current.Spec.Replicas
	if have > want {
		r.resize(r.current, want)
		return
	}
	if next := newReplicas(r); next != have {
		r.resize(r.current, next)
		return
	}
	if !r.shrinkOld() && complete(r.deployment, &r.deployment.Status) {
		r.trimHistory()
	}
}

// recreate ends all old pods before the first new one is made.
func (r *rollout) recreate(pods []*corev1.Pod) {
	r.syncCurrent()
	if active := active(r.old); len(active) > 0 {
		for _, set := range active {
			r.resize(set, 0)
		}
		return
	}
	if r.oldPodsRun(pods) {
		return
	}
	if r.current == nil {
		r.createCurrent((*rollout).want)
	} else if *r.current.Spec.Replicas != r.want() {
		r.resize(r.current, r.want())
	}
	if complete(r.deployment, &r.deployment.Status) {
		r.trimHistory()
	}
}

// oldPodsRun reports whether a pod of another template may still run, as told by the sets or by the
// pods themselves, which also count while they terminate.
func (r *rollout) oldPodsRun(pods []*corev1.Pod) bool {
	for _, set := range r.old {
		if set.Status.Replicas > 0 {
			return true
		}
	}
	for _, pod := range pods {
		for _, ref := range pod.OwnerReferences {
			ofCurrent := r.current != nil && ref.UID == r.current.UID
			if ptr.Deref(ref.Controller, false) && !ofCurrent && !podfacts.Terminal(pod) {
				return true
			}
		}
	}
	return false
}

// actions collects what the pass came to.
func (r *rollout) actions(status appsv1.DeploymentStatus) actions {
	act := actions{Remove: r.remove, Status: status, Wait: r.deadline(&status)}
	if r.created {
		act.Create = r.current
	}
	seen := map[*appsv1.ReplicaSet]bool{}
	for _, set := range r.touched {
		from := r.before[set]
		if from == nil || seen[set] || !differs(from, set) {
			continue
		}
		seen[set] = true
		act.Update = append(act.Update, change{From: from, To: set})
	}
	if r.current != nil {
		act.Revision = r.current.Annotations[revisionAnnotation]
	}
	return act
}

func differs(a, b *appsv1.ReplicaSet) bool {
	return ptr.Deref(a.Spec.Replicas, 1) != *b.Spec.Replicas ||
		a.Spec.MinReadySeconds != b.Spec.MinReadySeconds ||
		!maps.Equal(a.Annotations, b.Annotations)
}
