// Package wire reads what a server sends several times faster than client-go does, and as
// client-go's clients want it: as a serializer to put into a rest.Config.
//
//	config.NegotiatedSerializer = wire.Serializer(scheme)
//
// client-go reads JSON from a watch in five passes: one finds the end of the frame, two read the
// event, and of the object one looks for its kind before another reads it, each checking the text
// anew. Here one finds the end and one reads the object. The result is the same: what the fast way
// does not understand goes the way of client-go, which also makes all error messages. Protobuf, and
// everything that is written, is client-go's.
package wire

import (
	"net/http"
	"reflect"

	json "github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Serializer returns a serializer for the Go types of the scheme, without conversion between
// versions. It may be used concurrently.
func Serializer(scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	return reading(scheme, unmarshal)
}

func unmarshal(data []byte, into runtime.Object) error { return json.Unmarshal(data, into) }

// reading is Serializer with a function that reads objects. What that refuses is left to client-go.
func reading(scheme *runtime.Scheme, read func([]byte, runtime.Object) error) runtime.NegotiatedSerializer {
	codecs := serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}
	return negotiated{codecs, faster(codecs.SupportedMediaTypes(), decoder{nil, scheme, read})}
}

type negotiated struct {
	runtime.NegotiatedSerializer
	media []runtime.SerializerInfo
}

func (n negotiated) SupportedMediaTypes() []runtime.SerializerInfo { return n.media }

// faster returns the media types with our decoder of JSON in front of client-go's.
func faster(media []runtime.SerializerInfo, ours decoder) []runtime.SerializerInfo {
	media = append([]runtime.SerializerInfo(nil), media...)
	for i := range media {
		m := &media[i]
		if m.MediaType != runtime.ContentTypeJSON {
			continue
		}
		stream := *m.StreamSerializer
		m.Serializer = ours.before(m.Serializer)
		stream.Serializer, stream.Framer = ours.before(stream.Serializer), framer{stream.Framer}
		m.StreamSerializer = &stream
	}
	return media
}

// decoder decodes JSON that is plainly of a kind of the scheme, and leaves other to client-go's.
type decoder struct {
	runtime.Serializer
	scheme *runtime.Scheme
	read   func(data []byte, into runtime.Object) error
}

func (d decoder) before(other runtime.Serializer) decoder {
	d.Serializer = other
	return d
}

// Decode implements runtime.Decoder.
func (d decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if event, ok := into.(*metav1.WatchEvent); ok {
		if kind, object, ok := splitEvent(data); ok {
			event.Type, event.Object.Raw = kind, object
			return event, nil, nil
		}
		return d.Serializer.Decode(data, defaults, into)
	}
	gvk, ok := kindOf(data)
	if !ok {
		return d.Serializer.Decode(data, defaults, into)
	}
	obj := d.target(gvk, into)
	if obj == nil || !strict(reflect.TypeOf(obj)) {
		return d.Serializer.Decode(data, defaults, into)
	}
	// Stricter than client-go's: members given twice and what is not UTF-8 are left to it.
	if err := d.read(data, obj); err != nil {
		if into != nil {
			reflect.ValueOf(into).Elem().SetZero()
		}
		return d.Serializer.Decode(data, defaults, into)
	}
	return obj, &gvk, nil
}

// target returns what to decode an object of the kind into; nil leaves it to client-go.
func (d decoder) target(gvk schema.GroupVersionKind, into runtime.Object) runtime.Object {
	if into == nil {
		obj, err := d.scheme.New(gvk)
		if _, loose := obj.(runtime.Unstructured); err != nil || loose {
			return nil
		}
		return obj
	}
	if _, loose := into.(runtime.Unstructured); loose {
		return nil
	}
	known, _, err := d.scheme.ObjectKinds(into)
	if err != nil {
		return nil
	}
	for _, k := range known {
		if k == gvk {
			return into
		}
	}
	return nil
}

// Metadata returns client-go's metadata client, with watches that are read fast and tell of an object
// what its life depends on: its name, uid and revision, its owners and finalizers, and whether it is
// being deleted. Labels, annotations and field managers are not read.
func Metadata(config *rest.Config, web *http.Client) (metadata.Interface, error) {
	slow, err := metadata.NewForConfigAndClient(config, web)
	if err != nil {
		return nil, err
	}
	config = metadata.ConfigFor(config)
	config.GroupVersion = &schema.GroupVersion{}
	config.APIPath = "/" // each request says its whole path
	config.NegotiatedSerializer = reading(metadataScheme, readLean)
	fast, err := rest.RESTClientForConfigAndClient(config, web)
	if err != nil {
		return nil, err
	}
	return metadataClient{slow, fast}, nil
}
