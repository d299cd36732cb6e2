package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/cacheapi"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get reads an object. The first Get of a kind waits for its first list.
// Possible errors: not found; ErrCacheNotStarted and ErrResourceNotCached of controller-runtime's
// package cache; a namespace that the cache does not hold.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, out client.Object, opts ...client.GetOption) error {
	v, err := c.readable(ctx, out)
	if err != nil {
		return err
	}
	f := v.feed
	if !f.namespaced {
		key.Namespace = ""
	}
	rec := f.get(key)
	if rec == nil {
		if err := f.holds(key.Namespace); err != nil {
			return err
		}
		// The message names the kind where a server names the resource.
		gr := schema.GroupResource{Group: f.gvk.Group, Resource: f.gvk.Kind}
		return apierrors.NewNotFound(gr, key.Name)
	}
	d, err := rec.as(v.form, reading)
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	obj := d.obj
	if have, want := reflect.TypeOf(obj), reflect.TypeOf(out); have != want {
		return fmt.Errorf("cache: %s is held as %s, and %s was asked for", v, have, want)
	}
	if !shares(rec, getShares(opts)) {
		obj = obj.DeepCopyObject().(client.Object)
	}
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(obj).Elem())
	return nil
}

func getShares(opts []client.GetOption) *bool {
	if len(opts) == 0 {
		return nil
	}
	if share, only := opts[0].(client.UnsafeDisableDeepCopyOption); only && len(opts) == 1 {
		return (*bool)(&share) // the usual case, spared an allocation of options
	}
	var o client.GetOptions
	o.ApplyOptions(opts)
	return o.UnsafeDisableDeepCopy
}

// shares says whether a reader gets what is held itself.
func shares(rec *record, asked *bool) bool {
	return rec.from.share || asked != nil && *asked
}

// readable returns the complete view of objects like this one.
func (c *Cache) readable(ctx context.Context, obj runtime.Object) (*view, error) {
	if known, ok := c.byType.Load(reflect.TypeOf(obj)); ok {
		if v := known.(*view); !isClosed(v.gone) {
			return v, nil
		}
	}
	if !c.started.Load() {
		return nil, &crcache.ErrCacheNotStarted{}
	}
	gvk, of, err := c.identify(obj)
	if err != nil {
		return nil, err
	}
	if c.opts.ReaderFailOnMissingInformer && !c.hasInformer(gvk, of) {
		return nil, &crcache.ErrResourceNotCached{GVK: gvk}
	}
	v, err := c.viewOf(gvk, of)
	if err != nil {
		return nil, err
	}
	if err := v.waitSynced(ctx); err != nil {
		return nil, err
	}
	c.remember(obj, v)
	return v, nil
}

func (c *Cache) hasInformer(gvk schema.GroupVersionKind, of form) bool {
	f := c.held(gvk)
	if f == nil {
		return false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.views[of] != nil
}

// holds returns an error if nothing in the namespace is held.
func (f *feed) holds(namespace string) error {
	var held []string
	for _, s := range f.streams {
		if s.covers(namespace) {
			return nil
		}
		held = append(held, s.part.namespace)
	}
	return fmt.Errorf("cache: %s of namespace %q are not held, only those of %q", f.gvk.Kind, namespace, held)
}

// List reads the objects that the options select, in order of namespace and name. A field selector
// can name metadata.name, metadata.namespace, OwnerField, ControllerField and what IndexField has
// indexed, and only by equality. Selecting by the value of a label is a look-up too. A list that a
// limit has cut short says so by a continue token, which cannot be used.
func (c *Cache) List(ctx context.Context, out client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.Continue != "" {
		return errors.New("cache: the continue list option is not supported by the cache: its lists are whole")
	}
	v, err := c.readable(ctx, out)
	if err != nil {
		return err
	}
	if !v.feed.namespaced {
		o.Namespace = ""
	}
	found, err := v.selectRecords(&o)
	if err != nil {
		return fmt.Errorf("cache: list %s: %w", v, err)
	}
	items := make([]runtime.Object, len(found.records))
	for i, rec := range found.records {
		d, err := rec.as(v.form, reading)
		if err != nil {
			return fmt.Errorf("cache: list: %w", err)
		}
		if items[i] = d.obj; !shares(rec, o.UnsafeDisableDeepCopy) {
			items[i] = d.obj.DeepCopyObject()
		}
	}
	if err := meta.SetList(out, items); err != nil {
		return fmt.Errorf("cache: list %s: %w", v, err)
	}
	out.SetResourceVersion(fmt.Sprint(found.revision))
	out.SetContinue("")
	if found.cut {
		out.SetContinue("continue-not-supported")
	}
	return nil
}

// found is what a list is answered with.
type found struct {
	records  []*record
	revision int64
	cut      bool // by a limit
}

// selectRecords finds what a list asks for.
func (v *view) selectRecords(o *client.ListOptions) (found, error) {
	f := v.feed
	if o.Namespace != "" {
		if err := f.holds(o.Namespace); err != nil {
			return found{}, err
		}
	}
	lookups, err := v.lookups(o)
	if err != nil {
		return found{}, err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	rows := f.table.search(o, lookups)
	slices.SortFunc(rows, compareRows)
	all := found{revision: f.newness()}
	if o.Limit > 0 && int64(len(rows)) > o.Limit {
		rows, all.cut = rows[:o.Limit], true
	}
	all.records = make([]*record, len(rows))
	for i, row := range rows {
		all.records[i] = row.record
	}
	return all, nil
}

func storeKey(key client.ObjectKey) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}

func trimList(kind string) string { return strings.TrimSuffix(kind, "List") }

func compareKinds(a, b schema.GroupVersionKind) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// blocks says whether the options want GetInformer to wait for the first list.
func blocks(opts []crcache.InformerGetOption) bool {
	var o cacheapi.InformerGetOptions
	for _, apply := range opts {
		apply(&o)
	}
	return o.BlockUntilSynced == nil || *o.BlockUntilSynced
}
