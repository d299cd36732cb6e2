package apiserver

import (
	"strconv"
	"sync/atomic"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/apiserver/cbor"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/store"
)

const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
)

// frames turns a store's events into the frames of one watch. It is passive: it knows no clock
// and no connection. What the frames of all watches have in common is made once, by whoever comes
// first.
type frames struct {
	s        *Server
	r        *request
	media    mediaType
	selector *selector
	table    *tabulator     // nil unless tables are wanted
	defined  bool           // whether the columns were told
	of       *form          // of its objects, nil unless protobuf is wanted
	last     store.Revision // of the last event that was shown
	marked   store.Revision // of the last bookmark
}

func (s *Server) newFrames(media mediaType, r *request, sel *selector) (*frames, error) {
	f := &frames{s: s, r: r, media: media, selector: sel}
	if media.encoding == asProtobuf {
		f.of = formOf(r, media)
	}
	if media.as == "Table" {
		t, err := s.newTabulator(media, r)
		if err != nil {
			return nil, err
		}
		f.table = t
	}
	return f, nil
}

// initial appends the frame of an object that was there at the start.
func (f *frames) initial(dst []byte, e *store.Entry) ([]byte, error) {
	ok, err := f.concerns(e)
	if err != nil || !ok {
		return dst, err
	}
	own, err := f.s.ownForms(f.r, []*store.Entry{e})
	if err != nil {
		return dst, err
	}
	f.last = max(f.last, e.Revision)
	if err := f.shape(); err != nil {
		return dst, err
	}
	return f.frame(dst, added, own[0])
}

// event appends the frame of a change, if the watch is concerned. An object that a change brings
// into the selection is ADDED; one that it takes out is DELETED, and shown as it last was in the
// selection, with the revision of the change.
func (f *frames) event(dst []byte, ev *store.Event) ([]byte, error) {
	was, is := ev.Prev != nil, ev.Type == store.Put
	if was {
		if _, unreadable := store.Unreadable(ev.Prev.Value); unreadable {
			return dst, store.ErrCompacted // what it was cannot be shown: who watches has to list
		}
	}
	natural := naturalType(was, is)
	var err error
	if was {
		if was, err = f.concerns(ev.Prev); err != nil {
			return dst, err
		}
	}
	if is {
		if is, err = f.concerns(ev.Entry); err != nil {
			return dst, err
		}
	}
	if !was && !is {
		return dst, nil // and only a bookmark can say that the watch has come by here
	}
	if err := f.shape(); err != nil {
		return dst, err
	}
	f.last = ev.Entry.Revision
	kind := naturalType(was, is)
	if kind == natural && f.table == nil && isOwnForm(f.r.kind, shownAs(ev, kind)) {
		return f.shared(dst, ev, kind)
	}
	e := ev.Entry
	if kind == deleted {
		e = ev.Prev
	}
	own, err := f.s.ownForms(f.r, []*store.Entry{e})
	if err != nil {
		return dst, err
	}
	if kind == deleted {
		own[0] = restamped(own[0], ev.Entry.Revision)
	}
	return f.frame(dst, kind, own[0])
}

// shape refuses to show one object as a list. A watch that is asked for as one begins, as upstream's does,
// and ends without a word when there is something to show.
func (f *frames) shape() error {
	if f.media.as != "PartialObjectMetadataList" {
		return nil
	}
	return aborted(errShape(f.media.as, f.r.kind, false))
}

// concerns says whether the watch is about an entry.
func (f *frames) concerns(e *store.Entry) (bool, error) {
	if err := f.s.learn(f.r, f.selector, e); err != nil {
		return false, err
	}
	return f.selector.matches(f.r.http.Context(), e)
}

func naturalType(was, is bool) string {
	switch {
	case !was:
		return added
	case is:
		return modified
	}
	return deleted
}

// shownAs is the stored object that a frame shows, whatever revision it is given.
func shownAs(ev *store.Event, kind string) []byte {
	if kind == deleted {
		return ev.Prev.Value
	}
	return ev.Entry.Value
}

// shown is the object of an event's frame. One that goes is shown as everybody last saw it: what
// the deleting commit changed in it, such as its last finalizer, was never there to be read.
func shown(ev *store.Event, kind string) []byte {
	if kind != deleted {
		return ev.Entry.Value
	}
	return restamped(ev.Prev.Value, ev.Entry.Revision)
}

// sharedFrames are the frames of an event as most watches want them: in each encoding, as it is and
// as PartialObjectMetadata. They live in Event.Memo, and there until the garbage collector comes: all
// who follow send an event within moments, and the history is no larger for what they were sent.
type sharedFrames [asYAML][2]atomic.Pointer[weak.Pointer[[]byte]]

// slot is where the frame of a form is kept, nil for forms that few ask for.
func (all *sharedFrames) slot(media mediaType) *atomic.Pointer[weak.Pointer[[]byte]] {
	switch {
	case media.as == "":
		return &all[media.encoding][0]
	case media.version == "v1":
		return &all[media.encoding][1]
	}
	return nil
}

// shared appends the frame that all watches of the form have in common. What is stored is not shared:
// to make a frame of it is to copy it, which each watch has to do with a frame that is made.
func (f *frames) shared(dst []byte, ev *store.Event, kind string) ([]byte, error) {
	if f.media.as == "" && f.media.encoding == asJSON && kind != deleted {
		return f.envelope(dst, kind, ev.Entry.Value)
	}
	all, ok := ev.Memo.Load().(*sharedFrames)
	if !ok {
		all = &sharedFrames{}
		ev.Memo.Store(all)
	}
	slot := all.slot(f.media)
	if slot == nil {
		return f.envelope(dst, kind, shown(ev, kind))
	}
	if kept := slot.Load(); kept != nil {
		if made := kept.Value(); made != nil {
			return append(dst, *made...), nil
		}
	}
	value := shown(ev, kind)
	frame, err := f.envelope(make([]byte, 0, len(value)+40), kind, value)
	if err != nil {
		return dst, err
	}
	kept := weak.Make(&frame)
	slot.Store(&kept)
	return append(dst, frame...), nil
}

// frame appends an event of an object, in its own form.
func (f *frames) frame(dst []byte, kind string, own []byte) ([]byte, error) {
	if f.table == nil {
		return f.envelope(dst, kind, own)
	}
	return f.tableFrame(dst, kind, own)
}

// envelope appends an event of an object, in its own form, as it is or as PartialObjectMetadata.
func (f *frames) envelope(dst []byte, kind string, own []byte) ([]byte, error) {
	if f.media.encoding == asJSON {
		dst = openFrame(dst, kind)
		if f.media.as != "" {
			dst = appendPartial(dst, f.media.version, own)
		} else {
			dst = append(dst, own...)
		}
		return append(dst, "}\n"...), nil
	}
	if f.media.as != "" {
		own = appendPartial(nil, f.media.version, own)
	}
	return f.binary(dst, kind, own, f.of)
}

// binary appends an event of a document, given as canonical JSON, in protobuf or CBOR.
func (f *frames) binary(dst []byte, kind string, doc []byte, of *form) ([]byte, error) {
	if f.media.encoding == asCBOR {
		return cbor.AppendJSON(cbor.Begin(dst), append(append(openFrame(nil, kind), doc...), '}')), nil
	}
	object, err := of.appendProto(nil, doc)
	if err != nil {
		return dst, err
	}
	return compiled.AppendWatchEvent(dst, kind, object), nil
}

func openFrame(dst []byte, kind string) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, kind...)
	return append(dst, `","object":`...)
}

// tableFrame appends an event whose object is a Table with one row. Only the first says what the
// columns are.
func (f *frames) tableFrame(dst []byte, kind string, own []byte) ([]byte, error) {
	revision, _ := member(metadataOf(own), "resourceVersion")
	metadata := append([]byte(`{"resourceVersion":`), revision...)
	f.table.now = f.s.clock.Now()
	dst = f.table.head(openFrame(dst, kind), append(metadata, '}'), !f.defined)
	f.defined = true
	dst, err := f.table.row(dst, f.r, own)
	return append(dst, "]}}\n"...), err
}

// progress appends a bookmark if the watch has come further than its last event or bookmark said. With
// alive it does so in any case: the client learns that it is still being served.
func (f *frames) progress(dst []byte, at store.Revision, alive bool) ([]byte, error) {
	told := max(f.last, f.marked)
	if at <= told && !alive {
		return dst, nil
	}
	return f.bookmark(dst, max(at, told), false)
}

// bookmark appends a bookmark: everything up to the revision has been sent. With end it also says
// that the initial events have been.
func (f *frames) bookmark(dst []byte, at store.Revision, end bool) ([]byte, error) {
	f.marked = max(f.marked, at)
	if err := f.shape(); err != nil {
		return dst, err
	}
	own := make([]byte, 0, 200)
	own = append(own, `{"kind":"`...)
	own = append(own, f.r.kind.Kind...)
	own = append(own, `","apiVersion":"`...)
	own = append(own, f.r.kind.GVK().GroupVersion().String()...)
	own = append(own, `","metadata":{"resourceVersion":"`...)
	own = strconv.AppendInt(own, int64(at), 10)
	own = append(own, '"')
	if end {
		own = append(own, `,"annotations":{"k8s.io/initial-events-end":"true"}`...)
	}
	own = append(own, "}}"...)
	if f.table != nil {
		return f.tableFrame(dst, "BOOKMARK", own)
	}
	return f.envelope(dst, "BOOKMARK", own)
}

// failure appends the event that ends a watch because of an error.
func (f *frames) failure(dst []byte, err *apierrors.StatusError) []byte {
	st := err.ErrStatus
	st.Kind, st.APIVersion = "Status", "v1"
	doc := mustMarshal(&st)
	if f.media.encoding == asJSON {
		return append(append(openFrame(dst, "ERROR"), doc...), "}\n"...)
	}
	dst, _ = f.binary(dst, "ERROR", doc, formOfMeta("Status")) // a Status has a form
	return dst
}
