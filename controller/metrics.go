package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of all controllers of a manager. Where controller-runtime has the metric, it has
// controller-runtime's name, so that dashboards carry over. The name of an object is never a label.
// docs/observability.md lists them.
type metrics struct {
	registerer               prometheus.Registerer
	total                    *prometheus.CounterVec
	errors, terminal, panics *prometheus.CounterVec
	active, workers          *prometheus.GaugeVec
	seconds                  *prometheus.HistogramVec
	requests                 *prometheus.CounterVec
	requestSeconds           *prometheus.HistogramVec
	spins, fights            *prometheus.CounterVec
}

// Prefixes of names: of what dashboards know, and of what they don't.
const (
	familiar = "controller_runtime_"
	own      = "setpoint_controller_"
)

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"controller"})
}

// histogram has buckets from half a millisecond to two minutes.
func histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10),
	}, labels)
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		registerer:     r,
		total:          counter(familiar+"reconcile_total", "Passes, by result.", "controller", "result"),
		errors:         counter(familiar+"reconcile_errors_total", "Passes that failed.", "controller"),
		terminal:       counter(familiar+"terminal_reconcile_errors_total", "Passes that failed for good.", "controller"),
		panics:         counter(familiar+"reconcile_panics_total", "Passes that panicked.", "controller"),
		active:         gauge(familiar+"active_workers", "Workers that have a key."),
		workers:        gauge(familiar+"max_concurrent_reconciles", "Workers there are."),
		seconds:        histogram(familiar+"reconcile_time_seconds", "How long passes take.", "controller"),
		requests:       counter(own+"requests_total", "Requests that passes made, by answer; none is no answer.", "controller", "verb", "code"),
		requestSeconds: histogram(own+"request_seconds", "How long passes wait for an answer.", "controller", "verb"),
		spins:          counter(own+"hot_loops_total", "Keys found to wake themselves by writing.", "controller"),
		fights:         counter(own+"field_fights_total", "Fields found to be set in turns by two writers.", "kind"),
	}
	if r != nil {
		r.MustRegister(m.total, m.errors, m.terminal, m.panics, m.active, m.workers, m.seconds,
			m.requests, m.requestSeconds, m.spins, m.fights)
	}
	return m
}

// loopMetrics are those of one controller.
type loopMetrics struct {
	outcomes                 map[outcome]prometheus.Counter
	errors, terminal, panics prometheus.Counter
	spins                    prometheus.Counter
	active                   prometheus.Gauge
	seconds                  prometheus.Observer
}

func (m *metrics) of(l *loop) loopMetrics {
	if m.registerer != nil {
		m.registerer.MustRegister(l.queue, loopGauges{l})
	}
	m.workers.WithLabelValues(l.name).Set(float64(l.workers()))
	result := func(r outcome) prometheus.Counter { return m.total.WithLabelValues(l.name, string(r)) }
	return loopMetrics{
		// Dashboards count three kinds of failures as one.
		outcomes: map[outcome]prometheus.Counter{
			outcomeDone: result(outcomeDone), outcomeAgain: result(outcomeAgain),
			outcomeAfter: result(outcomeAfter), outcomeError: result(outcomeError),
			outcomeConflict: result(outcomeError), outcomeTerminal: result(outcomeError),
		},
		errors:   m.errors.WithLabelValues(l.name),
		terminal: m.terminal.WithLabelValues(l.name),
		panics:   m.panics.WithLabelValues(l.name),
		spins:    m.spins.WithLabelValues(l.name),
		active:   m.active.WithLabelValues(l.name),
		seconds:  m.seconds.WithLabelValues(l.name),
	}
}

func (m *loopMetrics) observe(took time.Duration, o outcome) {
	m.seconds.Observe(took.Seconds())
	m.outcomes[o].Inc()
	if o.failed() {
		m.errors.Inc()
	}
	if o == outcomeTerminal {
		m.terminal.Inc()
	}
}

// loopGauges says, when it is asked, what of a controller's objects is not as it should be.
type loopGauges struct{ loop *loop }

var _ prometheus.Collector = loopGauges{}

// Describe describes nothing: a second controller of the name is refused elsewhere.
func (g loopGauges) Describe(chan<- *prometheus.Desc) {}

// Collect sends the gauges.
func (g loopGauges) Collect(ch chan<- prometheus.Metric) {
	l := g.loop
	send := func(name, help string, value float64) {
		desc := prometheus.NewDesc(own+name, help, nil, prometheus.Labels{"controller": l.name})
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	now := l.mgr.opts.Clock.Now()
	l.mu.Lock()
	parked := 0
	for _, u := range l.keys {
		if u.parked {
			parked++
		}
	}
	paused, failing, going := len(l.paused), len(l.failing), len(l.going)
	failed, gone := longest(now, l.failing), longest(now, l.going)
	l.mu.Unlock()
	send("paused_objects", "Objects left alone because they are paused.", float64(paused))
	send("parked_keys", "Keys that wait until the cache shows what they wrote.", float64(parked))
	send("unsynced_keys", "Keys whose last pass failed.", float64(failing))
	send("unsynced_seconds_max", "How long passes of one key have failed, of the longest.", failed.Seconds())
	send("deleting_objects", "Objects that are being deleted and wait for finalizers.", float64(going))
	send("deleting_seconds_max", "How long an object has been waiting to be deleted, of the longest.", gone.Seconds())
}

func longest(now time.Time, since map[request]time.Time) (d time.Duration) {
	for _, at := range since {
		d = max(d, now.Sub(at))
	}
	return d
}
