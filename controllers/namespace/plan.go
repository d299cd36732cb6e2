// Package namespace empties namespaces that are being deleted, and then lets them go.
//
// A pass deletes everything in the namespace, of whatever kind discovery knows: pods first, and
// nothing else until no pod is left, so that what a workload depends on (its configuration, its
// policies) outlives it (KEP-5080). What remains, what holds it and what could not be discovered or
// deleted stands in the namespace's conditions. The namespace is let go only after a pass that
// discovered every kind and found nothing.
package namespace

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is a kind of object whose instances can be deleted.
type resource struct {
	schema.GroupVersionResource
	// Collection says that all can be deleted in one request.
	Collection bool
}

var podsResource = schema.GroupResource{Resource: "pods"}

// stages orders resources: those of a stage are deleted together, after all objects of the stages
// before it are gone.
func stages(resources []resource) [][]resource {
	var pods, rest []resource
	for _, r := range resources {
		if r.GroupResource() == podsResource {
			pods = append(pods, r)
		} else {
			rest = append(rest, r)
		}
	}
	return [][]resource{pods, rest}
}

// deletable picks from discovery the resources that have objects in namespaces which can be deleted
// and listed.
func deletable(lists []*metav1.APIResourceList) ([]resource, error) {
	var resources []resource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("group version %q: %w", list.GroupVersion, err)
		}
		for _, r := range list.APIResources {
			if !r.Namespaced || strings.Contains(r.Name, "/") ||
				!slices.Contains(r.Verbs, "delete") || !slices.Contains(r.Verbs, "list") {
				continue
			}
			resources = append(resources, resource{gv.WithResource(r.Name),
				slices.Contains(r.Verbs, "deletecollection")})
		}
	}
	return resources, nil
}

// report is what a pass found. The zero value says that everything was discovered and is gone.
type report struct {
	Discovery error
	Parsing   error
	Deletion  []error
	// Remaining counts objects by resource, and Finalizers by what holds them.
	Remaining  map[schema.GroupVersionResource]int
	Finalizers map[string]int
}

func newReport() report {
	return report{Remaining: map[schema.GroupVersionResource]int{}, Finalizers: map[string]int{}}
}

// Empty reports whether the pass found nothing, and looked everywhere.
func (r report) Empty() bool {
	return len(r.Remaining) == 0 && r.Discovery == nil && r.Parsing == nil && len(r.Deletion) == 0
}

// note adds what is left of one resource.
func (r report) note(gvr schema.GroupVersionResource, left []metav1.PartialObjectMetadata) {
	if len(left) > 0 {
		r.Remaining[gvr] = len(left)
	}
	for i := range left {
		for _, finalizer := range left[i].Finalizers {
			r.Finalizers[finalizer]++
		}
	}
}

// conditions returns what the namespace's conditions should be, and whether that is a change. The
// types, reasons and messages are Kubernetes'; tools show them.
func conditions(old []corev1.NamespaceCondition, r report,
	now time.Time,
) ([]corev1.NamespaceCondition, bool) {
	next := slices.Clone(old)
	changed := false
	for _, c := range r.conditions() {
		c.LastTransitionTime = metav1.NewTime(now)
		i := slices.IndexFunc(next, func(o corev1.NamespaceCondition) bool { return o.Type == c.Type })
		if i < 0 {
			next = append(next, c)
			changed = true
			continue
		}
		if next[i].Status == c.Status {
			c.LastTransitionTime = next[i].LastTransitionTime
		}
		changed = changed || next[i] != c
		next[i] = c
	}
	return next, changed
}

func (r report) conditions() []corev1.NamespaceCondition {
	return []corev1.NamespaceCondition{
		condition(corev1.NamespaceDeletionDiscoveryFailure, "DiscoveryFailed", message(r.Discovery),
			"ResourcesDiscovered", "All resources successfully discovered"),
		condition(corev1.NamespaceDeletionGVParsingFailure, "GroupVersionParsingFailed",
			message(r.Parsing),
			"ParsedGroupVersions", "All legacy kube types successfully parsed"),
		condition(corev1.NamespaceDeletionContentFailure, "ContentDeletionFailed", r.deletionMessage(),
			"ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		condition(corev1.NamespaceContentRemaining, "SomeResourcesRemain", r.remainingMessage(),
			"ContentRemoved", "All content successfully removed"),
		condition(corev1.NamespaceFinalizersRemaining, "SomeFinalizersRemain", r.finalizersMessage(),
			"ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	}
}

// condition is true for the bad reason if there is a message about it, and else false.
func condition(kind corev1.NamespaceConditionType,
	bad, badMessage, good, goodMessage string,
) corev1.NamespaceCondition {
	if badMessage != "" {
		return corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionTrue, Reason: bad,
			Message: badMessage}
	}
	return corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: good,
		Message: goodMessage}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (r report) deletionMessage() string {
	if len(r.Deletion) == 0 {
		return ""
	}
	texts := make([]string, len(r.Deletion))
	for i, err := range r.Deletion {
		texts[i] = err.Error()
	}
	slices.Sort(texts)
	return fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(texts),
		strings.Join(texts, ", "))
}

func (r report) remainingMessage() string {
	var texts []string
	for gvr, n := range r.Remaining {
		texts = append(texts, fmt.Sprintf("%s.%s has %d resource instances", gvr.Resource,
			gvr.Group, n))
	}
	return sentence("Some resources are remaining: ", texts)
}

func (r report) finalizersMessage() string {
	var texts []string
	for finalizer, n := range r.Finalizers {
		texts = append(texts, fmt.Sprintf("%s in %d resource instances", finalizer, n))
	}
	return sentence("Some content in the namespace has finalizers remaining: ", texts)
}

// sentence lists the texts, sorted so that the same facts make the same message.
func sentence(start string, texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	slices.Sort(texts)
	return start + strings.Join(texts, ", ")
}

const (
	lookAgainMin = 100 * time.Millisecond
	lookAgainMax = 10 * time.Second
)

// lookAgain returns when to look whether what remains is gone: often at first, then in a quarter of
// the time that deleting has taken so far, which bounds the requests that a stuck object costs.
func lookAgain(deleting time.Duration) time.Duration {
	return min(max(deleting/4, lookAgainMin), lookAgainMax)
}
