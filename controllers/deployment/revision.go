package deployment

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
	"k8s.io/utils/ptr"
)

// Annotations that kubectl and other tools know a deployment's sets by.
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history"
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"
)

const (
	// historyMax bounds the history annotation: about a hundred revisions, the oldest forgotten
	// first. It is Kubernetes' value.
	historyMax = 2000
	// nameMax is the longest name of an object.
	nameMax = 253
)

// hashTemplate returns the label value that tells the sets of different templates apart: a hash of
// the template, and the one that Kubernetes' controller computes, so that people and tools find the names
// that they know. A version that gives templates new fields changes it, which does no harm: a set is
// recognized by its template. collisions is how often the hash met a different template, and makes it
// another one.
func hashTemplate(template *corev1.PodTemplateSpec, collisions *int32) string {
	hash := fnv.New32a()
	io.WriteString(hash, dump.ForHash(*withoutHash(template)))
	if collisions != nil {
		hash.Write(binary.LittleEndian.AppendUint64(nil, uint64(uint32(*collisions))))
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10))
}

// createCurrent plans the set of the declared template, of the size that replicas computes.
func (r *rollout) createCurrent(replicas func(*rollout) int32) {
	d := r.deployment
	labels := maps.Clone(d.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[appsv1.DefaultDeploymentUniqueLabelKey] = r.hash
	selector := d.Spec.Selector.DeepCopy()
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] = r.hash
	template := *d.Spec.Template.DeepCopy()
	template.Labels = labels

	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            setName(d.Name, r.hash),
			Namespace:       d.Namespace,
			Labels:          maps.Clone(labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, kind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        ptr.To(replicas(r)),
			MinReadySeconds: d.Spec.MinReadySeconds,
			Selector:        selector,
			Template:        template,
		},
	}
	r.current, r.created = set, true
	r.copyAnnotations(set)
	annotate(set, revisionAnnotation, strconv.FormatInt(maxRevision(r.old)+1, 10))
	r.noteSize(set)
	r.noteCreated(set)
}

// setName is the deployment's name and the hash, the former cut if both are too long.
func setName(deployment, hash string) string {
	if room := nameMax - len(hash) - 1; len(deployment) > room {
		deployment = deployment[:room]
	}
	return deployment + "-" + hash
}

// syncCurrent keeps what the current set has from the deployment: its annotations, minReadySeconds,
// and the highest revision. A set that is used again gets a new revision and remembers the old one.
func (r *rollout) syncCurrent() {
	set := r.current
	if set == nil {
		return
	}
	r.copyAnnotations(set)
	set.Spec.MinReadySeconds = r.deployment.Spec.MinReadySeconds
	if next := maxRevision(r.old) + 1; revision(set) < next {
		if previous, ok := set.Annotations[revisionAnnotation]; ok {
			annotate(set, historyAnnotation, appendHistory(set.Annotations[historyAnnotation],
				previous))
		}
		annotate(set, revisionAnnotation, strconv.FormatInt(next, 10))
	}
	r.touched = append(r.touched, set)
	r.noteFound(set)
}

// copyAnnotations copies the deployment's annotations to the set, but for those that belong to one
// object alone.
func (r *rollout) copyAnnotations(set *appsv1.ReplicaSet) {
	for key, value := range r.deployment.Annotations {
		switch key {
		case corev1.LastAppliedConfigAnnotation, revisionAnnotation, historyAnnotation,
			desiredAnnotation, maxAnnotation, appsv1.DeprecatedRollbackTo:
		default:
			annotate(set, key, value)
		}
	}
}

// trimHistory removes the old sets with the lowest revisions that the history limit leaves no room
// for. A set that has or may have pods stays.
func (r *rollout) trimHistory() {
	limit := r.deployment.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return
	}
	alive := slices.DeleteFunc(slices.Clone(r.old), func(s *appsv1.ReplicaSet) bool { return s.DeletionTimestamp != nil })
	slices.SortFunc(alive, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(revision(a), revision(b)), byAge(a, b))
	})
	for i := range max(0, len(alive)-int(*limit)) {
		set := alive[i]
		if *set.Spec.Replicas == 0 && set.Status.Replicas == 0 &&
			set.Status.ObservedGeneration >= set.Generation {
			r.remove = append(r.remove, r.before[set])
		}
	}
}

// revision reads a set's revision; one that is missing or not a number is zero.
func revision(set *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func maxRevision(sets []*appsv1.ReplicaSet) int64 {
	var highest int64
	for _, set := range sets {
		highest = max(highest, revision(set))
	}
	return highest
}

// appendHistory adds a revision to a comma-separated list, forgetting the oldest beyond historyMax.
func appendHistory(history, revision string) string {
	if history == "" {
		return revision
	}
	history += "," + revision
	for len(history) > historyMax {
		_, rest, found := strings.Cut(history, ",")
		if !found {
			break
		}
		history = rest
	}
	return history
}

// count reads an annotation that is a number from zero up.
func count(set *appsv1.ReplicaSet, annotation string) (int32, bool) {
	n, err := strconv.ParseUint(set.Annotations[annotation], 10, 31)
	return int32(n), err == nil
}

func annotate(set *appsv1.ReplicaSet, key, value string) {
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	set.Annotations[key] = value
}
