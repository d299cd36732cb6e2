package deployment

import corev1 "k8s.io/api/core/v1"

type (
	Snapshot = snapshot
	Actions  = actions
)

var (
	Plan          = plan
	NewReconciler = newReconciler
	HashTemplate  = hashTemplate
	AppendHistory = appendHistory
)

// SetHash replaces the hash, so that a test can make it collide.
func (r *Reconciler) SetHash(hash func(*corev1.PodTemplateSpec, *int32) string) { r.hash = hash }
