package apiserver

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are named as a Kubernetes API server names them, so that dashboards carry over. No
// label is an object's name or anything else that a client could make many of.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec
	watchers  *prometheus.GaugeVec
	events    *prometheus.CounterVec
	rejected  prometheus.Counter
	panics    prometheus.Counter
	page      http.Handler
}

var resourceLabels = []string{"group", "version", "resource"}

func (s *Server) newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "Requests by verb, resource and status code.",
		}, append([]string{"verb", "code", "subresource"}, resourceLabels...)),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "Time from the first look at a request to the end of its answer; watches and logs left out.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 15, 60},
		}, append([]string{"verb", "subresource"}, resourceLabels...)),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests",
			Help: "Requests being answered now.",
		}, []string{"request_kind"}),
		watchers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "Watches being served now.",
		}, resourceLabels),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total",
			Help: "Events that watches were given to look at.",
		}, resourceLabels),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_rejected_requests_total",
			Help: "Requests answered with 429 because their identity, or the server, had too many in flight.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_panics_total",
			Help: "Requests whose handler panicked.",
		}),
	}
	m.registry.MustRegister(s.storeMetrics()...)
	m.registry.MustRegister(m.requests, m.durations, m.inFlight, m.watchers, m.events, m.rejected,
		m.panics, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.page = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m
}

// storeMetrics are of what the store has, and of what it costs, as far as the engine knows.
func (s *Server) storeMetrics() (all []prometheus.Collector) {
	add := func(name, help string, value func() float64) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	add("setpoint_store_revision", "The newest durable revision of the store.",
		func() float64 { return float64(s.store.Revision()) })
	if kept, ok := s.store.(interface {
		HistoryBytes() int64
		HistorySince() time.Time
	}); ok {
		add("setpoint_store_history_bytes", "Memory that the history takes; --history-bytes bounds it.",
			func() float64 { return float64(kept.HistoryBytes()) })
		add("setpoint_store_history_seconds", "How far the history goes back; --history bounds it.", func() float64 {
			if since := kept.HistorySince(); !since.IsZero() {
				return s.clock.Since(since).Seconds()
			}
			return 0
		})
	}
	if disk, ok := s.store.(interface{ DiskBytes() int64 }); ok {
		add("setpoint_store_disk_bytes", "What the log and the checkpoints take of the disk: state and history.",
			func() float64 { return float64(disk.DiskBytes()) })
	}
	return all
}

// observe records a request that has been answered.
func (m *metrics) observe(r *request, code int, took time.Duration) {
	verb, group, version, resource, sub := r.verb, r.group, r.version, r.resource, r.subresource
	if r.kind == nil {
		// Paths and resources that do not exist are as many as a client likes.
		group, version, resource, sub = "", "", "", ""
	}
	if !knownVerbs[verb] {
		verb = "other"
	}
	m.requests.WithLabelValues(verb, strconv.Itoa(code), sub, group, version, resource).Inc()
	if !r.longRunning() {
		m.durations.WithLabelValues(verb, sub, group, version, resource).Observe(took.Seconds())
	}
}

var knownVerbs = map[string]bool{
	"get": true, "list": true, "watch": true, "create": true, "update": true, "patch": true,
	"delete": true, "deletecollection": true, "post": true, "put": true,
}

// watchCounts count for one watch.
type watchCounts struct {
	watchers prometheus.Gauge
	events   prometheus.Counter
}

func (m *metrics) watch(r *request) *watchCounts {
	n := &watchCounts{
		watchers: m.watchers.WithLabelValues(r.group, r.version, r.resource),
		events:   m.events.WithLabelValues(r.group, r.version, r.resource),
	}
	n.watchers.Inc()
	return n
}

func (n *watchCounts) end() { n.watchers.Dec() }

// Metrics is the registry behind /metrics, for other parts of the process to add theirs.
func (s *Server) Metrics() prometheus.Registerer { return s.metrics.registry }
