package setpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/cronjob"
	"github.com/setpoint-dev/setpoint/controllers/daemonset"
	"github.com/setpoint-dev/setpoint/controllers/deployment"
	"github.com/setpoint-dev/setpoint/controllers/disruption"
	"github.com/setpoint-dev/setpoint/controllers/endpoints"
	"github.com/setpoint-dev/setpoint/controllers/endpointslice"
	"github.com/setpoint-dev/setpoint/controllers/gc"
	"github.com/setpoint-dev/setpoint/controllers/horizontalpodautoscaler"
	"github.com/setpoint-dev/setpoint/controllers/job"
	"github.com/setpoint-dev/setpoint/controllers/namespace"
	"github.com/setpoint-dev/setpoint/controllers/nodelifecycle"
	"github.com/setpoint-dev/setpoint/controllers/persistentvolume"
	"github.com/setpoint-dev/setpoint/controllers/replicaset"
	"github.com/setpoint-dev/setpoint/controllers/serviceaccount"
	"github.com/setpoint-dev/setpoint/controllers/statefulset"
	"github.com/setpoint-dev/setpoint/controllers/volumeprotection"
	"github.com/setpoint-dev/setpoint/scheduler"
)

// A loop is a built-in controller, as the Controllers option names it.
type loop struct {
	name  string
	setup func(*controller.Manager, *ControlPlane) error
}

// quotaLoop is the name of what says how much is used of ResourceQuotas.
const quotaLoop = "resourcequota"

// loops are the built-in controllers, in the order in which they are listed.
var loops = []loop{
	{"deployment", func(m *controller.Manager, _ *ControlPlane) error {
		return deployment.Setup(m, deployment.Options{})
	}},
	{"replicaset", func(m *controller.Manager, _ *ControlPlane) error {
		return replicaset.Setup(m, replicaset.Options{})
	}},
	{"replicationcontroller", func(m *controller.Manager, _ *ControlPlane) error {
		return replicaset.SetupReplicationController(m, replicaset.Options{})
	}},
	{"statefulset", func(m *controller.Manager, _ *ControlPlane) error {
		return statefulset.Setup(m, statefulset.Options{})
	}},
	{"daemonset", func(m *controller.Manager, _ *ControlPlane) error {
		return daemonset.Setup(m, daemonset.Options{})
	}},
	{"job", func(m *controller.Manager, _ *ControlPlane) error {
		return job.Setup(m, job.Options{})
	}},
	{"cronjob", func(m *controller.Manager, _ *ControlPlane) error {
		return cronjob.Setup(m, cronjob.Options{})
	}},
	{"endpointslice", func(m *controller.Manager, _ *ControlPlane) error {
		return endpointslice.Setup(m, endpointslice.Options{})
	}},
	{"endpoints", func(m *controller.Manager, _ *ControlPlane) error {
		return endpoints.Setup(m, endpoints.Options{})
	}},
	{"disruption", func(m *controller.Manager, _ *ControlPlane) error {
		return disruption.Setup(m, disruption.Options{})
	}},
	{"horizontalpodautoscaler", func(m *controller.Manager, _ *ControlPlane) error {
		return horizontalpodautoscaler.Setup(m, horizontalpodautoscaler.Options{})
	}},
	{"persistentvolume", func(m *controller.Manager, _ *ControlPlane) error {
		return persistentvolume.Setup(m, persistentvolume.Options{})
	}},
	{"volumeprotection", func(m *controller.Manager, _ *ControlPlane) error {
		return volumeprotection.Setup(m, volumeprotection.Options{})
	}},
	{"namespace", func(m *controller.Manager, _ *ControlPlane) error {
		return namespace.Setup(m, namespace.Options{})
	}},
	{"garbagecollector", func(m *controller.Manager, _ *ControlPlane) error {
		return gc.Setup(m, gc.Options{})
	}},
	// The server itself counts what is used of quotas, in the commits that use it: there is nothing to run.
	{quotaLoop, func(*controller.Manager, *ControlPlane) error { return nil }},
	{"serviceaccount", func(m *controller.Manager, c *ControlPlane) error {
		return serviceaccount.Setup(m, serviceaccount.Options{CA: c.authority.PEM()})
	}},
	{"nodelifecycle", func(m *controller.Manager, _ *ControlPlane) error {
		return nodelifecycle.Setup(m, nodelifecycle.Options{})
	}},
	{"scheduler", func(m *controller.Manager, _ *ControlPlane) error {
		return scheduler.Setup(m, scheduler.Options{})
	}},
}

// Controllers returns the names of the built-in controllers.
func Controllers() []string {
	names := make([]string, len(loops))
	for i, l := range loops {
		names[i] = l.name
	}
	return names
}

// chosen returns the controllers that a list names: "all" or "*", "none", names, and "-name" to
// leave one out. Only names to leave out mean all others.
func chosen(list []string) ([]loop, error) {
	run := map[string]bool{}
	all := func(on bool) {
		for _, l := range loops {
			run[l.name] = on
		}
	}
	if len(list) == 0 || strings.HasPrefix(list[0], "-") {
		all(true)
	}
	for _, item := range list {
		name, leaveOut := strings.CutPrefix(item, "-")
		switch {
		case item == "all" || item == "*":
			all(true)
		case item == "none":
			all(false)
		case slices.Contains(Controllers(), name):
			run[name] = !leaveOut
		default:
			return nil, fmt.Errorf("controllers: there is no %q; there are all, none, %s, and each of them with - before it",
				item, strings.Join(Controllers(), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(loops), func(l loop) bool { return !run[l.name] }), nil
}
