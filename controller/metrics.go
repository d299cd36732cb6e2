package controller

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// metrics are those of all controllers of a manager. They have controller-runtime's names, so that
// dashboards carry over. The name of an object is never a label.
type metrics struct {
	registerer               prometheus.Registerer
	total                    *prometheus.CounterVec
	errors, terminal, panics *prometheus.CounterVec
	active, workers          *prometheus.GaugeVec
	seconds                  *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	name := func(s string) string { return "controller_runtime_" + s }
	counter := func(metric, help string, labels ...string) *prometheus.CounterVec {
		opts := prometheus.CounterOpts{Name: name(metric), Help: help}
		return prometheus.NewCounterVec(opts, append([]string{"controller"}, labels...))
	}
	gauge := func(metric, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name(metric), Help: help}, []string{"controller"})
	}
	m := &metrics{
		registerer: r,
		total:      counter("reconcile_total", "Passes, by result.", "result"),
		errors:     counter("reconcile_errors_total", "Passes that failed."),
		terminal:   counter("terminal_reconcile_errors_total", "Passes that failed for good."),
		panics:     counter("reconcile_panics_total", "Passes that panicked."),
		active:     gauge("active_workers", "Workers that have a key."),
		workers:    gauge("max_concurrent_reconciles", "Workers there are."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name("reconcile_time_seconds"), Help: "How long passes take.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10),
		}, []string{"controller"}),
	}
	if r != nil {
		r.MustRegister(m.total, m.errors, m.terminal, m.panics, m.active, m.workers, m.seconds)
	}
	return m
}

// loopMetrics are those of one controller.
type loopMetrics struct {
	success, again, after, failed prometheus.Counter
	errors, terminal, panics      prometheus.Counter
	active                        prometheus.Gauge
	seconds                       prometheus.Observer
}

func (m *metrics) of(l *loop) loopMetrics {
	if m.registerer != nil {
		m.registerer.MustRegister(l.queue)
	}
	m.workers.WithLabelValues(l.name).Set(float64(l.workers()))
	return loopMetrics{
		success:  m.total.WithLabelValues(l.name, "success"),
		again:    m.total.WithLabelValues(l.name, "requeue"),
		after:    m.total.WithLabelValues(l.name, "requeue_after"),
		failed:   m.total.WithLabelValues(l.name, "error"),
		errors:   m.errors.WithLabelValues(l.name),
		terminal: m.terminal.WithLabelValues(l.name),
		panics:   m.panics.WithLabelValues(l.name),
		active:   m.active.WithLabelValues(l.name),
		seconds:  m.seconds.WithLabelValues(l.name),
	}
}

func (m *loopMetrics) observe(took time.Duration, result reconcile.Result, err error) {
	m.seconds.Observe(took.Seconds())
	switch {
	case err != nil:
		m.failed.Inc()
		m.errors.Inc()
		if errors.Is(err, reconcile.TerminalError(nil)) {
			m.terminal.Inc()
		}
	case result.RequeueAfter > 0:
		m.after.Inc()
	//lint:ignore SA1019 deprecated upstream, and still sent by operators
	case result.Requeue:
		m.again.Inc()
	default:
		m.success.Inc()
	}
}
