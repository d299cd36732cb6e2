// Package serviceaccount gives every namespace what a pod in it counts on: the ServiceAccount
// "default", and the ConfigMap "kube-root-ca.crt" with the certificate authority of the API server.
package serviceaccount

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RootCAName names the only ConfigMap of a namespace that the controller reads.
const RootCAName = "kube-root-ca.crt"

const (
	accountName = "default"
	rootCAKey   = "ca.crt"

	descriptionAnnotation = "kubernetes.io/description"
	// description is what Kubernetes writes there.
	description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints " +
		"such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions " +
		"of Kubernetes clusters."
)

// snapshot is what a pass decides on. Objects that are not there are nil.
type snapshot struct {
	Namespace *corev1.Namespace
	Account   *corev1.ServiceAccount
	RootCA    *corev1.ConfigMap
	CA        []byte // PEM; empty: there is none to publish
}

// actions is what a pass writes; nil is nothing.
type actions struct {
	CreateAccount *corev1.ServiceAccount
	CreateRootCA  *corev1.ConfigMap
	UpdateRootCA  *corev1.ConfigMap
}

// plan decides one pass. A namespace that is being deleted gets nothing new. Of the ConfigMap, the
// certificate and the description are kept; of the account, that it exists.
func plan(s snapshot) actions {
	var act actions
	if s.Namespace.DeletionTimestamp != nil || s.Namespace.Status.Phase == corev1.NamespaceTerminating {
		return act
	}
	if s.Account == nil {
		act.CreateAccount = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace.Name, Name: accountName}}
	}
	if len(s.CA) == 0 {
		return act
	}
	data := map[string]string{rootCAKey: string(s.CA)}
	switch {
	case s.RootCA == nil:
		act.CreateRootCA = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.Namespace.Name, Name: RootCAName,
				Annotations: map[string]string{descriptionAnnotation: description},
			},
			Data: data,
		}
	case !maps.Equal(s.RootCA.Data, data) || s.RootCA.Annotations[descriptionAnnotation] != description:
		next := s.RootCA.DeepCopy()
		next.Data = data
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, descriptionAnnotation, description)
		act.UpdateRootCA = next
	}
	return act
}
