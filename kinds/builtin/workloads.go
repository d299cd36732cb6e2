package builtin

import "github.com/setpoint-dev/setpoint/kinds"

// workloadKinds are the kinds that make pods, or say how many, and what they need: rights, storage,
// and bounds on what they use.
func workloadKinds() []*kinds.Kind {
	return []*kinds.Kind{
		componentStatus(), endpoints(), limitRange(), persistentVolumeClaim(), persistentVolume(), podTemplate(),
		replicationController(), resourceQuota(),
		daemonSet(), statefulSet(),
		autoscaler(), oldAutoscaler(), // the stored form first: it is what the other is looked up by
		cronJob(), job(),
		podDisruptionBudget(),
		clusterRoleBinding(), clusterRole(), roleBinding(), role(),
	}
}
