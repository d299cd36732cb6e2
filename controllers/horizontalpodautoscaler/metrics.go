package horizontalpodautoscaler

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var podMetrics = schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetricsList"}

var (
	errNotServed = errors.New("the server could not find the requested resource (get pods.metrics.k8s.io)")
	errNoMetrics = errors.New("no metrics returned from resource metrics API")
)

// samples asks whoever serves metrics.k8s.io what pods use of a resource, or one of their containers does.
// Pods of which not all containers are measured are left out.
func (r *Reconciler) samples(ctx context.Context, namespace, selector string,
	name corev1.ResourceName, container string,
) (map[string]sample, error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(podMetrics)
	err = r.live.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: parsed})
	switch {
	case meta.IsNoMatchError(err):
		err = errNotServed
	case err == nil && len(list.Items) == 0:
		return nil, errNoMetrics
	}
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	out := map[string]sample{}
	for i := range list.Items {
		if s, ok := sampleOf(&list.Items[i], name, container); ok {
			out[list.Items[i].GetName()] = s
		}
	}
	return out, nil
}

// sampleOf reads what a pod's metrics say of a resource.
func sampleOf(pod *unstructured.Unstructured, name corev1.ResourceName, container string) (sample, bool) {
	var s sample
	at, _, _ := unstructured.NestedString(pod.Object, "timestamp")
	window, _, _ := unstructured.NestedString(pod.Object, "window")
	s.at, _ = time.Parse(time.RFC3339, at)
	s.window, _ = time.ParseDuration(window)
	containers, _, _ := unstructured.NestedSlice(pod.Object, "containers")
	found := false
	for _, item := range containers {
		c, _ := item.(map[string]any)
		if container != "" && c["name"] != container {
			continue
		}
		text, _, _ := unstructured.NestedString(c, "usage", string(name))
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return sample{}, false
		}
		found = true
		s.value += q.MilliValue()
	}
	return s, found
}
