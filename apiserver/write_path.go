package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/patch/managed"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// write is one change of one object on its way into the store. It belongs to one goroutine.
//
// Every change walks the same line, whatever began it: the body is decoded, or a patch applied; the
// defaults are set; who owns which field is recorded; mutators run; what a client may not choose is
// set, or carried over from the stored object; the result is validated and admitted; and it is
// committed on the condition that the stored object is still the one that all this was about. If
// it is not, the line is walked again from there. See insert and replace.
type write struct {
	server *Server
	ctx    context.Context
	kinds  *kinds.Set
	kind   *kinds.Kind
	user   *authn.User
	verb   string
	opts   writeOptions
	// manager owns the fields that the write sets.
	manager string
	now     time.Time
	warn    func(text string)

	fence *fence // the term it belongs to, nil if it may be written at any time
	batch *batch // that it is part of, nil if it is by itself

	subresource     string
	namespace, name string          // name is "" for a create that has not made one yet
	hooks           *kinds.Strategy // of the subresource, where it has its own

	// Of the attempt under way.
	base   store.Revision    // of the stored object
	along  []store.Op        // what else must not have changed, and what is reserved or given back
	chosen []kinds.Held      // what was found free for the object
	notes  map[string]string // what admission noted for an audit
	// shown is the resourceVersion that a PUT came with which creates: a dry run shows it, as upstream's does.
	shown string

	// consequence says that the server itself writes, because of another write.
	consequence bool
}

// newWrite begins a write that a request asks for. Possible errors: 400 and 422 for the query.
func (s *Server) newWrite(w http.ResponseWriter, r *request, patch types.PatchType) (*write, error) {
	opts, err := parseWriteOptions(r, patch)
	if err != nil {
		return nil, err
	}
	return &write{
		server: s, ctx: r.http.Context(), kinds: r.kinds, kind: r.kind, user: r.user, verb: r.verb,
		opts: opts, manager: managerOf(r, opts), now: s.clock.Now(), warn: onceEach(w), fence: r.fence, batch: r.batch,
		subresource: r.subresource, namespace: r.namespace, name: r.name, hooks: hooksOf(r.kind, r.subresource),
	}, nil
}

// hooksOf returns the strategy under which a subresource, or the object itself, is written.
func hooksOf(k *kinds.Kind, subresource string) *kinds.Strategy {
	for i := range k.Subresources {
		if s := &k.Subresources[i]; s.Name == subresource && s.Strategy != nil {
			return s.Strategy
		}
	}
	return &k.Strategy
}

// onceEach sends each warning once, however often the line is walked, and no more than fit.
func onceEach(w http.ResponseWriter) func(string) {
	const bytesMax = 4 << 10 // as upstream: more may break a client's header limit
	sent, bytes := map[string]bool{}, 0
	return func(text string) {
		if bytes += len(text); sent[text] || bytes > bytesMax {
			return
		}
		sent[text] = true
		warn(w, text)
	}
}

func (t *write) key() store.Key { return keyOf(t.kind, t.namespace, t.name) }

// load returns the tree of a stored object in the form of the write's kind. It is the caller's.
func (t *write) load(e *store.Entry) (kinds.Object, error) {
	return decodeStored(t.ctx, t.kinds, t.kind, e.Value)
}

