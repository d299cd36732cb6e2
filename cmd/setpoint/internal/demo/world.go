package demo

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// settled says whether the deployment is as declared and nothing older is left.
func (d *demo) settled(ctx context.Context) (bool, error) {
	deployment, err := d.deployment(ctx)
	if err != nil || deployment == nil {
		return false, err
	}
	pods, err := d.pods(ctx)
	s, want := deployment.Status, *deployment.Spec.Replicas
	return s.ObservedGeneration == deployment.Generation && s.UpdatedReplicas == want &&
		s.AvailableReplicas == want && len(pods) == int(want), err
}

// begun says whether at least one process of the new template is ready.
func (d *demo) begun(ctx context.Context) (bool, error) {
	pods, err := d.pods(ctx)
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return podReady(&pod) && greeting(&pod) == "good morning"
	}), err
}

func (d *demo) gone(ctx context.Context) (bool, error) {
	deployment, err := d.deployment(ctx)
	if err != nil || deployment != nil {
		return false, err
	}
	var sets appsv1.ReplicaSetList
	if err := d.client.List(ctx, &sets, client.InNamespace("default"), ofApp); err != nil {
		return false, err
	}
	pods, err := d.pods(ctx)
	return len(pods) == 0 && len(sets.Items) == 0, err
}

var ofApp = client.MatchingLabels{"app": appName}

// deployment returns the deployment, or nil if there is none.
func (d *demo) deployment(ctx context.Context) (*appsv1.Deployment, error) {
	var deployment appsv1.Deployment
	err := d.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: appName}, &deployment)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &deployment, err
}

func (d *demo) pods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := d.client.List(ctx, &pods, client.InNamespace("default"), ofApp)
	return pods.Items, err
}

// look takes a picture of the world.
func (d *demo) look(ctx context.Context) (picture, error) {
	deployment, err := d.deployment(ctx)
	if err != nil {
		return picture{}, err
	}
	pods, err := d.pods(ctx)
	if err != nil {
		return picture{}, err
	}
	p := picture{}
	p.sent, p.failed = d.probe.Counts()
	declared := ""
	if deployment != nil {
		p.want = int(*deployment.Spec.Replicas)
		declared = templateGreeting(&deployment.Spec.Template.Spec)
	}
	for i := range pods {
		pod := &pods[i]
		line := podLine{name: pod.Name, state: podState(pod), ready: podReady(pod), greeting: greeting(pod)}
		p.pods = append(p.pods, line)
		if line.ready {
			p.ready++
		}
		if deployment != nil && line.greeting == declared && pod.DeletionTimestamp == nil {
			p.updated++
		}
	}
	return p, nil
}

func podReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
}

func podState(pod *corev1.Pod) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return "ending"
	case podReady(pod):
		return "ready"
	case pod.Spec.NodeName == "":
		return "waits for a node"
	default:
		return "starting"
	}
}

func restarts(pod *corev1.Pod) (n int32) {
	for _, c := range pod.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

func greeting(pod *corev1.Pod) string { return templateGreeting(&pod.Spec) }

func templateGreeting(spec *corev1.PodSpec) string {
	for _, env := range spec.Containers[0].Env {
		if env.Name == "GREETING" {
			return env.Value
		}
	}
	return ""
}

func endpoint(pod *corev1.Pod) string {
	port := pod.Spec.Containers[0].Ports[0].ContainerPort
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port)))
}

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }
