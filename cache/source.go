package cache

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	metaclient "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache/wire"
)

// sources makes the source of each feed, over one HTTP client.
type sources struct {
	config     *rest.Config
	opts       Options
	serializer runtime.NegotiatedSerializer
	params     runtime.ParameterCodec
	metadata   metaclient.Interface
	dynamic    dynamic.Interface
}

func newSources(config *rest.Config, opts Options) (*sources, error) {
	s := &sources{
		config:     config,
		opts:       opts,
		serializer: wire.Serializer(opts.Scheme),
		params:     runtime.NewParameterCodec(opts.Scheme),
	}
	var err error
	if s.metadata, err = wire.Metadata(config, opts.HTTPClient); err != nil {
		return nil, err
	}
	s.dynamic, err = dynamic.NewForConfigAndClient(config, opts.HTTPClient)
	return s, err
}

func (s *sources) source(id feedID) (source, error) {
	mapping, err := s.opts.Mapper.RESTMapping(id.gvk.GroupKind(), id.gvk.Version)
	if err != nil {
		return nil, err
	}
	switch id.form {
	case metadata:
		return metadataSource{s.metadata.Resource(mapping.Resource)}, nil
	case loose:
		return looseSource{s.dynamic.Resource(mapping.Resource)}, nil
	}
	list := id.gvk
	list.Kind += "List"
	if _, err := s.opts.Scheme.New(list); err != nil {
		return nil, err
	}
	rc, err := s.typedClient(id.gvk)
	if err != nil {
		return nil, err
	}
	newList := func() (runtime.Object, error) { return s.opts.Scheme.New(list) }
	return typedSource{rc, mapping.Resource.Resource, s.params, newList}, nil
}

// typedClient returns a client of a group and version. Kubernetes' own kinds may come in protobuf.
func (s *sources) typedClient(gvk schema.GroupVersionKind) (rest.Interface, error) {
	config := rest.CopyConfig(s.config)
	config.GroupVersion, config.APIPath = new(gvk.GroupVersion()), "/apis"
	if gvk.Group == "" {
		config.APIPath = "/api"
	}
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if config.ContentType == "" && scheme.Scheme.Recognizes(gvk) {
		config.ContentType = runtime.ContentTypeProtobuf
	}
	config.NegotiatedSerializer = s.serializer
	return rest.RESTClientForConfigAndClient(config, s.opts.HTTPClient)
}

// typedSource reads objects in their Go types.
type typedSource struct {
	client   rest.Interface
	resource string
	params   runtime.ParameterCodec
	newList  func() (runtime.Object, error)
}

func (s typedSource) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := s.newList()
	if err != nil {
		return nil, err
	}
	err = s.client.Get().Resource(s.resource).VersionedParams(&opts, s.params).Do(ctx).Into(list)
	return list, err
}

func (s typedSource) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return s.client.Get().Resource(s.resource).VersionedParams(&opts, s.params).Watch(ctx)
}

// looseSource reads objects as trees.
type looseSource struct{ client dynamic.ResourceInterface }

func (s looseSource) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return s.client.List(ctx, opts)
}

func (s looseSource) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return s.client.Watch(ctx, opts)
}

// metadataSource reads only the metadata of objects.
type metadataSource struct{ client metaclient.ResourceInterface }

func (s metadataSource) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return s.client.List(ctx, opts)
}

func (s metadataSource) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return s.client.Watch(ctx, opts)
}
