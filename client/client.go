// Package client reads from a cache and writes to the server, and knows its own writes.
//
// A cache is always a little behind. A controller that creates a child, and is woken before the
// cache has shown it, sees no child and creates another. With this client that cannot happen to
// who carries a Writes in the context (see Track; a controller does so by itself):
//   - Every write is recorded: the revision that the server answered with, or the uid of what was
//     deleted. Settled says whether the cache has come so far.
//   - A write whose answer was lost, or does not say at which revision it happened (a binding,
//     DeleteAllOf), is recorded too. Before it counts as settled the server is asked what has become
//     of it, and the cache shows that.
//   - A Get of a kind that was written to and is not shown yet is answered by the server, and a List
//     waits for the cache, for one second at most.
//
// A deletion is of the object that was read: unless the caller says otherwise, it carries the uid
// and resourceVersion of the object it is given, and fails with a conflict if that has changed.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/setpoint-dev/setpoint/internal/connect"
)

// listWaitMax bounds how long a List waits for the cache to show earlier writes. Whoever works on
// the key then gives its worker to another key.
const listWaitMax = time.Second

// Reader is a cache that says how far it has come.
type Reader interface {
	cr.Reader
	Progress
}

// Options are the settings of a client. The zero value is a good default.
type Options struct {
	// HTTPClient is used for all requests; nil makes one from the configuration.
	HTTPClient *http.Client
	// Scheme knows the Go types of the kinds; nil is client-go's.
	Scheme *runtime.Scheme
	// Mapper maps kinds to resources; nil asks the server's discovery when needed.
	Mapper meta.RESTMapper
	// Cache answers reads; nil has the server answer them.
	Cache Reader
	// FieldOwner is the field manager of all writes that don't name one.
	FieldOwner string
}

// Client is controller-runtime's client.Client. Use New. Its methods may be called concurrently.
type Client struct {
	cr.Client // to the server
	cache     Reader
}

var _ cr.Client = (*Client)(nil)

// New returns a client of the server that the configuration names.
func New(config *rest.Config, opts Options) (*Client, error) {
	if opts.HTTPClient == nil {
		var err error
		if opts.HTTPClient, err = connect.HTTPClient(config); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	live, err := cr.New(config, cr.Options{
		HTTPClient: opts.HTTPClient, Scheme: opts.Scheme, Mapper: opts.Mapper, FieldOwner: opts.FieldOwner,
	})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return Wrap(live, opts.Cache), nil
}

// Wrap returns a client that writes with the given one, and reads from the cache if it is not nil.
func Wrap(live cr.Client, cache Reader) *Client { return &Client{Client: live, cache: cache} }

// Live returns a reader that asks the server each time.
func (c *Client) Live() cr.Reader { return c.Client }

// Settled reports whether reads show every one of the writes. If not, then is called when that may
// have changed; it must not block. Where the outcome of a write is not known, the server is asked
// how new it is.
// Possible errors: those of that request.
func (c *Client) Settled(ctx context.Context, w *Writes, then func()) (bool, error) {
	if c.cache == nil {
		return true, nil
	}
	for _, gvk := range w.kinds() {
		if err := c.resolve(ctx, w, gvk); err != nil {
			return false, err
		}
		if w.behind(gvk, c.cache, then) {
			return false, nil
		}
	}
	return true, nil
}

// resolve asks the server what has become of what was written in doubt.
func (c *Client) resolve(ctx context.Context, w *Writes, gvk schema.GroupVersionKind) error {
	for _, d := range w.doubtsOf(gvk) {
		resolve := c.resolveObject
		if d.key.Name == "" {
			resolve = c.resolveKind
		}
		if err := resolve(ctx, w, d); err != nil {
			return err
		}
		w.settle(d)
	}
	return nil
}

// resolveObject reads one object. If it is there, its revision is to be waited for; if it is not,
// the end of what reads show in its place.
func (c *Client) resolveObject(ctx context.Context, w *Writes, d doubt) error {
	shown := c.cache.Held(d.gvk, d.key)
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(d.gvk)
	err := c.Client.Get(ctx, d.key, obj)
	switch {
	case err == nil:
		w.wrote(d.gvk, revisionOf(obj.ResourceVersion))
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("client: what is %s %s: %w", d.gvk.Kind, d.key, err)
	}
	if shown != "" && shown != obj.UID {
		w.deleted(deletion{d.gvk, d.key, shown})
	}
	return nil
}

// resolveKind asks how new the server is, by a list of at most one object: what was written in doubt
// is shown by reads as new as that, if it happened.
func (c *Client) resolveKind(ctx context.Context, w *Writes, d doubt) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(d.gvk.GroupVersion().WithKind(d.gvk.Kind + "List"))
	if err := c.Client.List(ctx, list, cr.Limit(1)); err != nil {
		return fmt.Errorf("client: how new is %s: %w", d.gvk.Kind, err)
	}
	w.wrote(d.gvk, revisionOf(list.ResourceVersion))
	return nil
}

