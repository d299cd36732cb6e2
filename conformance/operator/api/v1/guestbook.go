// Package v1 holds the kind of the suite: a guestbook, which wants a config map for each of its guests.
package v1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is where the kind is.
var GroupVersion = schema.GroupVersion{Group: "book.example.com", Version: "v1"}

// AddToScheme makes the kind known.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Guestbook{}, &GuestbookList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Guestbook wants a page for each guest.
type Guestbook struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   GuestbookSpec   `json:"spec"`
	Status GuestbookStatus `json:"status,omitempty"`
}

// GuestbookSpec is what a person wants.
type GuestbookSpec struct {
	Guests []string `json:"guests,omitempty"`
	Limit  int32    `json:"limit,omitempty"`
}

// GuestbookStatus is what there is.
type GuestbookStatus struct {
	Pages              int32              `json:"pages"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// GuestbookList is a list of them.
type GuestbookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Guestbook `json:"items"`
}

// DeepCopyObject copies all of it.
func (g *Guestbook) DeepCopyObject() runtime.Object {
	out := *g
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Guests = slices.Clone(g.Spec.Guests)
	out.Status.Conditions = slices.Clone(g.Status.Conditions)
	return &out
}

// DeepCopyObject copies all of it.
func (l *GuestbookList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Guestbook, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Guestbook)
	}
	return &out
}
