package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/clock"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

const (
	// eventsMax bounds the events that wait to be written; when the server is slower than that,
	// further ones are dropped.
	eventsMax = 1000
	// seriesMax bounds the events that are remembered to be counted up instead of written anew.
	seriesMax = 4096
	// seriesAge is after how long a repeated event is written anew.
	seriesAge = 10 * time.Minute
	// An object gets a burst of new events, and then one in five minutes: what more happens to it
	// is in its status.
	eventBurst = 25
	eventEvery = 5 * time.Minute
)

// eventSink writes events, one after the other. An event that is like an earlier one raises that
// one's count.
type eventSink struct {
	client  cr.Client
	scheme  *runtime.Scheme
	clock   clock.PassiveClock
	log     *slog.Logger
	pending chan *corev1.Event
	made    atomic.Int64 // events so far, which makes names unique

	// Owned by run.
	series  map[series]*corev1.Event
	budgets map[types.UID]*budget
}

// series is what makes two events the same.
type series struct {
	object                            types.UID
	path, reporter, typ, reason, note string
}

// budget is what an object may still have written about it.
type budget struct {
	left  int
	since time.Time
}

func newEventSink(c cr.Client, opts ManagerOptions) *eventSink {
	return &eventSink{
		client: c, scheme: opts.Scheme, clock: opts.Clock, log: opts.Logger,
		pending: make(chan *corev1.Event, eventsMax),
		series:  make(map[series]*corev1.Event), budgets: make(map[types.UID]*budget),
	}
}

// run writes events until the context ends.
func (s *eventSink) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.pending:
			if err := s.write(ctx, e); err != nil && ctx.Err() == nil {
				s.log.Warn("cannot write an event", "reason", e.Reason, "err", err)
			}
		}
	}
}

func (s *eventSink) write(ctx context.Context, e *corev1.Event) error {
	key := series{
		e.InvolvedObject.UID, e.InvolvedObject.FieldPath, e.ReportingController, e.Type, e.Reason, e.Message,
	}
	if known := s.series[key]; known != nil && e.LastTimestamp.Sub(known.LastTimestamp.Time) < seriesAge {
		before := known.DeepCopy()
		known.Count++
		known.LastTimestamp = e.LastTimestamp
		err := s.client.Patch(ctx, known, cr.MergeFrom(before), cr.FieldOwner(e.ReportingController))
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	if !s.afford(e) {
		return nil
	}
	if len(s.series) >= seriesMax {
		clear(s.series)
	}
	s.series[key] = e
	return s.client.Create(ctx, e, cr.FieldOwner(e.ReportingController))
}

// afford takes a new event off its object's budget.
func (s *eventSink) afford(e *corev1.Event) bool {
	b := s.budgets[e.InvolvedObject.UID]
	if b == nil {
		if len(s.budgets) >= seriesMax {
			clear(s.budgets)
		}
		b = &budget{left: eventBurst, since: e.LastTimestamp.Time}
		s.budgets[e.InvolvedObject.UID] = b
	}
	if grown := int(e.LastTimestamp.Sub(b.since) / eventEvery); grown > 0 {
		b.left = min(b.left+grown, eventBurst)
		b.since = b.since.Add(time.Duration(grown) * eventEvery)
	}
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}

// eventRecorder makes events of one reporter.
type eventRecorder struct {
	sink     *eventSink
	reporter string
}

var _ recorder.EventRecorder = eventRecorder{}

// Eventf records an event about an object. It never blocks; if a thousand wait, it is dropped.
func (r eventRecorder) Eventf(regarding, related runtime.Object, typ, reason, action, note string, args ...any) {
	r.AnnotatedEventf(regarding, related, nil, typ, reason, action, note, args...)
}

// AnnotatedEventf is Eventf with annotations on the event.
func (r eventRecorder) AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, typ, reason, action, note string, args ...any) {
	e, err := r.event(regarding, related, typ, reason, action, fmt.Sprintf(note, args...))
	if err != nil {
		r.sink.log.Error("an event names no object", "reason", reason, "err", err)
		return
	}
	e.Annotations = annotations
	select {
	case r.sink.pending <- e:
	default:
		r.sink.log.Warn("too many events wait; one is dropped", "reason", reason)
	}
}

func (r eventRecorder) event(regarding, related runtime.Object, typ, reason, action, note string) (*corev1.Event, error) {
	if !util.ValidateEventType(typ) {
		return nil, fmt.Errorf("type is %q, allowed are Normal and Warning", typ)
	}
	ref, err := reference.GetReference(r.sink.scheme, regarding)
	if err != nil {
		return nil, err
	}
	now := metav1.NewTime(r.sink.clock.Now())
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ref.Namespace,
			Name:      util.GenerateEventName(ref.Name, now.UnixNano()+r.sink.made.Add(1)),
		},
		InvolvedObject: *ref,
		Type:           typ, Reason: reason, Action: action, Message: note,
		Source:         corev1.EventSource{Component: r.reporter},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: r.reporter,
	}
	if e.Namespace == "" {
		e.Namespace = metav1.NamespaceDefault
	}
	if related != nil {
		if e.Related, err = reference.GetReference(r.sink.scheme, related); err != nil {
			return nil, err
		}
	}
	return e, nil
}
