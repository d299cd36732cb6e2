package cache

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/setpoint-dev/setpoint/internal/connect"
)

// Options are the settings of a cache. The zero value is a good default.
type Options struct {
	// Options are controller-runtime's, and mean what they mean there, with two differences:
	//   - NewInformer is refused: the cache is its own informer.
	//   - A transform is applied to the decoded object, in each form that somebody reads. Selectors by
	//     label, and what is asked of metadata without decoding, see what the server sent.
	crcache.Options

	// Quiet is how long a watch may be silent before it is taken for dead and opened again. Servers
	// send a bookmark a minute; zero means 75 s. A connection that is dead is noticed earlier, by pings
	// over HTTP/2 after 30 s, and over HTTP/1.1, where watches are short for that, after 40 s of silence.
	Quiet time.Duration
	// DetectMutations has every read, and every change of an object, check that nobody has modified
	// what is shared, and panic if somebody has. It decodes each object again: it is for tests.
	DetectMutations bool
	// Clock is what time is read from; nil is the machine's.
	Clock clock.WithTicker
	// Random returns numbers from 0 to below 1, by which waits are spread so that clients don't ask in
	// step; it may be called concurrently. Nil is math/rand/v2's.
	Random func() float64
	// Logger is told of watches that break; nil is slog.Default().
	Logger *slog.Logger
}

// complete checks the settings and fills in what is not set.
func (o *Options) complete(config *rest.Config) (err error) {
	if o.NewInformer != nil {
		return errors.New("option NewInformer: it cannot be honoured, for this cache is its own informer; leave it nil")
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Quiet = cmp.Or(o.Quiet, 75*time.Second)
	if o.HTTPClient == nil {
		if o.HTTPClient, err = connect.HTTPClient(config); err != nil {
			return err
		}
	}
	if o.Mapper == nil {
		o.Mapper, err = apiutil.NewDynamicRESTMapper(config, o.HTTPClient)
	}
	return err
}

// setup is what the options say of one stream.
type setup struct {
	labels, fields string
	transform      toolscache.TransformFunc
	share          bool // reads do not copy
	bookmarks      bool
	resync         time.Duration
}

func setupOf(c crcache.Config) setup {
	s := setup{
		transform: c.Transform,
		share:     ptr.Deref(c.UnsafeDisableDeepCopy, false),
		bookmarks: ptr.Deref(c.EnableWatchBookmarks, true),
		resync:    ptr.Deref(c.SyncPeriod, 10*time.Hour),
	}
	if c.LabelSelector != nil {
		s.labels = c.LabelSelector.String()
	}
	if c.FieldSelector != nil {
		s.fields = c.FieldSelector.String()
	}
	return s
}

// byKind are the settings for single kinds.
func (o *Options) byKind() (map[schema.GroupVersionKind]crcache.ByObject, error) {
	kinds := make(map[schema.GroupVersionKind]crcache.ByObject, len(o.ByObject))
	for obj, by := range o.ByObject {
		gvk, err := apiutil.GVKForObject(obj, o.Scheme)
		if err != nil {
			return nil, fmt.Errorf("option ByObject: %T: %w", obj, err)
		}
		if _, twice := kinds[gvk]; twice {
			return nil, fmt.Errorf("option ByObject: %s is given twice", gvk)
		}
		kinds[gvk] = by
		if by.Namespaces == nil {
			continue
		}
		mapping, err := o.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return nil, fmt.Errorf("option ByObject: %w", err)
		}
		if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			return nil, fmt.Errorf("option ByObject: %s has Namespaces, and its objects are in none", gvk)
		}
	}
	return kinds, nil
}

// streamConfigs says which parts of a kind are to be held, by namespace, and how. What is said of a
// namespace goes before what is said of a kind, and that before what is said of all.
func (o *Options) streamConfigs(by crcache.ByObject, namespaced bool) map[string]crcache.Config {
	ofKind := crcache.Config{
		LabelSelector: by.Label, FieldSelector: by.Field, Transform: by.Transform,
		UnsafeDisableDeepCopy: by.UnsafeDisableDeepCopy, EnableWatchBookmarks: by.EnableWatchBookmarks,
		SyncPeriod: by.SyncPeriod,
	}
	ofAll := crcache.Config{
		LabelSelector: o.DefaultLabelSelector, FieldSelector: o.DefaultFieldSelector, Transform: o.DefaultTransform,
		UnsafeDisableDeepCopy: o.DefaultUnsafeDisableDeepCopy, EnableWatchBookmarks: o.DefaultEnableWatchBookmarks,
		SyncPeriod: o.SyncPeriod,
	}
	namespaces := by.Namespaces
	if namespaces == nil {
		namespaces = o.DefaultNamespaces
	}
	if !namespaced || len(namespaces) == 0 {
		return map[string]crcache.Config{metav1.NamespaceAll: merged(ofKind, ofAll)}
	}
	configs := make(map[string]crcache.Config, len(namespaces))
	for namespace, config := range namespaces {
		config = merged(config, ofKind, o.DefaultNamespaces[namespace], ofAll)
		if namespace == metav1.NamespaceAll {
			config.FieldSelector = except(namespaces, config.FieldSelector)
		}
		configs[namespace] = config
	}
	return configs
}

// merged takes each setting from the first that has it.
func merged(c crcache.Config, from ...crcache.Config) crcache.Config {
	for _, d := range from {
		if c.LabelSelector == nil {
			c.LabelSelector = d.LabelSelector
		}
		if c.FieldSelector == nil {
			c.FieldSelector = d.FieldSelector
		}
		if c.Transform == nil {
			c.Transform = d.Transform
		}
		c.UnsafeDisableDeepCopy = cmp.Or(c.UnsafeDisableDeepCopy, d.UnsafeDisableDeepCopy)
		c.EnableWatchBookmarks = cmp.Or(c.EnableWatchBookmarks, d.EnableWatchBookmarks)
		c.SyncPeriod = cmp.Or(c.SyncPeriod, d.SyncPeriod)
	}
	return c
}

// except selects what is in none of the namespaces that have settings of their own.
func except(namespaces map[string]crcache.Config, also fields.Selector) fields.Selector {
	var all []fields.Selector
	for _, namespace := range sortedKeys(namespaces) {
		if namespace != metav1.NamespaceAll {
			all = append(all, fields.OneTermNotEqualSelector("metadata.namespace", namespace))
		}
	}
	if also != nil {
		all = append(all, also)
	}
	return fields.AndSelectors(all...)
}
