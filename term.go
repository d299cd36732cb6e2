package setpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/serviceaccount"
	"github.com/setpoint-dev/setpoint/lease"
)

// watched is what the built-in controllers look at of kinds of which there is much that is none of
// their business. What it leaves out they neither are told of nor read, and costs them nothing.
var watched = cache.Options{ByObject: map[client.Object]cache.ByObject{
	&corev1.ConfigMap{}: {
		Field: fields.OneTermEqualSelector("metadata.name", serviceaccount.RootCAName),
	},
	&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{corev1.NamespaceNodeLease: {}}},
}}

// runControllers runs the controllers until the context ends. When they lose their lease, because the store
// did not answer for as long as it lasts, or somebody else took it, requests are served on, and they begin
// anew: they know nothing of before, and wait until they have it again.
func (c *ControlPlane) runControllers(ctx context.Context) error {
	if len(c.loops) == 0 {
		return nil
	}
	for {
		err := c.runTerm(ctx)
		if !errors.Is(err, lease.ErrLost) || ctx.Err() != nil {
			return err
		}
		c.opts.Log.Warn("the controllers begin anew", "error", err)
	}
}

// runTerm runs the controllers as long as they have the lease, if they need one.
func (c *ControlPlane) runTerm(ctx context.Context) error {
	metrics := &registrations{Registerer: c.server.Metrics()}
	defer metrics.undo()
	config := c.configOf(controllersUser)
	// Warnings are for whoever writes objects, and they have had theirs: in the log they would tell
	// an operator of every kind that is deprecated and has to be collected all the same.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	manager, err := controller.NewManager(config, controller.ManagerOptions{
		Logger:  c.opts.Log,
		Clock:   c.opts.Clock,
		Metrics: metrics,
		Lease:   c.controllersLease(),
		Cache:   watched,
	})
	if err != nil {
		return err
	}
	for _, l := range c.loops {
		if err := l.setup(manager, c); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	c.server.ShowQueues(func() any { return manager.Queues() })
	return manager.Start(ctx)
}

// registrations remember which metrics were registered, so that others can take their place.
type registrations struct {
	prometheus.Registerer

	mu   sync.Mutex
	made []prometheus.Collector
}

func (r *registrations) Register(c prometheus.Collector) error {
	if err := r.Registerer.Register(c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = append(r.made, c)
	return nil
}

// MustRegister is Register for what nobody else has registered.
func (r *registrations) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func (r *registrations) undo() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.made {
		r.Unregister(c)
	}
}
