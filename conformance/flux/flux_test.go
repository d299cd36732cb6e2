package flux

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

const greeting = `apiVersion: v1
kind: ConfigMap
metadata: {name: greeting, namespace: default}
data: {text: TEXT}
`

const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: host
        command: [sleep, "1000000"]
`

var (
	repositories   = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	kustomizations = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	configMaps     = corev1.SchemeGroupVersion.WithResource("configmaps")
	deployments    = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

// TestFluxKeepsAClusterAsARepositorySays follows what Flux is for from end to end: what is committed
// is applied, what somebody changes by hand is put back, what is removed from the repository goes, and
// with the Kustomization goes everything.
func TestFluxKeepsAClusterAsARepositorySays(t *testing.T) {
	p := newPlane(t)
	repo := newRepository(t)
	repo.commit(t, map[string]string{"greeting.yaml": text("hello"), "web.yaml": web})
	p.applyDefinitions(t, "source-controller", "kustomize-controller")
	p.runController(t, "source-controller", p.storageFlags(t)...)
	p.runController(t, "kustomize-controller")

	p.create(t, repositories, map[string]any{
		"interval": "1h", "url": repo.url, "ref": map[string]any{"branch": "main"},
	})
	p.create(t, kustomizations, map[string]any{
		"interval": "1h", "path": "./", "prune": true, "wait": true, "timeout": "5m",
		"sourceRef": map[string]any{"kind": "GitRepository", "name": "app"},
	})
	p.await(t, configMaps, "default", "greeting", "says hello", says("hello"))
	p.await(t, deployments, "default", "web", "is available", available)
	p.await(t, kustomizations, "flux-system", "app", "is ready", ready)

	// What is committed is applied, and what is no longer in the repository is gone.
	repo.commit(t, map[string]string{"greeting.yaml": text("good evening")})
	p.reconcile(t, repositories)
	p.await(t, configMaps, "default", "greeting", "says good evening", says("good evening"))
	p.await(t, deployments, "default", "web", "is gone", gone)

	// What somebody changes by hand is put back.
	patch := []byte(`{"data":{"text":"boo"}}`)
	if _, err := p.client.Resource(configMaps).Namespace("default").Patch(t.Context(), "greeting",
		types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
	p.reconcile(t, kustomizations)
	p.await(t, configMaps, "default", "greeting", "says good evening again", says("good evening"))

	// With the Kustomization goes what it applied, by its finalizer.
	if err := p.client.Resource(kustomizations).Namespace("flux-system").
		Delete(t.Context(), "app", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.await(t, kustomizations, "flux-system", "app", "is gone", gone)
	p.await(t, configMaps, "default", "greeting", "is gone", gone)
}

func says(text string) func(*unstructured.Unstructured) bool {
	return func(obj *unstructured.Unstructured) bool {
		if obj == nil {
			return false
		}
		got, _, _ := unstructured.NestedString(obj.Object, "data", "text")
		return got == text
	}
}

func available(obj *unstructured.Unstructured) bool {
	if obj == nil {
		return false
	}
	n, _, _ := unstructured.NestedInt64(obj.Object, "status", "availableReplicas")
	return n == 2
}

func ready(obj *unstructured.Unstructured) bool {
	if obj == nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == "Ready" {
			return c["status"] == "True"
		}
	}
	return false
}

func gone(obj *unstructured.Unstructured) bool { return obj == nil }

// await follows an object until it is as the test wants it, nil meaning that there is none.
func (p *plane) await(t *testing.T, of schema.GroupVersionResource, namespace, name, what string,
	holds func(*unstructured.Unstructured) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	last := p.follow(ctx, p.client.Resource(of).Namespace(namespace), name, holds)
	if ctx.Err() != nil {
		t.Fatalf("%s %s never %s; it is now %v", of.Resource, name, what, last)
	}
}

func (p *plane) follow(ctx context.Context, of dynamic.ResourceInterface, name string,
	holds func(*unstructured.Unstructured) bool) (last *unstructured.Unstructured) {
	for ctx.Err() == nil {
		list, err := of.List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
		})
		if err != nil {
			continue
		}
		last = nil
		if len(list.Items) == 1 {
			last = &list.Items[0]
		}
		if holds(last) {
			return last
		}
		w, err := of.Watch(ctx, metav1.ListOptions{
			FieldSelector:   fields.OneTermEqualSelector("metadata.name", name).String(),
			ResourceVersion: list.GetResourceVersion(),
		})
		if err != nil {
			continue
		}
		for event := range w.ResultChan() {
			if event.Type == watch.Error {
				break
			}
			last = event.Object.(*unstructured.Unstructured)
			if event.Type == watch.Deleted {
				last = nil
			}
			if holds(last) {
				w.Stop()
				return last
			}
		}
		w.Stop()
	}
	return last
}

func (p *plane) create(t *testing.T, of schema.GroupVersionResource, spec map[string]any) {
	t.Helper()
	kind := map[string]string{"gitrepositories": "GitRepository", "kustomizations": "Kustomization"}[of.Resource]
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion(of.GroupVersion().String())
	obj.SetKind(kind)
	obj.SetName("app")
	_, err := p.client.Resource(of).Namespace("flux-system").Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// reconcile asks for a pass now, as `flux reconcile` does.
func (p *plane) reconcile(t *testing.T, of schema.GroupVersionResource) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`,
		time.Now().Format(time.RFC3339Nano))
	if _, err := p.client.Resource(of).Namespace("flux-system").
		Patch(t.Context(), "app", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func text(says string) string { return strings.Replace(greeting, "TEXT", says, 1) }
