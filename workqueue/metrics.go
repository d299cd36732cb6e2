package workqueue

import (
	"github.com/prometheus/client_golang/prometheus"
)

// The metrics have client-go's names, so that dashboards carry over. Keys are never labels.
var (
	labels      = []string{"name"}
	depth       = desc("depth", "Keys that are ready.")
	delayedKeys = desc("delayed", "Keys that wait for their time.")
	oldest      = desc("oldest_age_seconds", "How long the longest waiting ready key has waited.")
	adds        = desc("adds_total", "Adds handled.")
	retries     = desc("retries_total", "Retries handled.")
	queueTime   = desc("queue_duration_seconds", "How long keys wait until they are worked on.")
	workTime    = desc("work_duration_seconds", "How long keys are worked on.")
	unfinished  = desc("unfinished_work_seconds", "Seconds of work under way that is not yet counted.")
	longest     = desc("longest_running_processor_seconds", "How long the longest running work has run.")
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("workqueue_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (q *Queue[T]) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		depth, delayedKeys, oldest, adds, retries, queueTime, workTime, unfinished, longest,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. The numbers are read when they are asked for, which is
// why counting costs the queue next to nothing.
func (q *Queue[T]) Collect(ch chan<- prometheus.Metric) {
	q.mu.Lock()
	s, m := q.core.stats(q.now()), q.core.metrics
	q.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, q.name)
	}
	gauge(depth, float64(s.Ready))
	gauge(delayedKeys, float64(s.Delayed))
	gauge(oldest, s.Oldest.Seconds())
	gauge(unfinished, s.Unfinished.Seconds())
	gauge(longest, s.LongestWork.Seconds())
	ch <- prometheus.MustNewConstMetric(adds, prometheus.CounterValue, float64(m.adds), q.name)
	ch <- prometheus.MustNewConstMetric(retries, prometheus.CounterValue, float64(m.retries), q.name)
	ch <- m.queueTime.metric(queueTime, q.name)
	ch <- m.workTime.metric(workTime, q.name)
}

func (h *histogram) metric(d *prometheus.Desc, name string) prometheus.Metric {
	cumulative := make(map[float64]uint64, len(h.tens))
	var n uint64
	for i, count := range h.tens {
		n += count
		cumulative[boundOf(i).Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(d, h.count, h.sum.Seconds(), cumulative, name)
}
