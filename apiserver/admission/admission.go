// Package admission decides, between the validation of an object and its commit, whether a write is
// let through, and changes the object before: what the server itself asks of writes, and what
// people ask by policies, webhooks, limit ranges and quotas.
//
// What a Mutator or a Validator looks at is the state that the write is about to change: a policy
// is in force for the first write that begins after the policy was acknowledged. A write that meets a
// conflict is admitted again, against the newer state. Mutators and Validators may be used
// concurrently; Attributes belong to one write.
package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/patch/managed"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// Operation is what a write does to an object.
type Operation string

const (
	Create Operation = "CREATE"
	Update Operation = "UPDATE"
	Delete Operation = "DELETE"
	// Connect is a command, a forwarding or a proxied request; nothing is stored.
	Connect Operation = "CONNECT"
)

// Attributes is a write as admission sees it.
type Attributes struct {
	Operation   Operation
	Kind        *kinds.Kind
	Subresource string
	// Body is the kind of Object and Old where a subresource has one of its own, as scale has; else
	// the zero value.
	Body      schema.GroupVersionKind
	Namespace string // "" for what has none
	Name      string // "" for a create whose name is still to be made
	User      *authn.User
	DryRun    bool

	// Object is what is to be stored, nil for a delete; a Mutator may change it in place. Old is
	// what is stored, nil for a create, and never changed.
	Object, Old kinds.Object
	// Warn sends the client a warning.
	Warn func(text string)
	// Namespaces reads a namespace as of now, and makes the write fail, and be tried again, if the
	// namespace changes before the write is committed; nil if there is none.
	Namespaces func(name string) *store.Entry
	// State is what else there is.
	State State

	again rounds
}

// State is what there is when a write is admitted, all of one revision.
type State interface {
	Kinds() *kinds.Set
	// Entry returns an object, or nil.
	Entry(k *kinds.Kind, namespace, name string) *store.Entry
	// Entries returns the objects of a kind in a namespace, or in all for "".
	Entries(k *kinds.Kind, namespace string) []*store.Entry
	// Read returns an entry's tree in the form of a kind. It is the caller's.
	Read(k *kinds.Kind, e *store.Entry) (kinds.Object, error)
	// Equivalents are the other kinds through which the objects of a kind are seen.
	Equivalents(k *kinds.Kind) []*kinds.Kind
	// Convert returns an object of one kind as one of an equivalent kind. It may return the object.
	Convert(obj kinds.Object, from, to *kinds.Kind) (kinds.Object, error)
	// Options are what the request asked for beside the object: CreateOptions and so on.
	Options(op Operation) kinds.Object
	// Annotate notes something for an audit.
	Annotate(key, value string)
	// Settle makes an object that was changed canonical again, and sets its defaults.
	Settle(a *Attributes, obj kinds.Object) error
	// Type is what merging objects of a kind takes.
	Type(k *kinds.Kind) *managed.Type
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

// GVK is the kind of the object that is admitted.
func (a *Attributes) GVK() schema.GroupVersionKind {
	if !a.Body.Empty() {
		return a.Body
	}
	return a.Kind.GVK()
}

// is says whether the write is of an object of a built-in kind itself, and not of a subresource.
func (a *Attributes) is(group, kind string) bool {
	return a.Kind.Group == group && a.Kind.Kind == kind && a.Subresource == ""
}

// forbid words a refusal.
func (a *Attributes) forbid(format string, args ...any) *apierrors.StatusError {
	name := a.Name
	if name == "" {
		name = tree.Str(a.Object, "metadata", "generateName")
	}
	if name == "" {
		name = "Unknown"
	}
	return apierrors.NewForbidden(a.Kind.GroupResource(), name, fmt.Errorf(format, args...))
}

// kindOf returns the record of a built-in kind, or nil where it is not served.
func kindOf(s State, group, version, kind string) *kinds.Kind {
	return s.Kinds().Kind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
}
