package wire

import (
	"context"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// metadataScheme knows what a watch of metadata sends.
var metadataScheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err) // the types are what they are
	}
	return scheme
}()

// lean is what is read of an object's metadata. Field managers are most of the text, and with labels and
// annotations they would be most of the work.
type lean struct {
	Metadata struct {
		Name              string                  `json:"name"`
		Namespace         string                  `json:"namespace"`
		UID               types.UID               `json:"uid"`
		ResourceVersion   string                  `json:"resourceVersion"`
		DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
		Finalizers        []string                `json:"finalizers"`
		OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
}

// readLean reads an object's metadata, as far as lean goes. Others it leaves to unmarshal.
func readLean(data []byte, into runtime.Object) error {
	meta, ok := into.(*metav1.PartialObjectMetadata)
	if !ok {
		return unmarshal(data, into)
	}
	var l lean
	if err := json.Unmarshal(data, &l, jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	m := &l.Metadata
	meta.Name, meta.Namespace, meta.UID = m.Name, m.Namespace, m.UID
	meta.ResourceVersion, meta.DeletionTimestamp = m.ResourceVersion, m.DeletionTimestamp
	meta.Finalizers, meta.OwnerReferences = m.Finalizers, m.OwnerReferences
	return nil
}

type metadataClient struct {
	metadata.Interface
	fast rest.Interface
}

func (c metadataClient) Resource(r schema.GroupVersionResource) metadata.Getter {
	slow := c.Interface.Resource(r)
	return getter{Getter: slow, all: resource{slow, c.fast, r, ""}}
}

type getter struct {
	metadata.Getter
	all resource
}

func (g getter) Namespace(namespace string) metadata.ResourceInterface {
	one := g.all
	one.ResourceInterface, one.namespace = g.Getter.Namespace(namespace), namespace
	return one
}

func (g getter) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return g.all.Watch(ctx, opts)
}

// resource is one resource, of one namespace or, with "", of all.
type resource struct {
	metadata.ResourceInterface
	fast      rest.Interface
	gvr       schema.GroupVersionResource
	namespace string
}

// partial asks for metadata in JSON, which is less work than protobuf at both ends.
const partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

func (r resource) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	path := []string{"apis", r.gvr.Group, r.gvr.Version}
	if r.gvr.Group == "" {
		path = []string{"api", r.gvr.Version}
	}
	if r.namespace != "" {
		path = append(path, "namespaces", r.namespace)
	}
	request := r.fast.Get().AbsPath(append(path, r.gvr.Resource)...).SetHeader("Accept", partial).
		SpecificallyVersionedParams(&opts, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
	if opts.TimeoutSeconds != nil {
		request = request.Timeout(time.Duration(*opts.TimeoutSeconds) * time.Second)
	}
	return request.Watch(ctx)
}
