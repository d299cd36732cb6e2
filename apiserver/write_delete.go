package apiserver

//lint:file-ignore SA1019 orphanDependents is deprecated, and older clients still send it

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/apiserver/admission"
	"github.com/setpoint-dev/setpoint/kinds"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// delete answers DELETE of an object.
func (s *Server) delete(w http.ResponseWriter, r *request) error {
	if _, err := negotiate(r); err != nil {
		return err
	}
	opts, err := readDeleteOptions(r)
	if err != nil {
		return err
	}
	if unsafely(opts) {
		if err := s.authorizeUnsafe(r); err != nil {
			return err
		}
	}
	warnOfOrphans(w, r, opts)
	t := s.newDelete(w, r, opts)
	gone, err := t.remove(opts)
	if err != nil {
		return err
	}
	if gone.value != nil && (gone.pending || r.kind.ReturnDeleted) {
		code := http.StatusOK
		if gone.pending && opts.OrphanDependents != nil && !*opts.OrphanDependents {
			code = http.StatusAccepted
		}
		return s.respond(w, r, code, gone.value)
	}
	return s.respondJSON(w, r, http.StatusOK, deletedStatus(r.kind, t.name, gone.uid))
}

// warnOfOrphans tells a client that said nothing of dependents that they stay, where the kind has it so.
func warnOfOrphans(w http.ResponseWriter, r *request, opts *metav1.DeleteOptions) {
	if text := r.kind.OrphanWarning; text != "" && opts.PropagationPolicy == nil && opts.OrphanDependents == nil {
		warn(w, text)
	}
}

func (s *Server) newDelete(w http.ResponseWriter, r *request, opts *metav1.DeleteOptions) *write {
	return &write{
		server: s, ctx: r.http.Context(), kinds: r.kinds, kind: r.kind, hooks: &r.kind.Strategy,
		user: r.user, verb: r.verb,
		opts: writeOptions{dryRun: len(opts.DryRun) > 0}, manager: managerOf(r, writeOptions{}),
		now: s.clock.Now(), warn: onceEach(w), fence: r.fence, batch: r.batch, namespace: r.namespace, name: r.name,
	}
}

func deletedStatus(k *kinds.Kind, name, uid string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: name, Group: k.Group, Kind: k.Resource, UID: types.UID(uid)},
	}
}

// readDeleteOptions reads the options from the body, or, if there is none, from the query.
// Possible errors: 400, 413, 415, 422.
func readDeleteOptions(r *request) (*metav1.DeleteOptions, error) {
	data, err := readBody(r)
	if err != nil {
		return nil, err
	}
	opts := &metav1.DeleteOptions{}
	if len(data) > 0 {
		opts, err = decodeDeleteOptions(r, data)
	} else {
		err = queryDeleteOptions(r, opts)
	}
	if err != nil {
		return nil, err
	}
	if errs := validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		kind := schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}
		return nil, apierrors.NewInvalid(kind, "", errs)
	}
	if unsafely(opts) && r.verb == "deletecollection" {
		return nil, invalidUnsafe(r.kind, "", "one object at a time is deleted so")
	}
	return opts, nil
}

// decodeDeleteOptions reads a body. Its apiVersion may be that of any group, for clients of old.
func decodeDeleteOptions(r *request, data []byte) (*metav1.DeleteOptions, error) {
	media, err := bodyType(r)
	if err != nil {
		return nil, err
	}
	b := body{media: media, data: data, schema: compiled.Builtin("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")}
	obj, err := b.decodeLoosely("DeleteOptions")
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return deleteOptions(obj), nil
}

func deleteOptions(obj kinds.Object) *metav1.DeleteOptions {
	opts := &metav1.DeleteOptions{DryRun: tree.Strings(obj, "dryRun")}
	if grace, ok := obj["gracePeriodSeconds"].(int64); ok {
		opts.GracePeriodSeconds = &grace
	}
	if orphan, ok := obj["orphanDependents"].(bool); ok {
		opts.OrphanDependents = &orphan
	}
	if unsafe, ok := obj[unsafeOption].(bool); ok {
		opts.IgnoreStoreReadErrorWithClusterBreakingPotential = &unsafe
	}
	if policy, ok := obj["propagationPolicy"].(string); ok {
		opts.PropagationPolicy = (*metav1.DeletionPropagation)(&policy)
	}
	if tree.Has(obj, "preconditions") {
		opts.Preconditions = &metav1.Preconditions{}
		if uid, ok := tree.Get(obj, "preconditions", "uid").(string); ok {
			opts.Preconditions.UID = (*types.UID)(&uid)
		}
		if revision, ok := tree.Get(obj, "preconditions", "resourceVersion").(string); ok {
			opts.Preconditions.ResourceVersion = &revision
		}
	}
	return opts
}

func queryDeleteOptions(r *request, opts *metav1.DeleteOptions) error {
	opts.DryRun = r.query["dryRun"]
	if r.query.Has("gracePeriodSeconds") {
		grace, err := strconv.ParseInt(r.query.Get("gracePeriodSeconds"), 10, 64)
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		opts.GracePeriodSeconds = &grace
	}
	if r.query.Has("orphanDependents") {
		orphan := boolParam(r.query, "orphanDependents")
		opts.OrphanDependents = &orphan
	}
	if r.query.Has(unsafeOption) {
		unsafe := boolParam(r.query, unsafeOption)
		opts.IgnoreStoreReadErrorWithClusterBreakingPotential = &unsafe
	}
	if r.query.Has("propagationPolicy") {
		policy := metav1.DeletionPropagation(r.query.Get("propagationPolicy"))
		opts.PropagationPolicy = &policy
	}
	return nil
}

// removed is what a delete left: nothing, or an object that waits for its end.
type removed struct {
	value   []byte // the object's last state
	uid     string
	pending bool
}

// remove deletes the object, or marks it, until nothing gets in between. An object that was to end at
// once, and that whoever runs it has ended meanwhile, counts as deleted; only kinds with a grace period
// have somebody who does that.
func (t *write) remove(opts *metav1.DeleteOptions) (removed, error) {
	var tried removed
	for {
		gone, err := t.removeOnce(opts)
		var conflict *store.ConflictError
		switch {
		case errors.As(err, &conflict):
			tried = gone
		case apierrors.IsNotFound(err) && tried.value != nil && !tried.pending && t.kind.GracePeriod != nil:
			return tried, nil
		default:
			return gone, err
		}
	}
}

// removeOnce is one attempt. Possible errors: *store.ConflictError if something got in between, with
// what would have been left.
func (t *write) removeOnce(opts *metav1.DeleteOptions) (removed, error) {
	t.begin()
	snap, err := t.newest()
	if err != nil {
		return removed{}, err
	}
	entry := snap.Get(t.key())
	if entry == nil {
		return removed{}, t.notFound()
	}
	if unsafely(opts) {
		return t.removeUnreadable(entry)
	}
	live, err := t.load(entry)
	if err != nil {
		return removed{}, err
	}
	a := t.attributes(admission.Delete, nil, live, snap)
	if err := t.mutate(a, nil); err != nil {
		return removed{}, err
	}
	if err := t.validate(a); err != nil {
		return removed{}, err
	}
	if err := t.checkPreconditions(opts.Preconditions, entry, live); err != nil {
		return removed{}, err
	}
	return t.erase(snap, entry, live, opts)
}

// erase commits the end of an object that is as it was read, or its beginning, together with what goes
// along with it. It may change live.
func (t *write) erase(snap store.Snapshot, entry *store.Entry, live kinds.Object,
	opts *metav1.DeleteOptions,
) (removed, error) {
	gone := removed{value: entry.Value, uid: tree.Str(live, "metadata", "uid")}
	if prepare := t.hooks.PrepareForDelete; prepare != nil && !tree.Has(live, "metadata", "deletionTimestamp") {
		prepare(t.env(snap), live)
	}
	plan := planDelete(t.kind, live, opts, t.now)
	if gone.pending = plan.pending; plan.obj == nil {
		return gone, nil
	}
	op, err := t.encode(plan.obj)
	if err != nil {
		return removed{}, err
	}
	if t.opts.dryRun {
		gone.value = stamped(op, revisionText(entry.Revision))
		return gone, nil
	}
	op.Expect = entry.Revision
	if op.Type = store.Delete; gone.pending {
		op.Type = store.Put
	} else if err := t.release(snap, live); err != nil {
		return removed{}, err
	}
	stored, err := t.commit(op)
	if err != nil {
		gone.value = stamped(op, revisionText(entry.Revision))
		return gone, err
	}
	gone.value = stored.Value
	return gone, nil
}

// release has the commit give back what an object holds and uses.
func (t *write) release(snap store.Snapshot, live kinds.Object) error {
	if err := t.hold(snap, live, nil); err != nil {
		return err
	}
	return t.charge(snap, live, nil)
}

func (t *write) checkPreconditions(p *metav1.Preconditions, entry *store.Entry, live kinds.Object) error {
	if p == nil {
		return nil
	}
	conflict := func(format string, args ...any) error {
		gr := schema.GroupResource{Group: t.kind.Group, Resource: t.kind.Kind}
		return apierrors.NewConflict(gr, t.name, fmt.Errorf(format, args...))
	}
	if uid := tree.Str(live, "metadata", "uid"); p.UID != nil && string(*p.UID) != uid {
		return conflict("the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated", *p.UID, uid)
	}
	if current := revisionText(entry.Revision); p.ResourceVersion != nil && *p.ResourceVersion != current {
		return conflict("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
			"The object might have been modified", *p.ResourceVersion, current)
	}
	return nil
}

// deletion is what a delete has to do.
type deletion struct {
	// obj is the object's next state, its last one if it is not pending; nil if nothing is to do.
	obj kinds.Object
	// pending says that the object stays: for its grace period, or for its finalizers.
	pending bool
}

// planDelete decides what becomes of an object that somebody deletes. It may change live.
func planDelete(k *kinds.Kind, live kinds.Object, opts *metav1.DeleteOptions, now time.Time) deletion {
	if isNamespace(k) {
		return planNamespaceDelete(live, opts, now)
	}
	m := metadata(live)
	graceful, waiting := planGrace(k, live, opts, now)
	if waiting {
		return deletion{pending: true}
	}
	before := tree.Strings(m, "finalizers")
	setFinalizers(m, finalizersFor(k, before, opts))
	switch {
	case len(tree.List(m, "finalizers")) > 0:
		if !graceful {
			markDeleting(m, now)
		}
		return deletion{obj: live, pending: true}
	case graceful && tree.Int(m, "deletionGracePeriodSeconds") > 0:
		return deletion{obj: live, pending: true}
	}
	return deletion{obj: live}
}

// planGrace sets an object's grace period, if its kind has one. A period that has begun can only
// be made shorter; waiting says that it goes on as it is.
func planGrace(k *kinds.Kind, live kinds.Object, opts *metav1.DeleteOptions, now time.Time) (graceful, waiting bool) {
	if k.GracePeriod == nil {
		return false, false
	}
	m := metadata(live)
	asked := opts.GracePeriodSeconds
	if asked != nil && *asked < 0 {
		one := int64(1)
		asked = &one
	}
	began := parseTime(tree.Str(m, "deletionTimestamp"))
	if began == nil {
		period := k.GracePeriod(live, asked)
		setDeletion(m, now.Add(time.Duration(period)*time.Second), period)
		raiseGeneration(m)
		return true, false
	}
	current := tree.Int(m, "deletionGracePeriodSeconds")
	switch {
	case current == 0:
		return false, false
	case asked == nil || *asked >= current:
		return false, true
	}
	period := *asked
	end := began.Add(time.Duration(period-current) * time.Second)
	if end.Before(now) {
		if end = now; period != 0 {
			period = 1 // still graceful: whoever ends the object does so
		}
	}
	setDeletion(m, end, period)
	return true, false
}

// finalizersFor returns the finalizers of an object that is deleted: what it has, and what makes
// the collector of garbage treat its dependents as asked.
func finalizersFor(k *kinds.Kind, finalizers []string, opts *metav1.DeleteOptions) []string {
	want := ""
	switch {
	case opts.OrphanDependents != nil:
		if *opts.OrphanDependents {
			want = metav1.FinalizerOrphanDependents
		}
	case opts.PropagationPolicy != nil:
		switch *opts.PropagationPolicy {
		case metav1.DeletePropagationOrphan:
			want = metav1.FinalizerOrphanDependents
		case metav1.DeletePropagationForeground:
			want = metav1.FinalizerDeleteDependents
		}
	case slices.ContainsFunc(finalizers, aboutDependents):
		want = finalizers[slices.IndexFunc(finalizers, aboutDependents)]
	case k.DefaultPropagation == string(metav1.DeletePropagationOrphan):
		want = metav1.FinalizerOrphanDependents
	}
	if slices.Contains(finalizers, want) && want != "" {
		return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return aboutDependents(f) && f != want })
	}
	kept := slices.DeleteFunc(slices.Clone(finalizers), aboutDependents)
	if want != "" {
		kept = append(kept, want)
	}
	return kept
}

func aboutDependents(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}

func setFinalizers(m map[string]any, finalizers []string) {
	if len(finalizers) == 0 {
		delete(m, "finalizers")
		return
	}
	list := make([]any, len(finalizers))
	for i, f := range finalizers {
		list[i] = f
	}
	m["finalizers"] = list
}

// markDeleting begins the wait for finalizers. A deletion that has begun earlier is not moved.
func markDeleting(m map[string]any, now time.Time) {
	began := parseTime(tree.Str(m, "deletionTimestamp"))
	if began == nil {
		raiseGeneration(m)
	}
	if began == nil || began.After(now) {
		setDeletion(m, now, 0)
	}
	m["deletionGracePeriodSeconds"] = int64(0)
}

func setDeletion(m map[string]any, at time.Time, period int64) {
	m["deletionTimestamp"], m["deletionGracePeriodSeconds"] = timestamp(at), period
}

func raiseGeneration(m map[string]any) {
	if generation := tree.Int(m, "generation"); generation > 0 {
		m["generation"] = generation + 1
	}
}

// planNamespaceDelete marks a namespace, which goes when its finalizers have gone.
func planNamespaceDelete(live kinds.Object, opts *metav1.DeleteOptions, now time.Time) deletion {
	m := metadata(live)
	if m["deletionTimestamp"] == nil {
		m["deletionTimestamp"] = timestamp(now)
		raiseGeneration(m)
		tree.Set(live, "Terminating", "status", "phase")
		setFinalizers(m, finalizersFor(&kinds.Kind{}, tree.Strings(m, "finalizers"), opts))
		return deletion{obj: live, pending: true}
	}
	if len(tree.List(live, "spec", "finalizers")) > 0 || len(tree.List(m, "finalizers")) > 0 {
		return deletion{pending: true}
	}
	return deletion{obj: live}
}
