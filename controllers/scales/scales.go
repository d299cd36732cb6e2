// Package scales reads and writes the scale of an object of any kind that has one, custom ones too.
//
// Both may be called concurrently.
package scales

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Target names what has a scale, as references do.
type Target struct{ APIVersion, Kind, Namespace, Name string }

func (t Target) object() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(t.APIVersion)
	obj.SetKind(t.Kind)
	obj.SetNamespace(t.Namespace)
	obj.SetName(t.Name)
	return obj
}

// Get asks the server for a scale.
func Get(ctx context.Context, c client.SubResourceClientConstructor, t Target) (*autoscalingv1.Scale, error) {
	body := &unstructured.Unstructured{}
	body.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
	if err := c.SubResource("scale").Get(ctx, t.object(), body); err != nil {
		return nil, err
	}
	scale := &autoscalingv1.Scale{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(body.Object, scale); err != nil {
		return nil, fmt.Errorf("the scale of %s %s: %w", t.Kind, t.Name, err)
	}
	return scale, nil
}

// Update writes a scale that was read and changed. It fails with a conflict if the object has changed since.
func Update(ctx context.Context, c client.SubResourceClientConstructor, t Target, scale *autoscalingv1.Scale) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(scale)
	if err != nil {
		return fmt.Errorf("the scale of %s %s: %w", t.Kind, t.Name, err)
	}
	body := &unstructured.Unstructured{Object: content}
	body.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
	return c.SubResource("scale").Update(ctx, t.object(), client.WithSubResourceBody(body))
}
