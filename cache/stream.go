package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/cache/wire"
	"github.com/setpoint-dev/setpoint/internal/timers"
)

const (
	// The wait before a broken watch is opened again: doubled with each failure in a row, and spread
	// so that the clients of a restarted server don't come back all at once.
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 30 * time.Second
	// How long the server is asked to keep a watch, between once and twice this. Watches that end
	// spread clients over servers again.
	watchMin = 5 * time.Minute
	// A watch that lasted so long was good: the next one is opened at once.
	watchGood = time.Second
	// Where connections can die unnoticed, a watch that says nothing for muteQuiet is over. Watches
	// are asked for no more than muteLife there, for they end with a bookmark: without that a kind
	// that is quiet would never be known to be at a newer revision.
	muteQuiet = 40 * time.Second
	muteLife  = 30 * time.Second
	// How long the server may take to begin to answer.
	openMax = 30 * time.Second
	// Who waits for a revision that no event shows has the watch replaced by a brief one: servers
	// say at the end of a watch, or two seconds before it, how far it has come. That is asked for
	// after urgeMin, and then less and less often.
	urgeMin   = time.Second
	urgeMax   = 30 * time.Second
	briefLife = 3 * time.Second
)

// A stream is one list and watch: of a kind, or of a part of it.
type stream struct {
	feed  *feed
	part  part
	codec *codec
	setup setup
	// covers says which namespaces the stream answers for.
	covers func(namespace string) bool

	// Guarded by the feed's lock.
	revision int64     // reads of the part are as new
	heard    time.Time // when that was known to be the newest
	synced   bool      // everything is held, if only as metadata
	whole    bool      // what is held is more than metadata
	resumes  bool      // the server still has the history since the revision, as far as is known
	cancel   context.CancelCauseFunc

	urgent chan struct{} // somebody waits for a revision

	// Owned by run.
	noWatchList bool
	failures    int
	urge        time.Duration // before the next brief watch
	brief       bool          // the next watch is to be a brief one
}

// run follows the server until the context ends. First it lists, or has a watch begin with a list;
// then it watches from there, again and again. Only when the server no longer has the history that
// is missing, or when more is wanted of the objects than before, does it list anew.
func (s *stream) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := s.clock().Now()
		whole := s.feed.wants()
		listed := s.holds(whole)
		err := s.follow(ctx, &listed, whole)
		if ctx.Err() != nil {
			return
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			s.forget()
		}
		good := s.clock().Since(began) >= watchGood
		if good {
			s.failures = 0
		}
		if err == nil && good || errors.Is(err, errMoreWanted) {
			continue
		}
		s.failed(ctx, err)
		s.sleep(ctx, s.backoff())
	}
}

func (s *stream) clock() clock.WithTicker { return s.feed.clock }

// holds says whether there is a list to watch from.
func (s *stream) holds(whole bool) bool {
	s.feed.mu.RLock()
	defer s.feed.mu.RUnlock()
	return s.resumes && (s.whole || !whole)
}

// forget has the next round begin with a list. What is held is still read meanwhile.
func (s *stream) forget() {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.resumes = false
}

// failed reports a list or watch that ended and should not have.
func (s *stream) failed(ctx context.Context, err error) {
	s.feed.stats.failures.Add(1)
	s.feed.log.Debug("watch ended", "kind", s.feed.String(), "namespace", s.part.namespace, "err", err)
	if tell := s.feed.onError; tell != nil && err != nil {
		tell(ctx, s.feed.reflector, err)
	}
}

// follow does one round: a list if there is none yet, and a watch until it ends.
func (s *stream) follow(ctx context.Context, listed *bool, whole bool) error {
	if *listed {
		return s.watch(ctx, listed, whole)
	}
	if !s.noWatchList && s.setup.bookmarks {
		err := s.watch(ctx, listed, whole)
		if *listed || !refusesWatchList(err) {
			return err
		}
		s.noWatchList = true
	}
	if err := s.list(ctx, whole); err != nil {
		return err
	}
	*listed = true
	return s.watch(ctx, listed, whole)
}

// refusesWatchList says whether a server that was asked for a watch that begins with a list does
// not know such a thing.
func refusesWatchList(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || errors.Is(err, errSilent)
}

func (s *stream) list(ctx context.Context, whole bool) error {
	s.feed.stats.lists.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := s.bound(cancel, s.feed.quiet)
	defer patience.stop()
	body, err := s.feed.server.list(ctx, &s.part, whole)
	if err != nil {
		return fmt.Errorf("list %s: %w", s.feed, cmp.Or(context.Cause(ctx), err))
	}
	defer body.Close()
	var records []*record
	meta, err := wire.Items(heard{body, patience}, func(item []byte) error {
		rec, err := s.codec.record(item, whole)
		records = append(records, rec)
		return err
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", s.feed, cmp.Or(context.Cause(ctx), err))
	}
	s.feed.replace(s, records, parseRevision(meta.ResourceVersion), whole)
	return nil
}

var (
	// errSilent ends a watch on which nothing was heard for too long. The connection may be dead
	// though nobody said so.
	errSilent = errors.New("nothing was heard for too long")
	// errMoreWanted ends a watch of metadata when somebody wants more of the objects.
	errMoreWanted = errors.New("more is wanted than metadata")
)

// watch follows one watch to its end. If nothing is listed yet, the watch begins with a list.
func (s *stream) watch(ctx context.Context, listed *bool, whole bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	brief := s.brief && *listed
	s.brief = false
	began := s.clock().Now()
	body, err := s.open(ctx, cancel, !*listed, whole, s.life(brief))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("watch %s: %w", s.feed, err)
	}
	quiet := s.quiet(brief)
	silence := s.clock().NewTimer(quiet - s.clock().Since(began))
	defer silence.Stop()
	events := make(chan delivery)
	ended := make(chan struct{})
	go s.receive(ctx, body, whole, events, ended)
	defer func() { cancel(nil); body.Close(); <-ended }()

	urge := s.clock().NewTimer(urgeMin)
	defer urge.Stop()
	s.beginUrging(urge, brief)
	arriving := arrival{stream: s, whole: whole, listed: listed}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-silence.C():
			if s.setup.bookmarks || s.feed.server.mute.Load() { // others may well be silent
				return errSilent
			}
		case <-s.urgent:
			if s.urge == 0 {
				s.urgeLater(urge)
			}
		case <-urge.C():
			if s.brief = *listed && s.setup.bookmarks && s.feed.waiting(); s.brief {
				return nil
			}
			s.urge = 0
		case d, ok := <-events:
			if !ok {
				return nil
			}
			timers.Reset(silence, quiet)
			if err := arriving.take(d); err != nil {
				return err
			}
		}
	}
}

