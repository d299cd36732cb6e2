package managed

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// key is an id as a string that sorts by manager; name reads it.
func key(i id) string {
	if i.operation == opApply {
		i.apiVersion = ""
	}
	return strings.Join([]string{i.manager, i.operation, i.apiVersion, i.subresource}, "\x00")
}

// name words an owner for people.
func name(key string) string {
	parts := strings.Split(key, "\x00")
	text := fmt.Sprintf("%q", parts[0])
	if parts[3] != "" {
		text += fmt.Sprintf(" with subresource %q", parts[3])
	}
	if parts[1] == opUpdate {
		text += " using " + parts[2]
	}
	return text
}

// conflictError names every field and its owner.
func conflictError(conflicts merge.Conflicts) error {
	slices.SortFunc(conflicts, func(a, b merge.Conflict) int {
		return cmp.Or(cmp.Compare(a.Manager, b.Manager), a.Path.Compare(b.Path))
	})
	causes := make([]metav1.StatusCause, len(conflicts))
	for i, c := range conflicts {
		causes[i] = metav1.StatusCause{
			Type:    metav1.CauseTypeFieldManagerConflict,
			Message: "conflict with " + name(c.Manager),
			Field:   c.Path.String(),
		}
	}
	if len(conflicts) == 1 {
		return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with 1 conflict: %s: %s",
			causes[0].Message, causes[0].Field))
	}
	text := fmt.Sprintf("Apply failed with %d conflicts: ", len(conflicts))
	for i, c := range conflicts {
		if i == 0 || conflicts[i-1].Manager != c.Manager {
			text += fmt.Sprintf("conflicts with %s:\n", name(c.Manager))
		}
		text += fmt.Sprintf("- %s\n", c.Path)
	}
	return apierrors.NewApplyConflict(causes, strings.TrimSuffix(text, "\n"))
}

// kubectl is the manager that migrates from client-side apply: kubectl kept what it applied in an
// annotation, before the server knew of owners.
const (
	kubectl     = "kubectl"
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// withoutClientSide returns the conflicts without those about fields that kubectl itself had set
// by client-side apply, and that nobody changed since.
func (a *application) withoutClientSide(conflicts merge.Conflicts) merge.Conflicts {
	fields, err := a.clientSide()
	if err != nil {
		return conflicts // nothing was set in that way, or not in this version
	}
	return slices.DeleteFunc(slices.Clone(conflicts), func(c merge.Conflict) bool { return fields.Has(c.Path) })
}

// clientSide returns the fields that client-side apply set and that are as it set them.
func (a *application) clientSide() (*fieldpath.Set, error) {
	var before map[string]any
	text := tree.Str(a.live, "metadata", "annotations", lastApplied)
	if err := json.Unmarshal([]byte(text), &before); err != nil {
		return nil, err
	}
	if version := tree.Str(before, "apiVersion"); version != a.w.APIVersion {
		return nil, fmt.Errorf("last applied in version %q", version)
	}
	config, err := a.t.parser().FromUnstructured(before)
	if err != nil {
		return nil, err
	}
	fields, err := config.ToFieldSet()
	if err != nil {
		return nil, err
	}
	diff, err := config.Compare(a.liveTyped)
	if err != nil {
		return nil, err
	}
	return fields.Difference(diff.Modified).Difference(diff.Added).Difference(diff.Removed), nil
}

// updateLastApplied keeps the annotation true for those who still use client-side apply.
func (a *application) updateLastApplied(obj map[string]any) error {
	if tree.Str(obj, "metadata", "annotations", lastApplied) == "" {
		return nil
	}
	config := tree.CopyMap(a.config)
	if annotations := tree.Map(config, "metadata", "annotations"); annotations != nil {
		delete(annotations, lastApplied)
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	tree.Set(obj, string(text)+"\n", "metadata", "annotations", lastApplied)
	return nil
}
