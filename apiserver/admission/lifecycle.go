package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// namespaceLifecycle keeps objects out of namespaces that do not exist or are going, and the
// namespaces that the system needs from being deleted.
type namespaceLifecycle struct{ going func(*store.Entry) bool }

// NamespaceLifecycle makes the mutator that knows by going which namespaces are being deleted.
func NamespaceLifecycle(going func(*store.Entry) bool) Mutator { return namespaceLifecycle{going} }

func (l namespaceLifecycle) Mutate(_ context.Context, a *Attributes) error {
	switch {
	case a.Kind.Group == "" && a.Kind.Kind == "Namespace":
		return protectNamespace(a)
	case a.Operation != Create || a.Subresource != "" || a.Namespace == "":
		return nil
	}
	entry := a.Namespaces(a.Namespace)
	if entry == nil {
		return apierrors.NewNotFound(namespaces, a.Namespace)
	}
	if !l.going(entry) {
		return nil
	}
	refused := apierrors.NewForbidden(a.Kind.GroupResource(), a.Name, fmt.Errorf(
		"unable to create new content in namespace %s because it is being terminated", a.Namespace))
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    "NamespaceTerminating",
		Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace),
		Field:   "metadata.namespace",
	}}
	return refused
}

func protectNamespace(a *Attributes) error {
	if a.Operation != Delete {
		return nil
	}
	switch a.Name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return apierrors.NewForbidden(namespaces, a.Name, fmt.Errorf("this namespace may not be deleted"))
	}
	return nil
}

// labelsOf are an object's labels.
func labelsOf(obj map[string]any) map[string]string {
	return tree.StringMap(obj, "metadata", "labels")
}
