package apiserver

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// Operation is what a write does to an object, as admission sees it.
type Operation string

const (
	Create Operation = "CREATE"
	Update Operation = "UPDATE"
	Delete Operation = "DELETE"
)

// Attributes is a write as admission sees it.
type Attributes struct {
	Operation   Operation
	Kind        *kinds.Kind
	Subresource string
	Namespace   string // "" for what has none
	Name        string // "" for a create whose name is still to be made
	User        *authn.User
	DryRun      bool

	// Object is what is to be stored, nil for a delete; a Mutator may change it in place. Old is
	// what is stored, nil for a create, and never changed.
	Object, Old kinds.Object
	// Warn sends the client a warning.
	Warn func(text string)
	// Namespaces reads a namespace as of now, and makes the write fail, and be tried again, if the
	// namespace changes before the write is committed; nil if there is none.
	Namespaces func(name string) *store.Entry
}

// Mutator changes an object before it is defaulted again and checked. An error refuses the write
// and is what the client sees. A write that meets a conflict comes again. It may be called
// concurrently.
type Mutator interface {
	Mutate(ctx context.Context, a *Attributes) error
}

// Validator refuses a write by an error, which is what the client sees. It may be called
// concurrently.
type Validator interface {
	Validate(ctx context.Context, a *Attributes) error
}

// The namespaces that are always there.
const (
	namespaceDefault = "default"
	namespaceSystem  = "kube-system"
	namespacePublic  = "kube-public"
	namespaceLeases  = "kube-node-lease"
)

// namespaceLifecycle keeps objects out of namespaces that do not exist or are going, and the
// namespaces that the system needs from being deleted.
type namespaceLifecycle struct{}

func (namespaceLifecycle) Mutate(_ context.Context, a *Attributes) error {
	switch {
	case isNamespace(a.Kind):
		return protectNamespace(a)
	case a.Operation != Create || a.Subresource != "" || a.Namespace == "":
		return nil
	}
	entry := a.Namespaces(a.Namespace)
	if entry == nil {
		return apierrors.NewNotFound(namespacesResource, a.Namespace)
	}
	if !terminating(entry) {
		return nil
	}
	refused := apierrors.NewForbidden(a.Kind.GroupResource(), a.Name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.Namespace))
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
	case namespaceDefault, namespaceSystem, namespacePublic:
		return apierrors.NewForbidden(namespacesResource, a.Name, fmt.Errorf("this namespace may not be deleted"))
	}
	return nil
}

// terminating says whether a namespace is going, from its stored bytes.
func terminating(namespace *store.Entry) bool {
	stamp, _ := member(metadataOf(namespace.Value), "deletionTimestamp")
	return stamp != nil
}
