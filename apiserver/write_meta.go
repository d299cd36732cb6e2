package apiserver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// metadata returns an object's metadata, which is made if there is none.
func metadata(obj kinds.Object) map[string]any { return tree.Ensure(obj, "metadata") }

// wipeSystemFields removes what a client may not say about a new object.
func wipeSystemFields(obj kinds.Object) {
	m := metadata(obj)
	for _, name := range []string{"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"} {
		delete(m, name)
	}
}

// matchNamespace gives an object the namespace of the request, or refuses another one.
func (t *write) matchNamespace(obj kinds.Object) error {
	m := metadata(obj)
	expected := t.namespace
	if !t.kind.Namespaced {
		expected = ""
	}
	switch said := tree.Str(m, "namespace"); {
	case said == expected:
	case expected == "":
		delete(m, "namespace")
	case said == "":
		m["namespace"] = expected
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

func (t *write) matchName(obj kinds.Object) error {
	name := tree.Str(obj, "metadata", "name")
	switch {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s based on URL) was undeterminable: name must be provided", t.name))
	case name != t.name:
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s) does not match the name on the URL (%s)", name, t.name))
	}
	return nil
}

// dedupOwners removes owner references that say the same as an earlier one.
func (t *write) dedupOwners(obj kinds.Object) {
	refs := tree.List(obj, "metadata", "ownerReferences")
	if len(refs) < 2 {
		return
	}
	var kept []any
	var duplicates []string
	for _, ref := range refs {
		if slices.ContainsFunc(kept, func(k any) bool { return tree.Equal(k, ref) }) {
			m, _ := ref.(map[string]any)
			duplicates = append(duplicates, tree.Str(m, "uid"))
			continue
		}
		kept = append(kept, ref)
	}
	if len(duplicates) > 0 {
		tree.Set(obj, kept, "metadata", "ownerReferences")
		t.warn(".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, " +
			"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " +
			strings.Join(duplicates, ", "))
	}
}

// checkNamesRevision refuses an update that might be about any state, where the kind has it so.
func (t *write) checkNamesRevision(obj, live kinds.Object) error {
	text := tree.Str(obj, "metadata", "resourceVersion")
	if live == nil || !t.kind.UpdateNamesRevision || text != "" && text != "0" {
		return nil
	}
	// Upstream names the resource here, and not the kind.
	return apierrors.NewInvalid(schema.GroupKind{Group: t.kind.Group, Kind: t.kind.Resource}, t.name,
		field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
}

// checkRevision refuses a write that is about an older state than the stored one. No revision, and
// zero, mean any.
func (t *write) checkRevision(obj kinds.Object, live *store.Entry) error {
	text := tree.Str(obj, "metadata", "resourceVersion")
	if text == "" || text == "0" {
		return nil
	}
	revision, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return unreasoned(err)
	}
	if store.Revision(revision) != live.Revision {
		return t.modified()
	}
	return nil
}

// modified is what a write meets that is about an older state.
func (t *write) modified() error {
	return apierrors.NewConflict(t.kind.GroupResource(), t.name, fmt.Errorf(
		"the object has been modified; please apply your changes to the latest version and try again"))
}

// invalid names the kind in whose form the object is kept, as upstream does.
func (t *write) invalid(errs field.ErrorList) error {
	gk := t.kind.GVK().GroupKind()
	if at := t.kind.Storage; at != nil {
		gk.Group, gk.Kind = at.Group, at.Kind
	}
	return apierrors.NewInvalid(gk, t.name, errs)
}

// carryOver takes from the stored object what an update may not change and need not say.
func carryOver(obj, live kinds.Object) {
	m, old := metadata(obj), metadata(live)
	for _, name := range []string{"generation", "creationTimestamp", "resourceVersion", "selfLink"} {
		tree.Move(name, old, m)
	}
	if tree.Str(m, "uid") == "" {
		tree.Move("uid", old, m)
	}
	if old["deletionTimestamp"] != nil {
		m["deletionTimestamp"] = old["deletionTimestamp"]
	}
	if m["deletionGracePeriodSeconds"] == nil {
		tree.Move("deletionGracePeriodSeconds", old, m)
	}
}

// bumpGeneration raises the generation if what the object wants has changed. A status write changes
// what is, whatever else it may touch.
func (t *write) bumpGeneration(obj, live kinds.Object) {
	if t.kind.Generation && t.subresource != "status" && t.wantsChanged(obj, live) {
		m := metadata(obj)
		m["generation"] = tree.Int(m, "generation") + 1
	}
}

func (t *write) wantsChanged(obj, live kinds.Object) bool {
	same := func(key string) bool {
		return key == "metadata" || key == "status" && t.kind.Status || tree.Equal(obj[key], live[key])
	}
	for key := range obj {
		if !same(key) {
			return true
		}
	}
	for key := range live {
		if _, ok := obj[key]; !ok && !same(key) {
			return true
		}
	}
	return t.kind.Bumps != nil && t.kind.Bumps(obj, live)
}

// unchanged says whether a write would leave the stored object as it is. When a field's owner last
// said the same is no change.
func unchanged(obj, live kinds.Object) bool {
	m, old := metadata(obj), metadata(live)
	return slices.EqualFunc(tree.List(m, "managedFields"), tree.List(old, "managedFields"), sameButTime) &&
		sameBut(m, old, "managedFields") && sameBut(obj, live, "metadata")
}

func sameButTime(a, b any) bool {
	x, _ := a.(map[string]any)
	y, _ := b.(map[string]any)
	return sameBut(x, y, "time")
}

// sameBut says whether two maps mean the same, some of their keys left aside.
func sameBut(a, b map[string]any, aside ...string) bool {
	for key, value := range a {
		if !slices.Contains(aside, key) && !tree.Equal(value, b[key]) {
			return false
		}
	}
	for key, value := range b {
		if _, ok := a[key]; !ok && !slices.Contains(aside, key) && !tree.Equal(value, nil) {
			return false
		}
	}
	return true
}

// objectMeta returns an object's metadata in the form that apimachinery checks. managedFields are
// left out: they have been made by the server.
func objectMeta(obj kinds.Object) *metav1.ObjectMeta {
	m := tree.Map(obj, "metadata")
	out := &metav1.ObjectMeta{
		Name: tree.Str(m, "name"), GenerateName: tree.Str(m, "generateName"), Namespace: tree.Str(m, "namespace"),
		UID: types.UID(tree.Str(m, "uid")), ResourceVersion: "1", Generation: tree.Int(m, "generation"),
		Labels: tree.StringMap(m, "labels"), Annotations: tree.StringMap(m, "annotations"),
		Finalizers: tree.Strings(m, "finalizers"),
	}
	if at := parseTime(tree.Str(m, "creationTimestamp")); at != nil {
		out.CreationTimestamp = *at
	}
	out.DeletionTimestamp = parseTime(tree.Str(m, "deletionTimestamp"))
	if grace, ok := m["deletionGracePeriodSeconds"].(int64); ok {
		out.DeletionGracePeriodSeconds = &grace
	}
	for _, ref := range tree.Maps(m, "ownerReferences") {
		out.OwnerReferences = append(out.OwnerReferences, ownerReference(ref))
	}
	return out
}

func ownerReference(ref map[string]any) metav1.OwnerReference {
	out := metav1.OwnerReference{
		APIVersion: tree.Str(ref, "apiVersion"), Kind: tree.Str(ref, "kind"),
		Name: tree.Str(ref, "name"), UID: types.UID(tree.Str(ref, "uid")),
	}
	if v, ok := ref["controller"].(bool); ok {
		out.Controller = &v
	}
	if v, ok := ref["blockOwnerDeletion"].(bool); ok {
		out.BlockOwnerDeletion = &v
	}
	return out
}

func parseTime(text string) *metav1.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil
	}
	return &metav1.Time{Time: at.Local()}
}

// checkMeta returns what is wrong with a new object's metadata.
func (t *write) checkMeta(obj kinds.Object) field.ErrorList {
	rule := t.nameRule()
	if t.kind.Metadata == kinds.MetadataAlone {
		rule = pathSegment
	}
	errs := validation.ValidateObjectMeta(objectMeta(obj), t.kind.Namespaced, rule, field.NewPath("metadata"))
	return append(errs, t.checkFinalizers(obj)...)
}

func (t *write) nameRule() func(name string, prefix bool) []string {
	if t.kind.NameRule != nil {
		return t.kind.NameRule
	}
	return validation.NameIsDNSSubdomain
}

// pathSegment is the rule for names that are only to be a part of a path. A name is given to it whole,
// or as what a generated one begins with, which need not be enough for one.
func pathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

// checkFinalizers refuses names that do not tell whose they are, where the kind has it so.
func (t *write) checkFinalizers(obj kinds.Object) (errs field.ErrorList) {
	if !t.kind.FinalizersQualified {
		return nil
	}
	at := field.NewPath("metadata", "finalizers")
	for i, name := range tree.Strings(obj, "metadata", "finalizers") {
		switch name {
		case "kubernetes", metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents:
			continue
		}
		if !strings.Contains(name, "/") {
			errs = append(errs, field.Invalid(at.Index(i), name,
				"name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// checkMetaUpdate returns what is wrong with changed metadata, or may not change.
//
// Most writes, such as those of status and of leases, change nothing there that a rule is about, and
// then there is nothing to find.
func (t *write) checkMetaUpdate(obj, live kinds.Object) field.ErrorList {
	if sameBut(metadata(obj), metadata(live), "managedFields", "resourceVersion", "generation") {
		return nil
	}
	at := field.NewPath("metadata")
	meta, before := objectMeta(obj), objectMeta(live)
	errs := validation.ValidateObjectMeta(meta, t.kind.Namespaced, pathSegment, at)
	// It looks at labels, annotations and owners as well, and says the same of them.
	for _, err := range validation.ValidateObjectMetaUpdate(meta, before, at) {
		errs = addNew(errs, err)
	}
	errs = append(errs, t.checkFinalizers(obj)...)
	if t.kind.NameCheckedAgain && meta.GenerateName != "" {
		for _, text := range t.nameRule()(meta.GenerateName, true) {
			errs = addNew(errs, field.Invalid(at.Child("generateName"), meta.GenerateName, text))
		}
	}
	return errs
}

// addNew adds an error if none of the list says the same.
func addNew(errs field.ErrorList, err *field.Error) field.ErrorList {
	if slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Error() == err.Error() }) {
		return errs
	}
	return append(errs, err)
}
