package setpointtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Await returns when a condition of an object holds, and fails the test if it does not within
// the control plane's Patience. It reads the object, which need not exist yet, into obj, calls holds, and does so again on
// each change. what says to people what was waited for.
func (cp *ControlPlane) Await(obj client.Object, what string, holds func() bool) {
	cp.t.Helper()
	cp.await(obj, what, func(exists bool) bool { return exists && holds() })
}

// AwaitGone returns when there is no object of the name any more.
func (cp *ControlPlane) AwaitGone(obj client.Object) {
	cp.t.Helper()
	cp.await(obj, "it is gone", func(exists bool) bool { return !exists })
}

// awaitNode returns when the node is ready and, if the controller runs that takes the taint of a new
// node away, pods can be placed on it. The node is read without a Go type: the client's scheme is the
// test's.
func (cp *ControlPlane) awaitNode(name string) {
	cp.t.Helper()
	untaints := cp.ControlPlane.Runs("nodelifecycle")
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	obj.SetName(name)
	cp.Await(obj, "pods can be placed on it", func() bool {
		var node corev1.Node
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &node); err != nil {
			cp.t.Fatalf("setpointtest: node %s: %v", name, err)
		}
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		return ready && !(untaints && len(node.Spec.Taints) > 0)
	})
}

func (cp *ControlPlane) await(obj client.Object, what string, holds func(exists bool) bool) {
	cp.t.Helper()
	ctx, cancel := context.WithTimeout(cp.t.Context(), cp.patience)
	defer cancel()
	key := client.ObjectKeyFromObject(obj)
	for {
		held, err := cp.follow(ctx, obj, key, holds)
		switch {
		case held:
			return
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			cp.t.Fatalf("%T %s: did not come true within %v: %s; it is\n%s", obj, key, cp.patience, what, show(obj))
		case err != nil:
			cp.t.Fatalf("%T %s: waiting until %s: %v", obj, key, what, err)
		}
	}
}

// follow reads the object and watches it from there, until the condition holds or the watch ends.
func (cp *ControlPlane) follow(
	ctx context.Context, obj client.Object, key client.ObjectKey, holds func(exists bool) bool,
) (bool, error) {
	list, err := cp.listOf(obj)
	if err != nil {
		return false, err
	}
	only := []client.ListOption{
		client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name},
	}
	if err := cp.Client.List(ctx, list, only...); err != nil {
		return false, err
	}
	exists := false
	err = meta.EachListItem(list, func(item runtime.Object) error {
		exists = true
		return assign(obj, item)
	})
	if err != nil || holds(exists) {
		return err == nil, err
	}
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	w, err := cp.Client.Watch(ctx, list, append(only, from)...)
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) {
				return false, err
			}
			return false, nil
		}
		if err := assign(obj, event.Object); err != nil {
			return false, err
		}
		if holds(event.Type != watch.Deleted) {
			return true, nil
		}
	}
	return false, nil
}

// listOf makes an empty list of the object's kind.
func (cp *ControlPlane) listOf(obj client.Object) (client.ObjectList, error) {
	gvk, err := cp.Client.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	gvk.Kind += "List"
	if _, loose := obj.(*unstructured.Unstructured); loose {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	}
	list, err := cp.Client.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	return list.(client.ObjectList), nil
}

// assign makes obj what was read; both have one type.
func assign(obj client.Object, read runtime.Object) error {
	to, from := reflect.ValueOf(obj), reflect.ValueOf(read)
	if to.Type() != from.Type() {
		return fmt.Errorf("the server sent %T, want %T", read, obj)
	}
	to.Elem().Set(from.Elem())
	return nil
}

// show writes an object as people read it, without the bookkeeping of its fields.
func show(obj client.Object) string {
	obj.SetManagedFields(nil)
	text, err := yaml.Marshal(obj)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
