package workqueue

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// descriptors are the metrics of one queue; they have client-go's names and controller-runtime's
// labels, so that dashboards carry over. Keys are never a label.
type descriptors struct {
	depth, delayed, oldest, adds, retries, queueTime, workTime, unfinished, longest *prometheus.Desc
}

func newDescriptors(queue string) descriptors {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		constant := prometheus.Labels{"name": queue, "controller": queue}
		return prometheus.NewDesc("workqueue_"+name, help, labels, constant)
	}
	return descriptors{
		depth:      desc("depth", "Keys that are ready.", "priority"),
		delayed:    desc("delayed", "Keys that wait for their time."),
		oldest:     desc("oldest_age_seconds", "How long the longest waiting ready key has waited."),
		adds:       desc("adds_total", "Adds handled."),
		retries:    desc("retries_total", "Retries handled."),
		queueTime:  desc("queue_duration_seconds", "How long keys wait until they are worked on."),
		workTime:   desc("work_duration_seconds", "How long keys are worked on."),
		unfinished: desc("unfinished_work_seconds", "Seconds of work under way that is not yet counted."),
		longest:    desc("longest_running_processor_seconds", "How long the longest running work has run."),
	}
}

// Describe implements prometheus.Collector.
func (q *Queue[T]) Describe(ch chan<- *prometheus.Desc) {
	d := &q.descs
	for _, d := range []*prometheus.Desc{
		d.depth, d.delayed, d.oldest, d.adds, d.retries, d.queueTime, d.workTime, d.unfinished, d.longest,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. The numbers are read when they are asked for, which is
// why counting costs the queue next to nothing.
func (q *Queue[T]) Collect(ch chan<- prometheus.Metric) {
	now := q.now()
	q.mu.Lock()
	q.tick(now)
	s, m := q.core.stats(), q.core.metrics
	q.mu.Unlock()
	d := &q.descs
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, b := range s.Depths {
		gauge(d.depth, float64(b.Ready), strconv.Itoa(b.Priority))
	}
	gauge(d.delayed, float64(s.Delayed))
	gauge(d.oldest, s.Oldest.Seconds())
	gauge(d.unfinished, s.Unfinished.Seconds())
	gauge(d.longest, s.LongestWork.Seconds())
	ch <- prometheus.MustNewConstMetric(d.adds, prometheus.CounterValue, float64(m.adds))
	ch <- prometheus.MustNewConstMetric(d.retries, prometheus.CounterValue, float64(m.retries))
	ch <- m.queueTime.metric(d.queueTime)
	ch <- m.workTime.metric(d.workTime)
}

func (h *histogram) metric(d *prometheus.Desc) prometheus.Metric {
	cumulative := make(map[float64]uint64, len(h.tens))
	var n uint64
	for i, count := range h.tens {
		n += count
		cumulative[boundOf(i).Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(d, h.count, h.sum.Seconds(), cumulative)
}
