package apiserver

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// list answers with a collection, or a page of it. The objects are joined from their stored bytes
// and streamed: a list of any length costs a pointer for each object and one buffer.
func (s *Server) list(w http.ResponseWriter, r *request) error {
	media, err := negotiate(r)
	if err != nil {
		return err
	}
	opts, err := parseListOptions(r)
	if err != nil {
		return err
	}
	if media.as == "PartialObjectMetadata" {
		return errShape(media.as, r.kind, true)
	}
	p, err := s.page(r, opts)
	if err != nil {
		return err
	}
	return s.respondList(w, media, r, p)
}

// respondList answers with a page.
func (s *Server) respondList(w http.ResponseWriter, media mediaType, r *request, p *page) error {
	if media.encoding == asYAML || media.pretty {
		var whole bytes.Buffer
		if err := s.writeList(&whole, media, r, p); err != nil {
			return err
		}
		return writeBody(w, r, media, http.StatusOK, bytes.TrimSuffix(whole.Bytes(), newline), nil)
	}
	w.Header().Set("Content-Type", media.contentType())
	switch media.encoding {
	case asProtobuf:
		return s.writeListProto(&chunks{w: w}, media, r, p)
	case asCBOR:
		return s.writeList(newCBORWriter(w), media, r, p)
	}
	return s.writeList(w, media, r, p)
}

// page is a part of a collection as of one revision.
type page struct {
	revision  store.Revision // zero for what cannot be watched
	entries   []*store.Entry
	next      string // the continue token; "" on the last page
	remaining int    // how many come after the page; -1 if that is not known
	// own are the entries in the form of the kind, where a webhook is asked for that: before the first
	// byte of an answer is written. It is nil for all others.
	own [][]byte
	// saysContinue says that the token is written even if it is "", as upstream does for declared kinds.
	saysContinue bool
}

// page finds what a list is to return.
func (s *Server) page(r *request, opts *listOptions) (*page, error) {
	snap, after, err := s.listSnapshot(r, opts)
	if err != nil {
		return nil, err
	}
	p := &page{revision: snap.Revision(), remaining: -1}
	if !slices.Contains(verbs(r.kind), "watch") {
		p.revision = 0 // it would lead nowhere
	}
	if opts.limit == 0 && opts.selector.all() {
		p.entries, _ = snap.List(storageResource(r.kind), store.ListOptions{Prefix: r.prefix(), After: after})
		if err := checkReadable(r.kind.GroupResource(), p.entries); err != nil {
			return nil, err
		}
		return p, s.convertPage(r, p)
	}
	for chunk := range chunksOf(snap, storageResource(r.kind), r.watchPrefix(), after) {
		full, err := s.fill(p, snap, chunk, r, opts)
		if err != nil {
			return nil, err
		}
		if full {
			break
		}
	}
	return p, s.convertPage(r, p)
}

// fill adds what is chosen of a chunk to a page; full says that there is more than fits.
func (s *Server) fill(p *page, snap store.Snapshot, chunk []*store.Entry, r *request, opts *listOptions) (full bool, err error) {
	if err := s.learn(r, &opts.selector, chunk...); err != nil {
		return false, err
	}
	for _, e := range chunk {
		if err := checkReadable(r.kind.GroupResource(), []*store.Entry{e}); err != nil {
			return false, err // its labels and fields are not known
		}
		ok, err := opts.selector.matches(r.http.Context(), e)
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		if opts.limit > 0 && len(p.entries) == opts.limit {
			// There is one more: this page is not the last.
			last := p.entries[opts.limit-1].Key.Path
			p.next = encodeToken(token{Revision: int64(p.revision), After: last, Of: opts.fingerprint(r)})
			if opts.selector.all() {
				p.remaining = snap.Count(storageResource(r.kind), store.ListOptions{Prefix: r.prefix(), After: last})
			}
			return true, nil
		}
		p.entries = append(p.entries, e)
	}
	return false, nil
}

// convertPage has a page's objects in the form of the kind, where a webhook must be asked for it.
func (s *Server) convertPage(r *request, p *page) (err error) {
	if r.kind.Form != nil && r.kind.Form.Asks {
		p.own, err = s.ownForms(r, p.entries)
	}
	return err
}

