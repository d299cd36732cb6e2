package gc

import (
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache/wire"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/connect"
)

// Options are the settings of the garbage collector. The zero value is a good default.
type Options struct {
	// Workers is how many objects are dealt with at once; zero is 16.
	Workers int
	// Rediscover is how often the server is asked for new kinds; zero is 10 s. A reference to a kind
	// that is not known has it asked at once.
	Rediscover time.Duration
}

// name is the controller's in events and in the history of what it writes.
const name = "garbage-collector-controller"

// Setup adds the garbage collector to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	cfg := rest.CopyConfig(mgr.GetConfig())
	cfg.QPS = -1 // the workers bound what is asked at once
	cfg.UserAgent = name + "/setpoint"
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("discovery client: %w", err)
	}
	web, err := connect.HTTPClient(cfg)
	if err != nil {
		return fmt.Errorf("HTTP client: %w", err)
	}
	meta, err := wire.Metadata(cfg, web)
	if err != nil {
		return fmt.Errorf("metadata client: %w", err)
	}
	if opts.Workers == 0 {
		opts.Workers = 16
	}
	if opts.Rediscover == 0 {
		opts.Rediscover = 10 * time.Second
	}
	return mgr.Add(newCollector(config{
		Metadata:   meta,
		Discovery:  disco,
		Clock:      mgr.Clock(),
		Log:        mgr.Logger().With("controller", "gc"),
		Events:     mgr.GetEventRecorder(name),
		Workers:    opts.Workers,
		Rediscover: opts.Rediscover,
	}))
}
