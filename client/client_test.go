package client_test

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cr "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/tinyapi"
)

// behindCache is an empty cache that has come to a revision, and to no deletion.
type behindCache struct {
	cr.Reader
	revision int64
}

func (c *behindCache) AtRevision(_ schema.GroupVersionKind, revision int64, _ func()) bool {
	return c.revision >= revision
}

func (c *behindCache) AtDeletion(schema.GroupVersionKind, types.NamespacedName, types.UID, func()) bool {
	return false
}

func (c *behindCache) Get(_ context.Context, key cr.ObjectKey, _ cr.Object, _ ...cr.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
}

func newClient(t *testing.T) (*client.Client, *tinyapi.Server, *behindCache) {
	t.Helper()
	server, cache := tinyapi.New(), &behindCache{}
	c, err := client.New(server.Config(), client.Options{Mapper: server.Mapper(), Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	return c, server, cache
}

func pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
}

func TestGetIsNeverOlderThanOwnWrites(t *testing.T) {
	c, server, cache := newClient(t)
	var w client.Writes
	ctx := client.Track(t.Context(), &w)
	p := pod()
	if err := c.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	key := cr.ObjectKeyFromObject(p)
	if err := c.Get(ctx, key, pod()); err != nil {
		t.Errorf("Get of what was just created: %v", err)
	}
	if err := c.Get(t.Context(), key, pod()); !apierrors.IsNotFound(err) {
		t.Errorf("Get of somebody else was not answered by the cache: %v", err)
	}
	cache.revision = server.Revision()
	if err := c.Get(ctx, key, pod()); !apierrors.IsNotFound(err) {
		t.Errorf("Get was not answered by the cache once that is new enough: %v", err)
	}
	if settled, err := c.Settled(ctx, &w, nil); !settled || err != nil || !w.Empty() {
		t.Errorf("Settled() = %v, %v", settled, err)
	}
}

func TestDeletionIsOfTheObjectThatWasRead(t *testing.T) {
	c, _, _ := newClient(t)
	var w client.Writes
	ctx := client.Track(t.Context(), &w)
	p := pod()
	if err := c.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	read := p.DeepCopy()
	p.Labels = map[string]string{"changed": "yes"}
	if err := c.Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, read); !apierrors.IsConflict(err) {
		t.Errorf("deletion of what has changed since: %v, want a conflict", err)
	}
	// Who says what to check is asked for nothing else.
	if err := c.Delete(ctx, read, cr.Preconditions{UID: &read.UID}); err != nil {
		t.Error(err)
	}
	if settled, err := c.Settled(ctx, &w, nil); settled || err != nil {
		t.Errorf("Settled() = %v, %v before the cache shows the deletion", settled, err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestOnlyWhatMayHaveHappenedIsWaitedFor has writes fail before they were sent, and after.
func TestOnlyWhatMayHaveHappenedIsWaitedFor(t *testing.T) {
	for _, test := range []struct {
		failure error
		waits   bool
	}{{syscall.ECONNREFUSED, false}, {errors.New("the reply was lost"), true}} {
		server := tinyapi.New()
		config := server.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodPost {
					return nil, test.failure
				}
				return next.RoundTrip(req)
			})
		})
		c, err := client.New(config, client.Options{Mapper: server.Mapper(), Cache: &behindCache{}})
		if err != nil {
			t.Fatal(err)
		}
		var w client.Writes
		if err := c.Create(client.Track(t.Context(), &w), pod()); !errors.Is(err, test.failure) {
			t.Errorf("create: %v, want %v", err, test.failure)
		}
		if w.Empty() == test.waits {
			t.Errorf("after %q a write is waited for: %v, want %v", test.failure, !w.Empty(), test.waits)
		}
	}
}
