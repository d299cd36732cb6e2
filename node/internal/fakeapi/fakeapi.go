// Package fakeapi is an API server for tests of what runs on a node: a fake
// client, and informers that follow what it is told.
package fakeapi

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// API is a fake server, with the informers of one client.
type API struct {
	client.WithWatch
}

// New returns an API with objects in it.
func New(objects ...client.Object) *API {
	return &API{fake.NewClientBuilder().
		WithScheme(scheme.Scheme).
		WithObjects(objects...).
		WithStatusSubresource(&corev1.Pod{}, &corev1.Node{}).
		Build()}
}

// GetInformer makes an informer that ends with ctx.
func (a *API) GetInformer(ctx context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	gvk, err := a.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	list := func() (client.ObjectList, error) {
		o, err := scheme.Scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err != nil {
			return nil, err
		}
		return o.(client.ObjectList), nil
	}
	// The fake server has no history: a watch that begins after the list would
	// miss what comes between, so it begins before.
	var begun watch.Interface
	source := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			l, err := list()
			if err != nil {
				return nil, err
			}
			if begun, err = a.Watch(ctx, l); err != nil {
				return nil, err
			}
			return l, a.List(ctx, l)
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return begun, nil
		},
	}
	informer := toolscache.NewSharedIndexInformer(
		toolscache.ToListWatcherWithWatchListSemantics(source, noWatchList{}), obj, 0, toolscache.Indexers{})
	go informer.RunWithContext(ctx)
	return informer, nil
}

type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }
