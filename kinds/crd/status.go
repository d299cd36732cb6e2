package crd

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
)

// Settled returns the status that a definition comes to have beside the others: which of the names
// that it asks for it has got, and whether its objects are served. others may hold the definition
// itself, and those of other groups. The definition's own status is left as it is.
//
// Names are given to who asked first: they are taken once they stand in another's acceptedNames.
func (d *Definition) Settled(others []*Definition, now time.Time) *apiextensionsv1.CustomResourceDefinitionStatus {
	out := d.Status.DeepCopy()
	accepted, reason, message := d.accept(others)
	out.AcceptedNames = accepted
	if reason != "" {
		setCondition(out, now, apiextensionsv1.NamesAccepted, false, reason, message)
		if !d.Established() {
			setCondition(out, now, apiextensionsv1.Established, false, "NotAccepted", "not all names are accepted")
		}
		return out
	}
	setCondition(out, now, apiextensionsv1.NamesAccepted, true, "NoConflicts", "no conflicts found")
	if !d.Established() {
		setCondition(out, now, apiextensionsv1.Established, true, "InitialNamesAccepted",
			"the initial names have been accepted")
	}
	return out
}

// IsSettled says whether the definition already has the status.
func (d *Definition) IsSettled(status *apiextensionsv1.CustomResourceDefinitionStatus) bool {
	return reflect.DeepEqual(&d.Status, status)
}

// accept returns the names that the definition has from now on. The reason says which kind of name
// was refused last, and is "" if none was.
func (d *Definition) accept(others []*Definition) (names apiextensionsv1.CustomResourceDefinitionNames, reason, message string) {
	resources, kindsTaken := d.taken(others)
	asked := d.spec.Names
	names = d.Status.AcceptedNames
	refuse := func(why, name string) {
		reason, message = why, fmt.Sprintf("%q is already in use", name)
	}
	one := func(name string, has *string, taken map[string]bool, why string) {
		if name != *has && taken[name] {
			refuse(why, name)
			return
		}
		*has = name
	}
	one(asked.Plural, &names.Plural, resources, "PluralConflict")
	one(asked.Singular, &names.Singular, resources, "SingularConflict")
	free := true
	for _, short := range asked.ShortNames {
		if !slices.Contains(names.ShortNames, short) && resources[short] {
			free = false
			refuse("ShortNamesConflict", short)
		}
	}
	if free {
		names.ShortNames = asked.ShortNames
	}
	one(asked.Kind, &names.Kind, kindsTaken, "KindConflict")
	one(asked.ListKind, &names.ListKind, kindsTaken, "ListKindConflict")
	names.Categories = asked.Categories
	return names, reason, message
}

// taken returns the names that other definitions of the group have.
func (d *Definition) taken(others []*Definition) (resources, kinds map[string]bool) {
	resources, kinds = map[string]bool{}, map[string]bool{}
	for _, o := range others {
		if o.Name == d.Name || o.spec.Group != d.spec.Group {
			continue
		}
		has := o.Status.AcceptedNames
		for _, name := range append([]string{has.Plural, has.Singular}, has.ShortNames...) {
			resources[name] = true
		}
		kinds[has.Kind], kinds[has.ListKind] = true, true
	}
	return resources, kinds
}

// Waiting says that the definition is kept until its objects are gone.
func (d *Definition) Waiting() bool {
	return slices.Contains(d.meta.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
}

// Terminating returns the status of a definition whose objects are being deleted: how many are left,
// which wait for their finalizers, or why one could not be deleted.
func (d *Definition) Terminating(left int, failed error, now time.Time) *apiextensionsv1.CustomResourceDefinitionStatus {
	out := d.Status.DeepCopy()
	if failed != nil {
		setCondition(out, now, apiextensionsv1.Terminating, true, "InstanceDeletionFailed",
			fmt.Sprintf("could not issue all deletes: %v", failed))
		return out
	}
	setCondition(out, now, apiextensionsv1.Terminating, true, "InstanceDeletionInProgress",
		fmt.Sprintf("CustomResource deletion is in progress: %d remaining, which wait for their finalizers", left))
	return out
}

func setCondition(status *apiextensionsv1.CustomResourceDefinitionStatus, now time.Time,
	kind apiextensionsv1.CustomResourceDefinitionConditionType, isTrue bool, reason, message string) {
	next := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: kind, Status: apiextensionsv1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: metav1.Time{Time: now.UTC().Truncate(time.Second)},
	}
	if isTrue {
		next.Status = apiextensionsv1.ConditionTrue
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.Type != kind {
			continue
		}
		if c.Status == next.Status {
			next.LastTransitionTime = c.LastTransitionTime
		}
		next.ObservedGeneration = c.ObservedGeneration
		*c = next
		return
	}
	status.Conditions = append(status.Conditions, next)
}

func isTrue(status *apiextensionsv1.CustomResourceDefinitionStatus, kind apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	return slices.ContainsFunc(status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == kind && c.Status == apiextensionsv1.ConditionTrue
	})
}

// successor is the best served version that is better than one and not deprecated, or "".
func (d *Definition) successor(of string) string {
	best := ""
	for i := range d.spec.Versions {
		v := &d.spec.Versions[i]
		if !v.Served || v.Deprecated || compareVersions(of, v.Name) >= 0 {
			continue
		}
		if best == "" || compareVersions(best, v.Name) < 0 {
			best = v.Name
		}
	}
	return best
}

func compareVersions(a, b string) int { return apiversion.CompareKubeAwareVersionStrings(a, b) }
