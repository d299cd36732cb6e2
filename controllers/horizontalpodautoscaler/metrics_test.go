package horizontalpodautoscaler_test

import (
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/setpointtest"
)

// podMetrics defines what a metrics server serves, so that a test can write it.
const podMetrics = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pods.metrics.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for a test"}
spec:
  group: metrics.k8s.io
  scope: Namespaced
  names: {plural: pods, singular: pod, kind: PodMetrics, listKind: PodMetricsList}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestMetricsOfPodsScaleADeployment has two pods use all of the processor that they ask for, and the target be
// half of that; before their metrics are there, and then after.
func TestMetricsOfPodsScaleADeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := setpointtest.Start(t, setpointtest.Nodes(2))
		labels := map[string]string{"app": "web"}
		meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}
		d := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")},
				}}}},
			},
		}}
		hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MaxReplicas:    10,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceMemory, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)},
			}}},
		}}
		for _, obj := range []client.Object{d, hpa} {
			if err := cp.Client.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		}
		cp.Await(d, "two pods are ready", func() bool { return d.Status.ReadyReplicas == 2 })
		cp.Await(hpa, "it is said that nobody serves metrics", func() bool {
			return condition(hpa.Status, autoscalingv2.ScalingActive) == "False FailedGetResourceMetric"
		})
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(podMetrics), &definition.Object); err != nil {
			t.Fatal(err)
		}
		if err := cp.Client.Create(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
		var pods corev1.PodList
		if err := cp.Client.List(t.Context(), &pods, client.MatchingLabels(labels)); err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods.Items {
			m := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "window": "30s", "timestamp": "2000-01-01T00:00:00Z",
				"containers": []any{map[string]any{"name": "c", "usage": map[string]any{"memory": "100Mi"}}},
			}}
			m.SetNamespace(pod.Namespace)
			m.SetName(pod.Name)
			m.SetLabels(labels)
			if err := cp.Client.Create(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		cp.Await(d, "there are four", func() bool { return d.Status.ReadyReplicas == 4 })
		cp.Await(hpa, "the status says so", func() bool { return hpa.Status.CurrentReplicas == 4 })
		if got := condition(hpa.Status, autoscalingv2.ScalingActive); got != "True ValidMetricFound" {
			t.Errorf("active: %s", got)
		}
	})
}
