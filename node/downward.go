package node

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A pod can be told about itself: the downward API. Its values are taken from
// the pod and from facts about where it runs.

// facts are what a pod can be told that is not in its object.
type facts struct {
	podIP, hostIP string
	allocatable   corev1.ResourceList // of the node: limits that are not set
}

// fieldValue is the value of one field of the pod, named by its path.
func fieldValue(pod *corev1.Pod, path string, f facts) (string, error) {
	name, key, subscripted := cutSubscript(path)
	if subscripted {
		switch name {
		case "metadata.annotations":
			return pod.Annotations[key], nil
		case "metadata.labels":
			return pod.Labels[key], nil
		}
		return "", fmt.Errorf("fieldPath: found %q, which has no keys: "+
			"metadata.labels and metadata.annotations have", path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return f.podIP, nil
	case "status.hostIP", "status.hostIPs":
		return f.hostIP, nil
	}
	return "", fmt.Errorf("fieldPath: found %q, which is not a field that a container can be told", path)
}

// cutSubscript splits "metadata.labels['app']".
func cutSubscript(path string) (name, key string, ok bool) {
	head, tail, found := strings.Cut(path, "['")
	key, closed := strings.CutSuffix(tail, "']")
	return head, key, found && closed
}

// formatMap writes one key="value" a line, sorted.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for k, v := range m {
		lines = append(lines, k+"="+strconv.Quote(v))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// resourceValue is a request or limit of a container, divided and rounded up.
func resourceValue(
	pod *corev1.Pod, own *corev1.Container, sel *corev1.ResourceFieldSelector, f facts,
) (string, error) {
	c := own
	if sel.ContainerName != "" {
		if c = containerNamed(pod, sel.ContainerName); c == nil {
			return "", fmt.Errorf("resourceFieldRef: container %q: not found in the pod", sel.ContainerName)
		}
	}
	if c == nil {
		return "", fmt.Errorf("resourceFieldRef: containerName is required in a volume")
	}
	kind, name, _ := strings.Cut(sel.Resource, ".")
	resourceName := corev1.ResourceName(name)
	var q resource.Quantity
	switch kind {
	case "limits":
		var ok bool
		if q, ok = c.Resources.Limits[resourceName]; !ok {
			q = f.allocatable[resourceName]
		}
	case "requests":
		q = c.Resources.Requests[resourceName]
	default:
		return "", fmt.Errorf("resourceFieldRef: resource: found %q, which begins with neither %q nor %q",
			sel.Resource, "limits.", "requests.")
	}
	divisor := sel.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if resourceName == corev1.ResourceCPU {
		return quotient(q.MilliValue(), divisor.MilliValue()), nil
	}
	return quotient(q.Value(), divisor.Value()), nil
}

func quotient(value, divisor int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(divisor))), 10)
}

// containerNamed finds a container of a pod of either sort, or returns nil.
func containerNamed(pod *corev1.Pod, name string) *corev1.Container {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return ephemeral(pod, i)
		}
	}
	return nil
}

// ephemeral is an ephemeral container as one like any other, which it is but for
// when it runs.
func ephemeral(pod *corev1.Pod, i int) *corev1.Container {
	return (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
}
