package apiserver

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// listOptions are what a list, a watch or a deletion of a collection asks for.
type listOptions struct {
	selector selector
	limit    int
	next     string // a continue token
	revision store.Revision
	given    bool // whether resourceVersion is neither empty nor "0"
	match    metav1.ResourceVersionMatch

	initialEvents bool
	bookmarks     bool
	timeout       time.Duration // zero if the client did not say
}

// parseListOptions reads the query as apimachinery's conversion and validation of ListOptions do.
// Possible errors: 400 and 422.
func parseListOptions(r *request) (*listOptions, error) {
	in, err := decodeListOptions(r.query)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	in.Watch = r.verb == "watch"
	internalversion.SetListOptionsDefaults(in, true)
	if errs := validation.ValidateListOptions(in, true); len(errs) > 0 {
		kind := schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}
		return nil, apierrors.NewInvalid(kind, "", errs)
	}
	opts := &listOptions{
		limit: int(max(in.Limit, 0)), next: in.Continue, match: in.ResourceVersionMatch,
		initialEvents: in.SendInitialEvents != nil && *in.SendInitialEvents, bookmarks: in.AllowWatchBookmarks,
	}
	if in.ResourceVersion == "0" {
		opts.limit = 0 // as upstream, which has all of it at hand
	}
	if opts.revision, err = parseRevision(in.ResourceVersion); err != nil {
		return nil, revisionError(in, err)
	}
	opts.given = opts.revision != 0
	if in.TimeoutSeconds != nil {
		opts.timeout = time.Duration(*in.TimeoutSeconds) * time.Second
	}
	opts.selector, err = newSelector(r, in.LabelSelector, in.FieldSelector)
	return opts, err
}

// decodeListOptions reads the query's text. Its errors are the parsers' own.
func decodeListOptions(query url.Values) (*internalversion.ListOptions, error) {
	in := &internalversion.ListOptions{
		ResourceVersion:      query.Get("resourceVersion"),
		ResourceVersionMatch: metav1.ResourceVersionMatch(query.Get("resourceVersionMatch")),
		AllowWatchBookmarks:  boolParam(query, "allowWatchBookmarks"),
		Continue:             query.Get("continue"),
	}
	var err error
	if text := query.Get("labelSelector"); text != "" {
		if in.LabelSelector, err = labels.Parse(text); err != nil {
			return nil, err
		}
	}
	if text := query.Get("fieldSelector"); text != "" {
		if in.FieldSelector, err = fields.ParseSelector(text); err != nil {
			return nil, err
		}
	}
	if _, ok := query["sendInitialEvents"]; ok {
		send := boolParam(query, "sendInitialEvents")
		in.SendInitialEvents = &send
	}
	if text, ok := query["timeoutSeconds"]; ok {
		seconds, err := strconv.ParseInt(text[0], 10, 64)
		if err != nil {
			return nil, err
		}
		in.TimeoutSeconds = &seconds
	}
	if text, ok := query["limit"]; ok {
		if in.Limit, err = strconv.ParseInt(text[0], 10, 64); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// revisionError is what becomes of a revision that is none: a watch has no Status for it.
func revisionError(in *internalversion.ListOptions, err error) error {
	if in.Watch {
		return unreasoned(err)
	}
	return badRevision(err)
}

// selector chooses among a collection's objects, for one goroutine. The zero selector chooses all.
type selector struct {
	labels labels.Selector // nil for all
	fields fields.Selector // nil for all

	// Of the request.
	kind *kinds.Kind
	set  *kinds.Set
	// name is set if only objects of this name can match.
	name string
	// looked is what fields looked at last; it is here so that a list makes one, not one for each
	// object.
	looked entryFields
}

func newSelector(r *request, byLabel labels.Selector, byField fields.Selector) (selector, error) {
	sel := selector{kind: r.kind, set: r.kinds, name: r.name}
	if byLabel != nil && !byLabel.Empty() {
		sel.labels = byLabel
	}
	if byField == nil || byField.Empty() {
		if r.name != "" {
			sel.fields = fields.OneTermEqualSelector("metadata.name", r.name)
		}
		return sel, nil
	}
	for _, term := range byField.Requirements() {
		if err := checkFieldLabel(r.kind, term.Field); err != nil {
			return sel, err
		}
	}
	if name, ok := byField.RequiresExactMatch("metadata.name"); r.name != "" && (!ok || name != r.name) {
		return sel, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	sel.fields = byField
	return sel, nil
}

func checkFieldLabel(k *kinds.Kind, label string) error {
	if label == "metadata.name" || label == "metadata.namespace" || k.Fields[label] != nil {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf(k.UnknownFieldText(), label))
}

// all says whether every object matches.
func (sel *selector) all() bool { return sel.labels == nil && sel.fields == nil }

// matches says whether an entry is chosen. The error is that of an entry that cannot be read.
func (sel *selector) matches(ctx context.Context, e *store.Entry) (bool, error) {
	if sel.all() {
		return true, nil
	}
	namespace, name := splitKey(sel.kind, e.Key)
	if sel.name != "" && sel.name != name {
		return false, nil
	}
	m, err := memoOf(ctx, sel.set, sel.kind, e)
	if err != nil {
		return false, err
	}
	if sel.labels != nil && !sel.labels.Matches(labels.Set(m.labels)) {
		return false, nil
	}
	if sel.fields == nil {
		return true, nil
	}
	sel.looked = entryFields{namespace, name, m.fields}
	return sel.fields.Matches(&sel.looked), nil
}

// entryFields are an entry's fields as a selector reads them.
type entryFields struct {
	namespace, name string
	more            map[string]string
}

func (f *entryFields) Has(field string) bool {
	if field == "metadata.name" || field == "metadata.namespace" {
		return true
	}
	_, ok := f.more[field]
	return ok
}

func (f *entryFields) Get(field string) string {
	switch field {
	case "metadata.name":
		return f.name
	case "metadata.namespace":
		return f.namespace
	}
	return f.more[field]
}
