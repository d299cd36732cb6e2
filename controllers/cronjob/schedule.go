package cronjob

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

// missedMax is up to how many missed runs are counted. It is Kubernetes' value; beyond it somebody
// should hear that runs are being missed.
const missedMax = 100

// everyHour is the bit by which the parser marks an hour that was given as a star.
const everyHour = 1 << 63

// schedule says when runs are due.
//
// When clocks go forward, runs at an hour that does not exist are left out that day. When they go
// back, an hour is there twice: a schedule for every hour runs in both, and one that names hours runs
// in the first only, so that what is to happen once a day does. (Kubernetes runs it twice:
// kubernetes/kubernetes#121594.)
type schedule struct {
	cron.Schedule
	zone *time.Location
	once bool // each time on the clock is due once, however often the clock shows it
}

// problem is why a schedule cannot be kept, as reason and words of an event.
type problem struct{ reason, message string }

// scheduleOf reads the schedule of a CronJob. Without a time zone it is that of the controller's clock.
func scheduleOf(job *batchv1.CronJob, local *time.Location) (s schedule, bad *problem) {
	s.zone = local
	if name := job.Spec.TimeZone; name != nil {
		zone, err := time.LoadLocation(*name)
		if err != nil {
			return s, &problem{"UnknownTimeZone", fmt.Sprintf("invalid timeZone: %q: %s", *name, err)}
		}
		s.zone = zone
	}
	unparseable := func(why any) *problem {
		return &problem{"UnparseableSchedule", fmt.Sprintf("unparseable schedule: %q : %v", job.Spec.Schedule, why)}
	}
	defer func() { // the parser panics on time zones that are cut short
		if why := recover(); why != nil {
			bad = unparseable(why)
		}
	}()
	parsed, err := cron.ParseStandard(job.Spec.Schedule)
	if err != nil {
		return s, unparseable(err)
	}
	s.Schedule = parsed
	if spec, ok := parsed.(*cron.SpecSchedule); ok {
		s.once = spec.Hour&everyHour == 0
	}
	return s, nil
}

// next returns when the first run after a time is due; the zero time if none ever is.
func (s schedule) next(after time.Time) time.Time {
	t := s.Next(after.In(s.zone))
	for s.once && repeated(t) {
		t = s.Next(t)
	}
	return t
}

// repeated says whether the clock has shown a time before, because it has been put back since.
func repeated(t time.Time) bool {
	if t.IsZero() {
		return false
	}
	began, _ := t.ZoneBounds()
	if began.IsZero() {
		return false
	}
	_, now := t.Zone()
	_, before := began.Add(-time.Second).Zone()
	return t.Sub(began) < time.Duration(before-now)*time.Second
}

// due returns when the last run after one time, and not after another, was due, and how many were due
// between them, counted to missedMax+1; the zero time and zero if none was.
func (s schedule) due(after, now time.Time) (last time.Time, missed int) {
	last = s.next(after)
	if last.IsZero() || last.After(now) {
		return time.Time{}, 0
	}
	if every, ok := s.Schedule.(cron.ConstantDelaySchedule); ok {
		more := now.Sub(last) / every.Delay
		return last.Add(more * every.Delay), 1 + int(min(more, missedMax))
	}
	for missed = 1; missed <= missedMax; missed++ {
		next := s.next(last)
		if next.IsZero() || next.After(now) {
			return last, missed
		}
		last = next
	}
	return s.latest(last, now), missed
}

// latest returns the last run that is due by now. It looks ever further back, so that it takes few steps
// however rare the runs are, and however long ago the one is that is given and was due.
func (s schedule) latest(known, now time.Time) time.Time {
	last := known
	for back := time.Minute; ; back *= 8 {
		from := now.Add(-back)
		if !from.After(known) {
			from = known
		}
		found := false
		for t := s.next(from); !t.IsZero() && !t.After(now); t = s.next(t) {
			last, found = t, true
		}
		if found || from.Equal(known) {
			return last
		}
	}
}