// life is how long the server is asked to keep a watch.
func (s *stream) life(brief bool) time.Duration {
	switch {
	case brief:
		return briefLife
	case s.feed.server.mute.Load():
		return s.feed.between(muteLife/2, muteLife)
	}
	return s.feed.between(watchMin, 2*watchMin)
}

// quiet is after how long without a word a watch is over.
func (s *stream) quiet(brief bool) time.Duration {
	switch {
	case brief:
		return 3 * briefLife
	case s.feed.server.mute.Load():
		return min(s.feed.quiet, muteQuiet)
	}
	return s.feed.quiet
}

// arrival is what comes by one watch. At first that may be a list, which is taken in as a whole.
type arrival struct {
	stream *stream
	whole  bool
	listed *bool
	first  []*record
}

func (a *arrival) take(d delivery) error {
	feed := a.stream.feed
	switch {
	case d.err != nil:
		return d.err
	case *a.listed:
		feed.apply(a.stream, d)
	case d.typ != watch.Bookmark:
		a.first = append(a.first, d.record)
	case d.listed:
		feed.replace(a.stream, a.first, d.revision, a.whole)
		*a.listed, a.first = true, nil
	}
	return nil
}

// beginUrging has the timer fire when a brief watch is due, if somebody waits. During a brief watch
// it does not.
func (s *stream) beginUrging(urge clock.Timer, brief bool) {
	urge.Stop()
	switch {
	case brief:
	case s.feed.waiting():
		s.urgeLater(urge)
	default:
		s.urge = 0
	}
}

func (s *stream) urgeLater(urge clock.Timer) {
	s.urge = min(max(urgeMin, 2*s.urge), urgeMax)
	timers.Reset(urge, s.urge)
}

// delivery is an event that has been read.
type delivery struct {
	typ      watch.EventType
	record   *record // nil for a bookmark
	revision int64
	listed   bool // a bookmark that ends a list
	err      error
}

// receive reads events until the watch ends. Whoever ends the context ends it.
func (s *stream) receive(ctx context.Context, body io.ReadCloser, whole bool, out chan<- delivery, ended chan<- struct{}) {
	defer close(ended)
	defer close(out)
	events := wire.NewEvents(body)
	for {
		d, err := s.read(events, whole)
		if err == io.EOF {
			return
		}
		d.err = err
		select {
		case out <- d:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (s *stream) read(events *wire.Events, whole bool) (delivery, error) {
	e, err := events.Next()
	if err != nil {
		return delivery{}, err
	}
	switch e.Type {
	case watch.Error:
		var status metav1.Status
		if err := wire.Decode(e.Object, &status); err != nil {
			return delivery{}, err
		}
		return delivery{}, apierrors.FromObject(&status)
	case watch.Bookmark:
		var mark metav1.PartialObjectMetadata
		if err := wire.Decode(e.Object, &mark); err != nil {
			return delivery{}, err
		}
		end := mark.Annotations[metav1.InitialEventsAnnotationKey] == "true"
		return delivery{typ: e.Type, revision: parseRevision(mark.ResourceVersion), listed: end}, nil
	}
	rec, err := s.codec.record(e.Object, whole)
	if err != nil {
		return delivery{}, err
	}
	return delivery{typ: e.Type, record: rec, revision: rec.revision}, nil
}

// open asks for a watch. The server must begin to answer in time.
func (s *stream) open(ctx context.Context, cancel context.CancelCauseFunc, withList, whole bool, life time.Duration) (io.ReadCloser, error) {
	opts := metav1.ListOptions{
		AllowWatchBookmarks: s.setup.bookmarks,
		TimeoutSeconds:      ptr.To(int64(life.Seconds())),
	}
	from, ok := s.feed.opening(s, cancel, whole)
	if !ok {
		return nil, errMoreWanted
	}
	if withList {
		s.feed.stats.lists.Add(1)
		opts.SendInitialEvents = ptr.To(true)
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	} else {
		opts.ResourceVersion = fmt.Sprint(from)
	}
	s.feed.stats.watches.Add(1)
	defer s.bound(cancel, openMax).stop()
	return s.feed.server.watch(ctx, &s.part, whole, opts)
}

func (s *stream) backoff() time.Duration {
	wait := min(reconnectMin<<min(s.failures, 16), reconnectMax)
	s.failures++
	return s.feed.between(wait/2, wait)
}

func (s *stream) sleep(ctx context.Context, d time.Duration) {
	timer := s.clock().NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}
