package node

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refersTo says whether a pod refers to a ConfigMap or Secret of its namespace,
// in a volume or a variable.
func refersTo(pod *corev1.Pod, obj client.Object) bool {
	_, isSecret := obj.(*corev1.Secret)
	name := obj.GetName()
	config := func(n string) bool { return !isSecret && n == name }
	secret := func(n string) bool { return isSecret && n == name }
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.ConfigMap != nil && config(v.ConfigMap.Name) || v.Secret != nil && secret(v.Secret.SecretName) {
			return true
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil && config(s.ConfigMap.Name) || s.Secret != nil && secret(s.Secret.Name) {
				return true
			}
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if envRefersTo(&containers[i], config, secret) {
				return true
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if envRefersTo(ephemeral(pod, i), config, secret) {
			return true
		}
	}
	return false
}

func envRefersTo(c *corev1.Container, config, secret func(string) bool) bool {
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil && config(from.ConfigMapRef.Name) ||
			from.SecretRef != nil && secret(from.SecretRef.Name) {
			return true
		}
	}
	for _, v := range c.Env {
		from := v.ValueFrom
		if from != nil && (from.ConfigMapKeyRef != nil && config(from.ConfigMapKeyRef.Name) ||
			from.SecretKeyRef != nil && secret(from.SecretKeyRef.Name)) {
			return true
		}
	}
	return false
}
