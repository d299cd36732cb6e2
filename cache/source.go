package cache

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	metaclient "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// sources makes the source of each feed, over one HTTP client.
type sources struct {
	config   *rest.Config
	opts     Options
	codecs   serializer.CodecFactory
	params   runtime.ParameterCodec
	metadata metaclient.Interface
	dynamic  dynamic.Interface
}

func newSources(config *rest.Config, opts Options) (*sources, error) {
	s := &sources{
		config: config,
		opts:   opts,
		codecs: serializer.NewCodecFactory(opts.Scheme),
		params: runtime.NewParameterCodec(opts.Scheme),
	}
	var err error
	if s.metadata, err = metaclient.NewForConfigAndClient(metaclient.ConfigFor(config), opts.HTTPClient); err != nil {
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
	rc, err := apiutil.RESTClientForGVK(id.gvk, false, false, s.config, s.codecs, s.opts.HTTPClient)
	if err != nil {
		return nil, err
	}
	newList := func() (runtime.Object, error) { return s.opts.Scheme.New(list) }
	return typedSource{rc, mapping.Resource.Resource, s.params, newList}, nil
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
