package statefulset

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
)

// makePod returns the pod of a number, made from a revision's template.
func makePod(set *appsv1.StatefulSet, template *corev1.PodTemplateSpec, number int, revision string) *corev1.Pod {
	pod := podcontrol.FromTemplate(set, kind, template)
	text := strconv.Itoa(number)
	pod.GenerateName = ""
	pod.Name = set.Name + "-" + text
	pod.Spec.Hostname = pod.Name
	pod.Spec.Subdomain = set.Spec.ServiceName
	for key, value := range map[string]string{
		appsv1.StatefulSetPodNameLabel:        pod.Name,
		appsv1.PodIndexLabel:                  text,
		appsv1.ControllerRevisionHashLabelKey: revision,
	} {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
	}
	pod.Spec.Volumes = volumes(set, pod.Spec.Volumes, number)
	return pod
}

// volumes are those of a pod: one for each claim, and the template's that are called otherwise.
func volumes(set *appsv1.StatefulSet, template []corev1.Volume, number int) []corev1.Volume {
	var out []corev1.Volume
	claimed := map[string]bool{}
	for _, claim := range set.Spec.VolumeClaimTemplates {
		claimed[claim.Name] = true
		out = append(out, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, claim.Name, number)},
		}})
	}
	for _, v := range template {
		if !claimed[v.Name] {
			out = append(out, v)
		}
	}
	return out
}

func claimName(set *appsv1.StatefulSet, template string, number int) string {
	return template + "-" + set.Name + "-" + strconv.Itoa(number)
}

// claims returns the claims of a pod. They outlive the set, unless it says that they go with it.
func claims(set *appsv1.StatefulSet, number int) []*corev1.PersistentVolumeClaim {
	var out []*corev1.PersistentVolumeClaim
	for i := range set.Spec.VolumeClaimTemplates {
		claim := set.Spec.VolumeClaimTemplates[i].DeepCopy()
		claim.Name = claimName(set, claim.Name, number)
		claim.Namespace = set.Namespace
		claim.Labels = labels.Merge(claim.Labels, set.Spec.Selector.MatchLabels)
		claim.Status = corev1.PersistentVolumeClaimStatus{}
		if withSet, _ := deletesWith(set); withSet {
			claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, kind)}
		}
		out = append(out, claim)
	}
	return out
}