// item is an object of a page, in the form of the kind.
func (s *Server) item(r *request, p *page, i int) ([]byte, error) {
	if p.own != nil {
		return p.own[i], nil
	}
	return s.ownForm(r, p.entries[i].Value)
}

// entries goes through a resource in order, a chunk at a time.
func entries(snap store.Snapshot, resource, prefix, after string) iter.Seq[*store.Entry] {
	return func(yield func(*store.Entry) bool) {
		for chunk := range chunksOf(snap, resource, prefix, after) {
			for _, e := range chunk {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// chunksOf goes through a resource in order, some hundreds at a time.
func chunksOf(snap store.Snapshot, resource, prefix, after string) iter.Seq[[]*store.Entry] {
	const chunk = 500
	return func(yield func([]*store.Entry) bool) {
		opts := store.ListOptions{Prefix: prefix, After: after, Limit: chunk}
		for more := true; more; {
			var found []*store.Entry
			found, more = snap.List(resource, opts)
			if len(found) == 0 || !yield(found) {
				return
			}
			opts.After = found[len(found)-1].Key.Path
		}
	}
}

// listSnapshot returns the state that a list is to be of, and the path after which it begins.
func (s *Server) listSnapshot(r *request, opts *listOptions) (snap store.Snapshot, after string, err error) {
	if opts.next != "" {
		return s.continued(r, opts)
	}
	exact := opts.match == "Exact" || opts.match == "" && opts.given && opts.limit > 0
	if !exact {
		snap, err = s.snapshot(r, opts.revision)
		return snap, "", err
	}
	snap, err = s.store.SnapshotAt(r.http.Context(), opts.revision)
	switch {
	case errors.Is(err, store.ErrFuture):
		err = errTooLarge(opts.revision, s.store.Revision())
	case errors.Is(err, store.ErrCompacted):
		err = apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	case err != nil:
		err = storeError(err)
	}
	return snap, "", err
}

// continued returns the state that the first page was of. If it is no longer kept, the client is
// told 410 with a token to go on at the newest state.
func (s *Server) continued(r *request, opts *listOptions) (store.Snapshot, string, error) {
	if opts.given {
		return nil, "", apierrors.NewBadRequest(
			"specifying resource version is not allowed when using continue")
	}
	t, err := decodeToken(opts.next)
	if err == nil {
		err = t.check(r, opts)
	}
	if err != nil {
		return nil, "", apierrors.NewBadRequest("invalid continue token: " + err.Error())
	}
	if t.Revision == newest {
		snap, err := s.snapshot(r, 0)
		return snap, t.After, err
	}
	snap, err := s.store.SnapshotAt(r.http.Context(), store.Revision(t.Revision))
	switch {
	case errors.Is(err, store.ErrCompacted):
		expired := apierrors.NewResourceExpired(tokenExpired)
		t.Revision = newest
		expired.ErrStatus.Continue = encodeToken(t)
		return nil, "", expired
	case errors.Is(err, store.ErrFuture):
		return nil, "", errTooLarge(store.Revision(t.Revision), s.store.Revision())
	case err != nil:
		return nil, "", storeError(err)
	}
	return snap, t.After, nil
}

const tokenExpired = "The provided continue parameter is too old: the state that the first page " +
	"showed is no longer kept. Start again without it, or go on with the token in " +
	"metadata.continue: the rest of the list is then as of now, and what was created, changed or " +
	"deleted meanwhile may be missing or be there twice."

// writeList writes a page in the chosen form, as JSON.
func (s *Server) writeList(w io.Writer, media mediaType, r *request, p *page) error {
	out := &chunks{w: w}
	switch media.as {
	case "Table":
		t, err := s.newTabulator(media, r)
		if err == nil && r.kind.RowOrder != nil {
			err = sortRows(r, p)
		}
		if err != nil {
			return err
		}
		out.buf = t.head(out.buf, p.metadata(nil), true)
		err = s.writeItems(out, r, p, func(dst, own []byte) ([]byte, error) { return t.row(dst, r, own) })
		if err != nil {
			return err
		}
	case "PartialObjectMetadataList":
		out.buf = p.head(out.buf, "PartialObjectMetadataList", "meta.k8s.io/"+media.version)
		err := s.writeItems(out, r, p, func(dst, own []byte) ([]byte, error) {
			return appendPartial(dst, media.version, own), nil
		})
		if err != nil {
			return err
		}
	default:
		apiVersion := r.kind.GVK().GroupVersion().String()
		p.saysContinue = r.kind.Declared
		out.buf = p.head(out.buf, r.kind.ListKindName(), apiVersion)
		// Items of a list do not repeat what the list says.
		said := []byte(`{"kind":"` + r.kind.Kind + `","apiVersion":"` + apiVersion + `",`)
		err := s.writeItems(out, r, p, func(dst, own []byte) ([]byte, error) {
			if rest, ok := bytes.CutPrefix(own, said); ok {
				dst = append(dst, '{')
				return append(dst, rest...), nil
			}
			return append(dst, own...), nil
		})
		if err != nil {
			return err
		}
	}
	if media.as == "Table" && r.kind.NullRows && len(p.entries) == 0 {
		out.buf = append(out.buf[:len(out.buf)-len("[")], "null}\n"...)
		return out.flush()
	}
	out.buf = append(out.buf, "]}\n"...)
	return out.flush()
}

// sortRows brings a page into the order in which a table of the kind shows it.
func sortRows(r *request, p *page) error {
	rows := make(map[*store.Entry]kinds.Object, len(p.entries))
	for _, e := range p.entries {
		obj, err := decodeStored(r.http.Context(), r.kinds, r.kind, e.Value)
		if err != nil {
			return err
		}
		rows[e] = obj
	}
	p.entries = slices.SortedStableFunc(slices.Values(p.entries), func(a, b *store.Entry) int {
		return r.kind.RowOrder(rows[a], rows[b])
	})
	return nil
}

// writeItems writes the items with commas between them.
func (s *Server) writeItems(out *chunks, r *request, p *page, item func(dst, own []byte) ([]byte, error)) error {
	for i := range p.entries {
		own, err := s.item(r, p, i)
		if err != nil {
			return err
		}
		if i > 0 {
			out.buf = append(out.buf, ',')
		}
		if out.buf, err = item(out.buf, own); err != nil {
			return err
		}
		if err := out.full(); err != nil {
			return err
		}
	}
	return nil
}

// head appends a list up to its first item.
func (p *page) head(dst []byte, kind, apiVersion string) []byte {
	dst = append(dst, `{"kind":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","apiVersion":"`...)
	dst = append(dst, apiVersion...)
	dst = append(dst, `","metadata":`...)
	dst = p.metadata(dst)
	return append(dst, `,"items":[`...)
}

// metadata appends a ListMeta.
func (p *page) metadata(dst []byte) []byte {
	if p.revision == 0 {
		return append(dst, "{}"...)
	}
	dst = append(dst, `{"resourceVersion":"`...)
	dst = strconv.AppendInt(dst, int64(p.revision), 10)
	dst = append(dst, '"')
	if p.next != "" || p.saysContinue {
		dst = append(dst, `,"continue":"`...)
		dst = append(dst, p.next...)
		dst = append(dst, '"')
	}
	if p.remaining >= 0 {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, int64(p.remaining), 10)
	}
	return append(dst, '}')
}

// chunks gathers small pieces and writes large ones. It is let write only where a token of JSON ends,
// which those that turn the text into something else rely on.
type chunks struct {
	w   io.Writer
	buf []byte
}

// chunkBytes is large enough that a system call costs little of what the copy does, and small
// enough that a thousand lists under way need no memory worth counting.
const chunkBytes = 32 << 10

// full writes what was gathered if it is enough.
func (c *chunks) full() error {
	if len(c.buf) < chunkBytes {
		return nil
	}
	return c.flush()
}

func (c *chunks) flush() error {
	_, err := c.w.Write(c.buf)
	c.buf = c.buf[:0]
	return aborted(err)
}
