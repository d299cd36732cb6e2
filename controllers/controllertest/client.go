// Package controllertest is what the tests of controllers share: a client over objects in memory that
// counts writes, and a metadata server with the deletion rules of the API server.
//
// Both are for one test each and are ended by it.
package controllertest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/setpoint-dev/setpoint/cache"
)

// Start is when every test starts.
var Start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// NewClock returns a clock that stands at Start until it is stepped.
func NewClock() *clocktesting.FakeClock { return clocktesting.NewFakeClock(Start) }

// Index is a field index that the code under test expects.
type Index struct {
	Object client.Object
	Field  string
	Func   client.IndexerFunc
}

// Client is a client.Client over objects in memory. What is created gets a uid and the clock's
// time.
type Client struct {
	client.WithWatch
	// Before, if not nil, is called before each write; the write fails with the error it returns.
	Before func(verb string, object client.Object) error
	// After, if not nil, is called after each write that succeeded; the client then gets the error
	// it returns, as if the answer had been lost.
	After func(verb string, object client.Object) error

	clock  *clocktesting.FakeClock
	mu     sync.Mutex
	writes []string
	uids   int
}

// NewClient returns a client of the objects, whose status, if it has one, is a subresource. Pods and
// ReplicaSets can be listed by their controller, as from a cache.
func NewClient(t *testing.T, clock *clocktesting.FakeClock, indexes []Index,
	objects ...client.Object,
) *Client {
	t.Helper()
	c := &Client{clock: clock}
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithStatusSubresource(objects...)
	for _, object := range []client.Object{&corev1.Pod{}, &appsv1.ReplicaSet{}} {
		builder = builder.WithIndex(object, cache.ControllerField, cache.ControllerUID)
	}
	for _, index := range indexes {
		builder = builder.WithIndex(index.Object, index.Field, index.Func)
	}
	c.WithWatch = builder.WithInterceptorFuncs(c.funcs()).Build()
	return c
}

// Writes returns what was written since the last call, as "create Pod ns/name".
func (c *Client) Writes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes := c.writes
	c.writes = nil
	return writes
}

func (c *Client) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object,
			opts ...client.CreateOption) error {
			return c.write("create", o, func() error {
				c.mu.Lock()
				c.uids++
				o.SetUID(types.UID(fmt.Sprintf("made-%03d", c.uids)))
				c.mu.Unlock()
				o.SetCreationTimestamp(metav1.NewTime(c.clock.Now()))
				return w.Create(ctx, o, opts...)
			})
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object,
			opts ...client.UpdateOption) error {
			return c.write("update", o, func() error { return w.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			return c.write("patch", o, func() error { return w.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object,
			opts ...client.DeleteOption) error {
			return c.write("delete", o, func() error { return w.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, w client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			return c.write(sub, o, func() error { return updateStatus(ctx, w, sub, o, opts) })
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return c.write(sub, o, func() error { return w.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	}
}

func (c *Client) write(verb string, o client.Object, do func() error) error {
	if c.Before != nil {
		if err := c.Before(verb, o); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	kind := fmt.Sprintf("%T", o)
	for i := len(kind) - 1; i >= 0; i-- {
		if kind[i] == '.' {
			kind = kind[i+1:]
			break
		}
	}
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	c.mu.Lock()
	c.writes = append(c.writes, verb+" "+kind+" "+name)
	c.mu.Unlock()
	if c.After != nil {
		return c.After(verb, o)
	}
	return nil
}

// updateStatus writes through a subresource; as in the API server, annotations go with it.
func updateStatus(ctx context.Context, w client.Client, sub string, o client.Object,
	opts []client.SubResourceUpdateOption,
) error {
	annotations := o.GetAnnotations()
	if err := w.SubResource(sub).Update(ctx, o, opts...); err != nil ||
		maps.Equal(annotations, o.GetAnnotations()) {
		return err
	}
	o.SetAnnotations(annotations)
	return w.Update(ctx, o)
}

// NamespaceTerminating is how the API server refuses a create in a namespace that is being deleted.
func NamespaceTerminating(namespace string) error {
	err := apierrors.NewForbidden(corev1.Resource("objects"), "new",
		fmt.Errorf("namespace %s is being terminated", namespace))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause,
		Field: "metadata.namespace"}}
	return err
}
