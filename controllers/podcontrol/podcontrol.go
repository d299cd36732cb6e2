// Package podcontrol finds, creates and deletes the pods of the objects that own them, and records
// events about that at the owners. It decides nothing: which pods, and how many, is the controllers'
// business.
//
// Everything here may be used concurrently.
package podcontrol

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FromTemplate returns a pod as a template has it, controlled by an owner and named after it. It shares
// nothing with the template.
func FromTemplate(owner client.Object, kind schema.GroupVersionKind, template *corev1.PodTemplateSpec) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: *template.ObjectMeta.DeepCopy(),
		Spec:       *template.Spec.DeepCopy(),
	}
	pod.Name = ""
	pod.GenerateName = owner.GetName() + "-"
	pod.Namespace = owner.GetNamespace()
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
	return pod
}

// Control acts on the pods of the owners of one controller. It remembers for which of them a pod may
// have been created that nobody was told of.
type Control struct {
	Client client.Client
	// Live reads from the server what is in doubt.
	Live   client.Reader
	Events events.EventRecorder

	doubts doubts
}

// CreateAll creates n pods of an owner, each by a call of create, as SlowStart does. That the namespace
// is being deleted is no error: nothing is gained by trying again. Where the outcome is not known, the
// owner's pods are counted at the server from now on, until a CreateAll ends well.
func (c *Control) CreateAll(ctx context.Context, owner client.Object, n int, create func(i int) error) (made int, err error) {
	made, err = SlowStart(ctx, n, create)
	if NamespaceEnds(err) {
		err = nil
	}
	c.doubts.note(client.ObjectKeyFromObject(owner), err)
	return made, err
}

// Forget drops what is remembered of an owner that is gone.
func (c *Control) Forget(owner types.NamespacedName) { c.doubts.note(owner, nil) }

// Create creates a pod. That the namespace is being deleted is returned but no event: it is nobody's
// mistake.
func (c *Control) Create(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	err := c.Client.Create(ctx, pod)
	switch {
	case err == nil:
		c.Events.Eventf(owner, pod, corev1.EventTypeNormal, "SuccessfulCreate", "Create",
			"Created pod: %s", pod.Name)
	case !NamespaceEnds(err):
		c.Events.Eventf(owner, nil, corev1.EventTypeWarning, "FailedCreate", "Create",
			"Error creating: %v", err)
	}
	return err
}

// DeleteAll deletes pods, each as Delete does, and returns all errors joined.
func (c *Control) DeleteAll(ctx context.Context, owner client.Object, pods []*corev1.Pod) error {
	return Together(len(pods), func(i int) error { return c.Delete(ctx, owner, pods[i]) })
}

// Delete deletes a pod, and no namesake that came after it. That it is gone already is no error.
func (c *Control) Delete(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	err := c.Client.Delete(ctx, pod.DeepCopy(), client.Preconditions{UID: &pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, and perhaps replaced by a namesake: that one was not chosen
	}
	if err != nil {
		c.Events.Eventf(owner, pod, corev1.EventTypeWarning, "FailedDelete", "Delete",
			"Error deleting: %v", err)
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	c.Events.Eventf(owner, pod, corev1.EventTypeNormal, "SuccessfulDelete", "Delete",
		"Deleted pod: %s", pod.Name)
	return nil
}

// NamespaceEnds says whether a create failed because the namespace is being deleted: nothing is gained
// by trying again.
func NamespaceEnds(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