// encode returns what is stored of an object: its bytes, where the revision goes, and its memo. The
// object stays as it is. Possible errors: 500 if the version in which it is kept cannot be had.
func (t *write) encode(obj kinds.Object) (op store.Op, err error) {
	stored, form := t.kind, t.kind.Schema
	var memo any = newMemo(stored, obj)
	if at := t.kind.Storage; at != nil {
		obj = tree.CopyMap(obj)
		at.ToStored(obj)
		stored = t.kinds.Kind(schema.GroupVersionKind{Group: at.Group, Version: at.Version, Kind: at.Kind})
		form, memo = stored.Schema, newMemo(stored, obj)
	} else if f := t.kind.Form; f != nil && f.Kept != f {
		if obj, err = t.kept(obj); err != nil {
			return op, err
		}
		if form = f.Kept.Schema; f.Asks {
			memo = nil // what selectors see of it is only known when it is read
		}
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	value, revisionAt := form.AppendKept((*buf)[:0], obj)
	return store.Op{
		Key: t.key(), Value: bytes.Clone(value), RevisionAt: revisionAt, // no larger than it is: it may be kept
		Memo: memo, Origin: t.origin(),
		Frees: tree.Str(obj, "metadata", "deletionTimestamp") != "",
	}, nil
}

// kept returns an object in the version in which it is stored, which is another than the write's, with
// the defaults of that one.
func (t *write) kept(obj kinds.Object) (kinds.Object, error) {
	kept, err := t.kind.Form.Kept.From(t.ctx, []kinds.Object{tree.CopyMap(obj)})
	if err != nil {
		return nil, status(http.StatusInternalServerError, "", err.Error())
	}
	t.kind.Form.Kept.Schema.Default(kept[0])
	return kept[0], nil
}

// origin says, for the history, who writes and when.
func (t *write) origin() string {
	b := make([]byte, 0, 160)
	b = append(b, `{"user":`...)
	b = appendQuoted(b, t.user.Name)
	b = append(b, `,"manager":`...)
	b = appendQuoted(b, t.manager)
	b = append(b, `,"verb":"`...)
	b = append(b, t.verb...)
	if t.subresource != "" {
		b = append(b, `","subresource":"`...)
		b = append(b, t.subresource...)
	}
	b = append(b, `","time":"`...)
	b = t.now.UTC().AppendFormat(b, time.RFC3339)
	b = append(b, '"')
	for i, key := range t.sortedNotes() {
		if b = append(b, ','); i == 0 {
			b = append(b, `"annotations":{`...)
		}
		b = append(appendQuoted(b, key), ':')
		b = appendQuoted(b, t.notes[key])
	}
	if len(t.notes) > 0 {
		b = append(b, '}')
	}
	return string(append(b, '}'))
}

func appendQuoted(b []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // a string always has a form
	return append(b, quoted...)
}

// commit stores one change, together with what goes along with it. Possible errors:
// *store.ConflictError, 409 for a term that is over, and what storeError makes.
func (t *write) commit(op store.Op) (*store.Entry, error) {
	ops, err := t.fenced(append([]store.Op{op}, t.along...))
	if err != nil {
		return nil, err
	}
	result, err := t.state().Commit(t.ctx, ops...)
	if err != nil {
		return nil, commitError(err)
	}
	if !t.consequence {
		t.server.definitions.after(t.ctx, op)
	}
	if isQuota(op.Key) && op.Type == store.Put && t.batch == nil && !t.consequence && !t.server.opts.QuotasUncounted {
		t.server.settleQuota(t.ctx, op.Key)
	}
	return result.Entries[0], nil
}

// commitError is what becomes of an error of the store's: a *store.ConflictError stays what it is.
func commitError(err error) error {
	var conflict *store.ConflictError
	if errors.As(err, &conflict) {
		return conflict
	}
	return storeError(err)
}

// state is what the write reads and changes.
func (t *write) state() committer {
	if t.batch != nil {
		return t.batch
	}
	return t.server.store
}

// newest returns the state as of now.
func (t *write) newest() (store.Snapshot, error) {
	snap, err := t.state().Snapshot(t.ctx)
	if err != nil {
		return nil, storeError(err)
	}
	return snap, nil
}

// begin makes ready for an attempt.
func (t *write) begin() {
	const usual = 2 // the namespace and its quotas
	t.along, t.chosen, t.notes = make([]store.Op, 0, usual), nil, nil
}

// env is what the kind's hooks may ask of the world during an attempt on a state.
func (t *write) env(snap store.Snapshot) *kinds.Env {
	return &kinds.Env{
		Context:      t.ctx,
		Now:          t.now,
		User:         kinds.User(*t.user),
		Get:          t.reader(snap),
		Warn:         t.warn,
		AllocateIP:   func(ip string) (string, error) { return t.allocateIP(snap, ip) },
		AllocatePort: func(port int64) (int64, error) { return t.allocatePort(snap, port) },
	}
}

// reader reads other objects, in the form in which they are stored.
func (t *write) reader(snap store.Snapshot) func(group, resource, namespace, name string) kinds.Object {
	return func(group, resource, namespace, name string) kinds.Object {
		for _, k := range t.kinds.All() {
			if k.Group != group || k.Resource != resource {
				continue
			}
			if e := snap.Get(keyOf(k, namespace, name)); e != nil {
				obj, err := decodeStored(t.ctx, t.kinds, k, e.Value)
				if err == nil {
					return obj
				}
			}
		}
		return nil
	}
}

// depend makes the commit fail if an entry, which may be nil, is not as it is now.
func (t *write) depend(e *store.Entry) *store.Entry {
	known := func(op store.Op) bool { return op.Key == e.Key }
	if e != nil && e.Key != t.key() && !slices.ContainsFunc(t.along, known) {
		t.along = append(t.along, store.Op{Key: e.Key, Expect: e.Revision})
	}
	return e
}

// setDefaults sets what a client may leave out.
func (t *write) setDefaults(obj kinds.Object) {
	t.kind.Schema.Default(obj)
	if t.hooks.Default != nil {
		t.hooks.Default(obj)
	}
}

// own records in obj which fields the write sets; live is nil for a create.
func (t *write) own(live, obj kinds.Object) {
	managed.Update(t.server.managedType(t.kind), live, obj, t.managedWrite())
}

func (t *write) managedWrite() managed.Write {
	w := managed.Write{
		Manager: t.manager, APIVersion: t.kind.GVK().GroupVersion().String(),
		Subresource: t.subresource, Time: timestamp(t.now), Ignored: t.ignored(),
	}
	if f := t.kind.Form; f != nil && f.Asks && len(f.All) > 1 {
		w.Convert = t.convertFor
	}
	if t.subresource == "scale" {
		w.Time = "" // as upstream, which loses it on the way from the scale to the object
	}
	return w
}

// convertFor returns an object in the version in which somebody else set fields of it.
func (t *write) convertFor(obj kinds.Object, apiVersion string) (kinds.Object, *managed.Type, error) {
	to := t.kind.Form.All[apiVersion]
	if to == nil {
		return nil, nil, status(http.StatusInternalServerError, "",
			"request to convert CR to an invalid group/version: "+apiVersion)
	}
	objs, err := to.From(t.ctx, []kinds.Object{obj})
	if err != nil {
		return nil, nil, status(http.StatusInternalServerError, "", err.Error())
	}
	return objs[0], t.server.managedTypeOf(to.Schema), nil
}

// ignored are the fields that the write resets, and that nobody therefore comes to own by it.
func (t *write) ignored() managed.Ignored {
	switch {
	case t.subresource == "status":
		return managed.Ignored{Fields: []string{"spec"}, Metadata: statusKeepsMetadata}
	case t.kind.SpecUnowned && t.subresource == "":
		return managed.Ignored{Fields: []string{"spec", "status"}}
	case t.kind.SpecUnowned:
		return managed.Ignored{Fields: []string{"spec"}}
	case t.kind.Status && t.subresource == "":
		return managed.Ignored{Fields: []string{"status"}}
	}
	return managed.Ignored{}
}

// stamped returns encoded bytes with a revision, or without any resourceVersion if it is zero: the
// answer to a dry run, and the last state of what an update deleted.
func stamped(op store.Op, revision string) []byte {
	if op.RevisionAt < 0 {
		return op.Value
	}
	before, after := op.Value[:op.RevisionAt], op.Value[op.RevisionAt:]
	if revision == "" {
		const empty = `,"resourceVersion":"`
		before, after = before[:len(before)-len(empty)], after[1:]
	}
	out := make([]byte, 0, len(op.Value)+len(revision))
	out = append(append(out, before...), revision...)
	return append(out, after...)
}

// timestamp spells a time as metadata has it.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func revisionText(r store.Revision) string { return strconv.FormatInt(int64(r), 10) }

var namespacesResource = schema.GroupResource{Resource: "namespaces"}

func isNamespace(k *kinds.Kind) bool { return k.Group == "" && k.Kind == "Namespace" }

func (t *write) notFound() error { return apierrors.NewNotFound(t.kind.GroupResource(), t.name) }
