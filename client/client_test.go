package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	cr "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/tinyapi"
)

// behindCache is an empty cache that has come to a revision, and to no deletion.
type behindCache struct {
	cr.Reader
	revision int64
	gone     bool // it shows deletions
}

func (c *behindCache) AtRevision(_ schema.GroupVersionKind, revision int64, _ func()) bool {
	return c.revision >= revision
}

func (c *behindCache) AtDeletion(schema.GroupVersionKind, types.NamespacedName, types.UID, func()) bool {
	return c.gone
}

func (c *behindCache) Held(schema.GroupVersionKind, types.NamespacedName) types.UID { return "" }

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

// TestWritesOfOneVersionAreReadInAnother writes in one version of a kind and reads in another.
func TestWritesOfOneVersionAreReadInAnother(t *testing.T) {
	c, server, _ := newClient(t)
	var w client.Writes
	ctx := client.Track(t.Context(), &w)
	old := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	if err := c.Create(ctx, old); err != nil {
		t.Fatal(err)
	}
	server.Requests()
	_ = c.Get(ctx, cr.ObjectKeyFromObject(old), &autoscalingv2.HorizontalPodAutoscaler{})
	if n := len(server.Requests()); n != 1 {
		t.Errorf("the server was asked %d times by a Get of what the cache may not show, want once", n)
	}
	if settled, err := c.Settled(ctx, &w, nil); settled || err != nil {
		t.Errorf("Settled() = %v, %v before the cache shows the write", settled, err)
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

// silent answers bindings and deletions of many as servers do: without saying at which revision.
func silent(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, "/binding") || strings.HasSuffix(req.URL.Path, "/token") ||
				req.Method == http.MethodDelete && strings.HasSuffix(req.URL.Path, "/pods") {
				body := `{"kind":"Status","apiVersion":"v1","status":"Success"}`
				return &http.Response{
					StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)),
					Header: http.Header{"Content-Type": {"application/json"}},
				}, nil
			}
			return next.RoundTrip(req)
		})
	})
}

// TestEveryWriteIsWaitedFor has a cache that shows nothing: whatever was written, and however the
// server answers, it is not settled before the cache is as new.
func TestEveryWriteIsWaitedFor(t *testing.T) {
	writes := map[string]func(context.Context, *client.Client, *corev1.Pod) error{
		"Create": func(ctx context.Context, c *client.Client, _ *corev1.Pod) error {
			return c.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}})
		},
		"Update": func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			p.Labels = map[string]string{"a": "b"}
			return c.Update(ctx, p)
		},
		"Patch": func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			return c.Patch(ctx, p, cr.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"c"}}}`)))
		},
		"Apply": func(ctx context.Context, c *client.Client, _ *corev1.Pod) error {
			return c.Apply(ctx, applycorev1.Pod("a", "default").WithLabels(map[string]string{"a": "d"}),
				cr.FieldOwner("test"), cr.ForceOwnership)
		},
		"Delete": func(ctx context.Context, c *client.Client, p *corev1.Pod) error { return c.Delete(ctx, p) },
		"DeleteAllOf": func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			return c.DeleteAllOf(ctx, p, cr.InNamespace("default"))
		},
		"Status": func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			p.Status.Phase = corev1.PodRunning
			return c.Status().Update(ctx, p)
		},
		"Binding": func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			return c.SubResource("binding").Create(ctx, p, &corev1.Binding{Target: corev1.ObjectReference{Name: "n"}})
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			server, cache := tinyapi.New(), &behindCache{}
			config := server.Config()
			silent(config)
			c, err := client.New(config, client.Options{Mapper: server.Mapper(), Cache: cache})
			if err != nil {
				t.Fatal(err)
			}
			p := pod()
			if err := c.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			var w client.Writes
			ctx := client.Track(t.Context(), &w)
			if err := write(ctx, c, p); err != nil {
				t.Fatal(err)
			}
			if settled, err := c.Settled(ctx, &w, nil); settled || err != nil {
				t.Errorf("Settled() = %v, %v before the cache shows it", settled, err)
			}
			cache.revision, cache.gone = server.Revision(), true
			if settled, err := c.Settled(ctx, &w, nil); !settled || err != nil {
				t.Errorf("Settled() = %v, %v when the cache shows it", settled, err)
			}
		})
	}
}

// A lost answer about one object is cleared up by reading that object: if nothing has come of the
// write there is nothing to wait for, however quiet the kind is.
func TestLostAnswerIsClearedUpByReading(t *testing.T) {
	server := tinyapi.New()
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodPost {
				return nil, errors.New("the connection broke")
			}
			return next.RoundTrip(req)
		})
	})
	c, err := client.New(config, client.Options{Mapper: server.Mapper(), Cache: &behindCache{}})
	if err != nil {
		t.Fatal(err)
	}
	var w client.Writes
	ctx := client.Track(t.Context(), &w)
	if err := c.Create(ctx, pod()); err == nil || w.Empty() {
		t.Fatalf("create: %v, and waits for nothing: %v", err, w.Empty())
	}
	if settled, err := c.Settled(ctx, &w, nil); !settled || err != nil || !w.Empty() {
		t.Errorf("Settled() = %v, %v", settled, err)
	}
}