func revisionOf(resourceVersion string) int64 {
	n, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Get reads from the cache, or from the server if the cache may not show the caller's own writes.
func (c *Client) Get(ctx context.Context, key cr.ObjectKey, obj cr.Object, opts ...cr.GetOption) error {
	if c.cache == nil || c.behind(ctx, obj) {
		return c.Client.Get(ctx, key, obj, opts...)
	}
	return c.cache.Get(ctx, key, obj, opts...)
}

func (c *Client) behind(ctx context.Context, obj runtime.Object) bool {
	w := tracked(ctx)
	if w == nil || w.Empty() {
		return false
	}
	gvk := c.kindOf(obj)
	return len(w.doubtsOf(gvk)) > 0 || w.behind(gvk, c.cache, nil)
}

// List reads from the cache, waiting until it shows the caller's own writes. If it doesn't in time,
// the error is one to try again after.
func (c *Client) List(ctx context.Context, list cr.ObjectList, opts ...cr.ListOption) error {
	if c.cache == nil {
		return c.Client.List(ctx, list, opts...)
	}
	if err := c.catchUp(ctx, list); err != nil {
		return err
	}
	return c.cache.List(ctx, list, opts...)
}

func (c *Client) catchUp(ctx context.Context, list cr.ObjectList) error {
	w := tracked(ctx)
	if w == nil || w.Empty() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listWaitMax)
	defer cancel()
	gvk := c.kindOf(list)
	if err := c.resolve(ctx, w, gvk); err != nil {
		return err
	}
	for {
		moved := make(chan struct{}, 1)
		if !w.behind(gvk, c.cache, func() { moved <- struct{}{} }) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("client: list %s: the cache does not show earlier writes yet: %w", gvk.Kind, ctx.Err())
		}
	}
}

// kindOf returns the kind of an object, and of the objects of a list.
func (c *Client) kindOf(obj runtime.Object) schema.GroupVersionKind {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return schema.GroupVersionKind{} // the request itself will say so
	}
	if meta.IsListType(obj) && len(gvk.Kind) > len("List") {
		gvk.Kind = gvk.Kind[:len(gvk.Kind)-len("List")]
	}
	return gvk
}

// record takes note of a write that ended with err, and returns err.
func (c *Client) record(ctx context.Context, obj cr.Object, err error) error {
	w := tracked(ctx)
	switch {
	case w == nil:
	case err == nil:
		w.wrote(c.kindOf(obj), revisionOf(obj.GetResourceVersion()))
	case outcomeUnknown(err):
		w.doubt(c.doubtOf(obj))
	}
	return err
}

func (c *Client) doubtOf(obj cr.Object) doubt {
	return doubt{c.kindOf(obj), cr.ObjectKeyFromObject(obj)}
}

// outcomeUnknown says whether a write that failed so may have happened, or happened before. One that
// never had a connection has not: it needs no waiting for a cache whose kind may be quiet for long.
func outcomeUnknown(err error) bool {
	var network *net.OpError
	if errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &network) && network.Op == "dial" {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return status.Status().Code >= http.StatusInternalServerError || apierrors.IsAlreadyExists(err)
}

// Create creates an object.
func (c *Client) Create(ctx context.Context, obj cr.Object, opts ...cr.CreateOption) error {
	return c.record(ctx, obj, c.Client.Create(ctx, obj, opts...))
}

// Update replaces an object.
func (c *Client) Update(ctx context.Context, obj cr.Object, opts ...cr.UpdateOption) error {
	return c.record(ctx, obj, c.Client.Update(ctx, obj, opts...))
}

// Patch changes an object.
func (c *Client) Patch(ctx context.Context, obj cr.Object, patch cr.Patch, opts ...cr.PatchOption) error {
	return c.record(ctx, obj, c.Client.Patch(ctx, obj, patch, opts...))
}

// Apply changes an object by server-side apply.
func (c *Client) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...cr.ApplyOption) error {
	return c.recordApply(ctx, obj, c.Client.Apply(ctx, obj, opts...))
}

// Delete deletes an object: the very one, in the state that was read, unless options say otherwise.
func (c *Client) Delete(ctx context.Context, obj cr.Object, opts ...cr.DeleteOption) error {
	var o cr.DeleteOptions
	o.ApplyOptions(opts)
	if o.Preconditions == nil && obj.GetUID() != "" {
		p := cr.Preconditions{UID: ptr.To(obj.GetUID())}
		if rv := obj.GetResourceVersion(); rv != "" {
			p.ResourceVersion = &rv
		}
		opts = append(opts, p)
	}
	err := c.Client.Delete(ctx, obj, opts...)
	w := tracked(ctx)
	switch {
	case w == nil || len(o.DryRun) > 0:
	case err == nil:
		w.deleted(deletion{c.kindOf(obj), cr.ObjectKeyFromObject(obj), obj.GetUID()})
	case outcomeUnknown(err):
		w.doubt(c.doubtOf(obj))
	}
	return err
}

// DeleteAllOf deletes every object that the options select. The answer does not say when that was,
// so the server is asked how new it is before the caller's next read of the kind.
func (c *Client) DeleteAllOf(ctx context.Context, obj cr.Object, opts ...cr.DeleteAllOfOption) error {
	err := c.Client.DeleteAllOf(ctx, obj, opts...)
	var o cr.DeleteAllOfOptions
	o.ApplyOptions(opts)
	if w := tracked(ctx); w != nil && len(o.DryRun) == 0 && (err == nil || outcomeUnknown(err)) {
		w.doubt(doubt{gvk: c.kindOf(obj)})
	}
	return err
}
