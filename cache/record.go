package cache

import (
	"fmt"
	"sync"
	"sync/atomic"
	"weak"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/diff"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cache/internal/pack"
	"github.com/setpoint-dev/setpoint/cache/wire"
)

// form is what a reader wants an object as.
type form uint8

const (
	typed form = iota
	loose      // as a tree
	heads      // its metadata
	formsMax
)

func (f form) String() string {
	return [...]string{"", " (unstructured)", " (metadata)"}[f]
}

// whole says whether the form needs more than metadata.
func (f form) whole() bool { return f != heads }

// A record is one object as of one revision: the text that the server sent, packed, and the forms
// that it has been read in. Nothing of it changes but the forms.
//
// A form is decoded when it is first wanted, once for all who want it. It is held as long as it is
// used: what was read, or told of as news, since the last sweeps. Of the others only the text is
// left, and whoever still has one in hands shares it.
type record struct {
	wire.Head
	key      types.NamespacedName
	revision int64
	text     pack.Text
	whole    bool // the text is more than metadata
	from     *codec

	kept [formsMax]atomic.Pointer[decoded]

	mu    sync.Mutex // one decodes, others wait
	alive [formsMax]weak.Pointer[decoded]
}

// decoded is a form of a record. The object is shared and read-only.
type decoded struct {
	obj  client.Object
	used atomic.Bool // since the last sweep
}

// codec reads what one stream sends.
type codec struct {
	gvk       schema.GroupVersionKind
	scheme    *runtime.Scheme
	packer    *pack.Packer
	transform toolscache.TransformFunc
	share     bool // readers get what is held itself
	decodes   *atomic.Int64
	parts     *wire.Parts // that its objects share; nil if they may be changed, or are to be checked
	// guard, if set, panics when somebody has changed a shared object.
	guard bool
}

// record takes in the text of an object.
func (c *codec) record(text []byte, whole bool) (*record, error) {
	head, err := wire.ReadHead(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.gvk.Kind, err)
	}
	return &record{
		Head: head, key: types.NamespacedName{Namespace: head.Namespace, Name: head.Name},
		revision: parseRevision(head.Version), text: c.packer.Pack(text), whole: whole, from: c,
	}, nil
}

// keeping says for how long a decoded form is to be held.
type keeping uint8

const (
	passing keeping = iota // as long as others hold it anyway
	news                   // until the next sweep
	reading                // until the next sweep after which nobody has read it
)

// as returns the object in a form, and what keeps that form alive.
func (r *record) as(f form, keep keeping) (*decoded, error) {
	d := r.kept[f].Load()
	if d == nil {
		var err error
		if d, err = r.decodeOnce(f, keep); err != nil {
			return nil, err
		}
	}
	if keep == reading && !d.used.Load() {
		d.used.Store(true)
	}
	if r.from.guard {
		r.check(f, d)
	}
	return d, nil
}

func (r *record) decodeOnce(f form, keep keeping) (*decoded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.alive[f].Value()
	if d == nil {
		obj, err := r.decode(f)
		if err != nil {
			return nil, err
		}
		d = &decoded{obj: obj}
		r.alive[f] = weak.Make(d)
	}
	if keep != passing {
		r.kept[f].Store(d)
	}
	return d, nil
}

// texts are buffers to unpack into.
var texts = sync.Pool{New: func() any { return new([]byte) }}

func (r *record) decode(f form) (client.Object, error) {
	obj, err := r.from.empty(f)
	if err != nil {
		return nil, err
	}
	buf := texts.Get().(*[]byte)
	defer texts.Put(buf)
	if *buf, err = r.from.packer.Unpack((*buf)[:0], r.text); err != nil {
		return nil, err
	}
	read := wire.Decode
	if r.from.parts != nil {
		read = r.from.parts.Decode
	}
	if err := read(*buf, obj); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", r.from.gvk.Kind, r.key, err)
	}
	r.from.decodes.Add(1)
	obj.GetObjectKind().SetGroupVersionKind(r.from.gvk)
	if r.from.transform == nil {
		return obj, nil
	}
	changed, err := r.from.transform(obj)
	if err != nil {
		return nil, fmt.Errorf("transform %s %s: %w", r.from.gvk.Kind, r.key, err)
	}
	if obj, ok := changed.(client.Object); ok {
		return obj, nil
	}
	return nil, fmt.Errorf("transform %s %s: it made a %T, which is not an object", r.from.gvk.Kind, r.key, changed)
}

// empty returns an object of the form to decode into.
func (c *codec) empty(f form) (client.Object, error) {
	switch f {
	case loose:
		return &unstructured.Unstructured{}, nil
	case heads:
		return &metav1.PartialObjectMetadata{}, nil
	}
	made, err := c.scheme.New(c.gvk)
	if err != nil {
		return nil, err
	}
	obj, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("a %T has no metadata", made)
	}
	return obj, nil
}

// cool lets go of the forms that have not been read since the last time.
func (r *record) cool() {
	for f := range r.kept {
		if d := r.kept[f].Load(); d != nil && !d.used.Swap(false) {
			r.kept[f].Store(nil)
		}
	}
}

// check panics if a shared object is no longer what the server sent.
func (r *record) check(f form, d *decoded) {
	want, err := r.decode(f)
	if err == nil && !equality.Semantic.DeepEqual(want, d.obj) {
		panic(fmt.Sprintf("cache: the shared %s %s%s was modified; what handlers are told, and what is read with "+
			"UnsafeDisableDeepCopy, is read-only\n%s", r.from.gvk.Kind, r.key, f, diff.Diff(want, d.obj)))
	}
}

// verify checks every form that is held.
func (r *record) verify() {
	for f := range r.kept {
		if d := r.kept[f].Load(); d != nil {
			r.check(form(f), d)
		}
	}
}
