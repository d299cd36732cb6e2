// Package workergroup is an operator from end to end, as one writes a first one: a kind of one's own,
// and a controller that makes it true. docs/tutorial.md goes through it step by step.
//
// A WorkerGroup asks for a number of workers, each a pod. Its status tells four milestones apart,
// because "I made it", "it has a place", "it runs" and "it works" fail for different reasons.
package workergroup

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is what the kind belongs to.
var GroupVersion = schema.GroupVersion{Group: "example.dev", Version: "v1"}

// AddToScheme tells a scheme of the Go types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &WorkerGroup{}, &WorkerGroupList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// WorkerGroup asks for workers.
type WorkerGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// Spec is what should be.
type Spec struct {
	// Replicas is how many workers there should be: 0 to 100, 1 if not given.
	Replicas *int32 `json:"replicas,omitempty"`
	// Command is what each worker runs.
	Command []string `json:"command"`
}

// Status is what was last seen. It says nothing of when, so that seeing the same again is no news.
type Status struct {
	// ObservedGeneration is the spec's that the rest is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Existing counts the workers that there are; Scheduled those of them that have a node; Started
	// those whose process has been started; Ready those that do their work.
	Existing  int32 `json:"existing"`
	Scheduled int32 `json:"scheduled"`
	Started   int32 `json:"started"`
	Ready     int32 `json:"ready"`
}

// WorkerGroupList is a list of them.
type WorkerGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkerGroup `json:"items"`
}

// DeepCopyInto copies the group into another.
func (g *WorkerGroup) DeepCopyInto(out *WorkerGroup) {
	*out = *g
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if g.Spec.Replicas != nil {
		out.Spec.Replicas = new(*g.Spec.Replicas)
	}
	out.Spec.Command = append([]string(nil), g.Spec.Command...)
}

// DeepCopy returns a copy.
func (g *WorkerGroup) DeepCopy() *WorkerGroup {
	out := new(WorkerGroup)
	g.DeepCopyInto(out)
	return out
}

// DeepCopyObject returns a copy.
func (g *WorkerGroup) DeepCopyObject() runtime.Object { return g.DeepCopy() }

// DeepCopyObject returns a copy.
func (l *WorkerGroupList) DeepCopyObject() runtime.Object {
	out := &WorkerGroupList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}
