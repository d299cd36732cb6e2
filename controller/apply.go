package controller

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Apply creates an object or brings it to what obj says, and to no more than that: fields that obj has are
// set, those that the same owner set before and obj has no longer are removed, and everybody else's stay.
// The owner is the controller in whose pass ctx was made, unless an option names one. What obj leaves out it
// does not speak of; of a typed object, that is what has no zero value on the wire.
//
// If the client's reads show that all is so already, nothing is asked of the server. Otherwise obj is what
// the server answered. A field that another owner has set otherwise is a conflict, unless ForceOwnership is
// among the options.
// Possible errors: apierrors.IsConflict, and those of the server.
func Apply(ctx context.Context, c cr.Client, obj cr.Object, opts ...cr.ApplyOption) (changed bool, err error) {
	o := cr.ApplyOptions{FieldManager: FieldOwnerFrom(ctx)}
	o.ApplyOptions(opts)
	if o.FieldManager == "" {
		return false, fmt.Errorf("apply %s: outside of a pass an option must name the FieldOwner", obj.GetName())
	}
	want, err := intentOf(c, obj)
	if err != nil {
		return false, err
	}
	seen := &unstructured.Unstructured{}
	if seen.Object, err = read(ctx, c, obj); err != nil {
		return false, err
	}
	if seen.Object != nil && says(want.Object, seen.Object) && ownsNoMore(seen, o.FieldManager, want.Object) {
		return false, nil
	}
	before := seen.GetResourceVersion()
	opts = append(opts, cr.FieldOwner(o.FieldManager))
	if err := c.Apply(ctx, cr.ApplyConfigurationFromUnstructured(want), opts...); err != nil {
		return false, err
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(want.Object, obj)
	return want.GetResourceVersion() != before, err
}

// intentOf is what an object says, as a tree.
func intentOf(c cr.Client, obj cr.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return nil, err
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	want := &unstructured.Unstructured{Object: tree}
	want.SetGroupVersionKind(gvk)
	for _, field := range []string{"creationTimestamp", "resourceVersion", "uid", "generation", "managedFields"} {
		unstructured.RemoveNestedField(tree, "metadata", field)
	}
	delete(tree, "status") // a subresource of its own
	return want, nil
}

// read returns the object that the client's reads show, as a tree; nil if there is none.
func read(ctx context.Context, c cr.Client, obj cr.Object) (map[string]any, error) {
	seen := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(cr.Object)
	seen.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	err := c.Get(ctx, cr.ObjectKeyFromObject(obj), seen)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(seen)
}

// says reports whether an object has everything that is wanted. Where a list has more than is wanted, the
// server is to say what that means.
func says(want, seen any) bool {
	switch want := want.(type) {
	case map[string]any:
		seen, ok := seen.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range want {
			if name != "apiVersion" && name != "kind" && !says(value, seen[name]) {
				return false
			}
		}
		return true
	case []any:
		seen, ok := seen.([]any)
		if !ok || len(seen) != len(want) {
			return false
		}
		for i := range want {
			if !says(want[i], seen[i]) {
				return false
			}
		}
		return true
	}
	return equality.Semantic.DeepEqual(want, seen)
}

// ownsNoMore reports whether an owner has applied the object before, and no field that is not wanted now.
func ownsNoMore(seen *unstructured.Unstructured, owner string, want map[string]any) bool {
	for _, e := range seen.GetManagedFields() {
		if e.Manager != owner || e.Operation != metav1.ManagedFieldsOperationApply || e.Subresource != "" {
			continue
		}
		more := false
		setOf([]metav1.ManagedFieldsEntry{e}, owner).Leaves().Iterate(func(p fieldpath.Path) {
			more = more || !has(want, p)
		})
		return !more
	}
	return false
}

// has reports whether there is something at a path in a tree.
func has(tree any, path fieldpath.Path) bool {
	for _, step := range path {
		switch {
		case step.FieldName != nil:
			fields, _ := tree.(map[string]any)
			next, ok := fields[*step.FieldName]
			if !ok {
				return false
			}
			tree = next
		default:
			next, ok := element(tree, step)
			if !ok {
				return false
			}
			tree = next
		}
	}
	return true
}

// element returns the element of a list that a step names by its key or its value.
func element(tree any, step fieldpath.PathElement) (any, bool) {
	list, _ := tree.([]any)
	for _, item := range list {
		switch {
		case step.Value != nil && value.Equals(*step.Value, value.NewValueInterface(item)):
			return item, true
		case step.Key != nil && isKeyed(item, step):
			return item, true
		}
	}
	return nil, false
}

// isKeyed reports whether an element has the values that a key says; a field that is left out may be one
// that the server fills in.
func isKeyed(item any, step fieldpath.PathElement) bool {
	fields, _ := item.(map[string]any)
	for _, f := range *step.Key {
		if v, ok := fields[f.Name]; ok && !value.Equals(f.Value, value.NewValueInterface(v)) {
			return false
		}
	}
	return fields != nil
}
