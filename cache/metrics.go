package cache

import "github.com/prometheus/client_golang/prometheus"

// The metrics of a cache, each by kind. A cache is current when its age is small: servers say at
// least once a minute how far a watch has come.
var (
	kindLabels  = []string{"group", "version", "kind"}
	objectsDesc = describe("objects", "Objects held.")
	bytesDesc   = describe("packed_bytes", "Text of the objects, as it is held.")
	decodedDesc = describe("decoded_objects", "Objects held in a decoded form besides.")
	decodesDesc = describe("decodes_total", "Objects decoded, in whatever form.")
	revDesc     = describe("revision", "Reads are at least as new.")
	lagDesc     = describe("revision_lag", "How far that is behind the newest that the cache knows of any kind.")
	ageDesc     = describe("age_seconds", "Since the server last said how new that is; -1 before the first list.")
	listsDesc   = describe("lists_total", "Lists asked for, by watches that begin with one too.")
	watchesDesc = describe("watches_total", "Watches opened.")
	failedDesc  = describe("failures_total", "Lists and watches that failed or broke.")
)

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("setpoint_cache_"+name, help, kindLabels, nil)
}

var _ prometheus.Collector = (*Cache)(nil)

// Describe implements prometheus.Collector.
func (c *Cache) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		objectsDesc, bytesDesc, decodedDesc, decodesDesc, revDesc, lagDesc, ageDesc, listsDesc, watchesDesc, failedDesc,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector. It costs something when it is called, and nothing else
// does.
func (c *Cache) Collect(out chan<- prometheus.Metric) {
	feeds := c.all()
	newest := int64(0)
	for _, f := range feeds {
		newest = max(newest, f.revision())
	}
	for _, f := range feeds {
		s := f.state()
		send := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
			out <- prometheus.MustNewConstMetric(d, t, v, f.gvk.Group, f.gvk.Version, f.gvk.Kind)
		}
		send(objectsDesc, prometheus.GaugeValue, float64(s.objects))
		send(bytesDesc, prometheus.GaugeValue, float64(s.bytes))
		send(decodedDesc, prometheus.GaugeValue, float64(s.decoded))
		send(revDesc, prometheus.GaugeValue, float64(s.revision))
		send(lagDesc, prometheus.GaugeValue, float64(newest-min(newest, s.revision)))
		send(ageDesc, prometheus.GaugeValue, s.age)
		send(decodesDesc, prometheus.CounterValue, float64(f.stats.decodes.Load()))
		send(listsDesc, prometheus.CounterValue, float64(f.stats.lists.Load()))
		send(watchesDesc, prometheus.CounterValue, float64(f.stats.watches.Load()))
		send(failedDesc, prometheus.CounterValue, float64(f.stats.failures.Load()))
	}
}

// state is what a feed holds as of one moment.
type state struct {
	objects, bytes, decoded int
	revision                int64
	age                     float64
}

func (f *feed) state() state {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := state{objects: len(f.table.rows), revision: f.newness()}
	for _, row := range f.table.rows {
		s.bytes += len(row.text)
		for of := range row.kept {
			if row.kept[of].Load() != nil {
				s.decoded++
			}
		}
	}
	for _, st := range f.streams {
		if !st.synced {
			s.age = -1
			break
		}
		s.age = max(s.age, f.clock.Since(st.heard).Seconds())
	}
	return s
}
