package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/store"
)

// HistoryPath is before the path of an object, or of a collection, to ask what happened to it instead
// of what it is: GET /setpoint.dev/v1/history/api/v1/namespaces/default/pods/web. It is authorized as
// the get or the list that the rest of the path is. The query may say
//
//	from, to   revisions: what happened after the one, up to the other; all that is kept unless set
//	limit      how many events to show at most: 500 unless set
//	previous   that each event shows the object before it, too
const HistoryPath = "/setpoint.dev/v1/history"

var historySegments = []string{"setpoint.dev", "v1", "history"}

// historyMax bounds an answer; who wants more asks again from where it ended.
const historyMax = 500

// historyOptions are what a history asks for.
type historyOptions struct {
	from, to store.Revision
	limit    int
	previous bool
}

// history answers with the events of an object or a collection, oldest first, and who made them:
// metadata.resourceVersion is how far the answer reaches, metadata.more whether it ends before to.
func (s *Server) history(w http.ResponseWriter, r *request) error {
	opts, err := s.parseHistory(r)
	if err != nil {
		return err
	}
	page, err := s.historyPage(r, opts)
	switch {
	case errors.Is(err, store.ErrCompacted):
		return errExpired(opts.from, s.store.Compacted())
	case err != nil:
		return storeError(err)
	}
	body := fmt.Appendf(nil, `{"kind":"History","apiVersion":"setpoint.dev/v1",`+
		`"metadata":{"resourceVersion":"%d","oldest":"%d","more":%v},"items":[`,
		page.reached, s.store.Compacted(), page.more)
	for i, ev := range page.events {
		if i > 0 {
			body = append(body, ',')
		}
		if body, err = s.appendHistory(body, r, ev, opts.previous); err != nil {
			return err
		}
	}
	media, err := negotiatePlain(r)
	if err != nil {
		return err
	}
	return writeBody(w, r, media, http.StatusOK, append(body, "]}"...), nil)
}

// historyPage is what a history shows, up to a revision.
type historyPage struct {
	events  []*store.Event
	reached store.Revision
	more    bool
}

// historyPage reads the log. A page ends with a whole revision.
func (s *Server) historyPage(r *request, opts historyOptions) (p historyPage, err error) {
	cursor, err := s.store.Watch(storageResource(r.kind), r.watchPrefix(), opts.from)
	if err != nil {
		return p, err
	}
	for p.reached < opts.to {
		events, err := cursor.TryNext()
		if err != nil {
			return p, err
		}
		for _, ev := range events {
			revision := ev.Entry.Revision
			if revision > opts.to || r.name != "" && ev.Entry.Key != r.key() {
				continue
			}
			if n := len(p.events); n >= opts.limit && p.events[n-1].Entry.Revision < revision {
				p.more, p.reached = true, p.events[n-1].Entry.Revision
				return p, nil
			}
			p.events = append(p.events, ev)
		}
		p.reached = min(cursor.Revision(), opts.to)
	}
	return p, nil
}

func (s *Server) parseHistory(r *request) (opts historyOptions, err error) {
	opts = historyOptions{
		from: s.store.Compacted(), to: s.store.Revision(),
		limit: historyMax, previous: boolParam(r.query, "previous"),
	}
	for name, revision := range map[string]*store.Revision{"from": &opts.from, "to": &opts.to} {
		text := r.query.Get(name)
		if text == "" {
			continue
		}
		if *revision, err = parseRevision(text); err != nil {
			return opts, apierrors.NewBadRequest(fmt.Sprintf("%s is %q, want a revision", name, text))
		}
	}
	if text := r.query.Get("limit"); text != "" {
		if opts.limit, err = strconv.Atoi(text); err != nil || opts.limit < 1 || opts.limit > historyMax {
			return opts, apierrors.NewBadRequest(fmt.Sprintf("limit is %q, want a number from 1 to %d", text, historyMax))
		}
	}
	switch {
	case opts.to > s.store.Revision():
		return opts, errTooLarge(opts.to, s.store.Revision())
	case opts.from > opts.to:
		return opts, apierrors.NewBadRequest(fmt.Sprintf("from is %d, want a revision that is not after to, %d", opts.from, opts.to))
	}
	return opts, nil
}

// appendHistory appends one event.
func (s *Server) appendHistory(dst []byte, r *request, ev *store.Event, previous bool) ([]byte, error) {
	kind := "MODIFIED"
	switch {
	case ev.Type == store.Delete:
		kind = "DELETED"
	case ev.Prev == nil:
		kind = "ADDED"
	}
	dst = fmt.Appendf(dst, `{"revision":"%d","type":"%s","origin":%s`, ev.Entry.Revision, kind, originOf(ev))
	if ev.Entry.Value != nil {
		own, err := s.ownForm(r, ev.Entry.Value)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, `,"object":`...), own...)
	}
	if previous && ev.Prev != nil {
		own, err := s.ownForm(r, ev.Prev.Value)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, `,"previous":`...), own...)
	}
	return append(dst, '}'), nil
}

// originOf is what the event's writer said of itself: an object with user, manager, verb,
// subresource if any, and time.
func originOf(ev *store.Event) []byte {
	switch origin := []byte(ev.Origin); {
	case len(origin) == 0:
		return []byte("{}")
	case json.Valid(origin):
		return origin
	default:
		return fmt.Appendf(nil, `{"note":%s}`, appendQuoted(nil, ev.Origin))
	}
}
