package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	asTable = ";as=Table;v=v1;g=meta.k8s.io"
	asOne   = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asMany  = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// readProto decodes a protobuf answer as client-go does.
func readProto(t *testing.T, body string) runtime.Object {
	t.Helper()
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(body), nil, nil)
	if err != nil {
		t.Fatalf("%v: %q", err, body)
	}
	return obj
}

// sameAs compares a typed object with the JSON that the server has for it.
func sameAs(t *testing.T, want string, got runtime.Object) {
	t.Helper()
	into := got.DeepCopyObject()
	into.(interface{ Reset() }).Reset()
	if err := json.Unmarshal([]byte(want), into); err != nil {
		t.Fatal(err)
	}
	got.GetObjectKind().SetGroupVersionKind(into.GetObjectKind().GroupVersionKind())
	if diff := cmp.Diff(into, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// What is answered in protobuf is what is answered in JSON.
func TestProtobufSaysWhatJSONSays(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "color=blue")
	s.configMap("b", "color=blue")
	s.must("POST", "/apis/apps/v1/namespaces/default/deployments", deployment)
	for _, path := range []string{
		cm + "/a", cm, cm + "?limit=1", cm + "?labelSelector=color=red", cm + "/nosuch", "/api/v1/namespaces",
		"/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/default/deployments/d",
		"/apis/apps/v1/namespaces/default/deployments/d/scale",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis", "/apis/apps", "/apis/apps/v1", "/api/v1",
	} {
		t.Run(path, func(t *testing.T) {
			plain, binary := s.get(path, "Accept", "application/json"), s.get(path, "Accept", protobufType)
			if plain.code != binary.code || binary.header.Get("Content-Type") != protobufType {
				t.Fatalf("%d %s", binary.code, binary.header.Get("Content-Type"))
			}
			sameAs(t, plain.text, readProto(t, binary.text))
		})
	}
}

// Who asks for a form gets it, or his next choice, or is told what there is, as Kubernetes has it.
func TestNegotiation(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "x=y")
	s.must("POST", crds, definition(`{"type":"object","properties":{"x":{"type":"integer"}}}`))
	s.must("POST", widgets, widget("w", `"spec":{"x":1}`))
	for _, c := range []struct {
		path, accept string
		code         int
		contentType  string
	}{
		{cms + "/a", protobufType, 200, protobufType},
		{cms + "/a", protobufType + ",application/json", 200, protobufType},
		{cms + "/a", "application/json;q=0.9," + protobufType, 200, protobufType},
		{cms + "/a", protobufType + ";q=0.8,application/json", 200, "application/json"},
		{cms + "/a", protobufType + ", */*", 200, protobufType},
		{cms + "/a", protobufType + asTable, 406, "application/json"},
		{cms + "/a", protobufType + asTable + ",application/json" + asTable, 200, "application/json"},
		{cms + "/a", protobufType + asTable + "," + protobufType, 200, protobufType},
		{cms + "/a", "application/cbor" + asTable, 406, "application/json"},
		{cms + "/a", "application/yaml" + asTable, 200, "application/yaml"},
		{cms + "/a", protobufType + asOne, 200, protobufType},
		{cms + "/a", protobufType + asMany, 406, "application/json"},
		{cms, protobufType + asMany, 200, protobufType},
		{cms, protobufType + asOne, 406, "application/json"},
		{cms, "application/cbor", 200, "application/cbor"},
		{cms + "/nosuch", protobufType, 404, protobufType},
		{cms + "/nosuch", "application/cbor", 404, "application/cbor"},
		{widgets + "/w", protobufType + ",application/json", 200, "application/json"},
		{widgets + "/w", protobufType, 406, protobufType},
		{widgets + "/nosuch", protobufType + ",application/json", 404, protobufType},
		{widgets, protobufType, 406, protobufType},
		{widgets, protobufType + asMany, 200, protobufType},
		{widgets + "/w", protobufType + asOne, 200, protobufType},
		{widgets + "/w", "application/cbor", 200, "application/cbor"},
		{widgets + "?watch=1&timeoutSeconds=1", protobufType, 406, protobufType},
		{cms + "?watch=1", protobufType + asTable, 406, "application/json"},
		{"/apis", protobufType, 200, protobufType},
		{"/version", protobufType + ",application/json", 200, "application/json"},
	} {
		t.Run(strings.TrimPrefix(c.path, "/api")+" as "+c.accept, func(t *testing.T) {
			got := s.get(c.path, "Accept", c.accept)
			if got.code != c.code || got.header.Get("Content-Type") != c.contentType {
				t.Errorf("%d %s, want %d %s: %.300q", got.code, got.header.Get("Content-Type"), c.code, c.contentType, got.text)
			}
		})
	}
}

// A client of typed objects that speaks nothing but protobuf does all it can do.
func TestClientGo_Protobuf(t *testing.T) {
	s := newSite(t)
	config := s.restConfig()
	config.ContentType, config.AcceptContentTypes = protobufType, protobufType
	client := kubernetes.NewForConfigOrDie(config)
	ctx, configMaps := t.Context(), client.CoreV1().ConfigMaps("default")

	_, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Data: map[string]string{"k": "<v>"}, BinaryData: map[string][]byte{"b": {0, 1, 255}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for kind, data := range map[types.PatchType]string{
		types.JSONPatchType:           `[{"op":"add","path":"/data/json","value":"1"}]`,
		types.MergePatchType:          `{"data":{"merge":"2"}}`,
		types.StrategicMergePatchType: `{"data":{"strategic":"3"}}`,
	} {
		if _, err := configMaps.Patch(ctx, "a", kind, []byte(data), metav1.PatchOptions{}); err != nil {
			t.Fatal(kind, err)
		}
	}
	applied := applycorev1.ConfigMap("a", "default").WithData(map[string]string{"applied": "4"})
	made, err := configMaps.Apply(ctx, applied, metav1.ApplyOptions{FieldManager: "m"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"k": "<v>", "json": "1", "merge": "2", "strategic": "3", "applied": "4"}
	if diff := cmp.Diff(want, made.Data); diff != "" || len(made.BinaryData["b"]) != 3 {
		t.Error(diff, made.BinaryData)
	}
	if _, err := configMaps.Create(ctx, made, metav1.CreateOptions{}); !refusedAsMade(err) {
		t.Errorf("a second create: %v", err)
	}
	_, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "B_"}}, metav1.CreateOptions{})
	if status := (&apierrors.StatusError{}); !errors.As(err, &status) || status.ErrStatus.Details.Causes[0].Field != "metadata.name" {
		t.Errorf("an invalid one: %v", err)
	}
	uid := types.UID("other")
	err = configMaps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if !apierrors.IsConflict(err) {
		t.Errorf("a delete of another: %v", err)
	}
	if err := configMaps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}}); err != nil {
		t.Error(err)
	}
	deployments := client.AppsV1().Deployments("default")
	var d appsv1.Deployment
	if err := json.Unmarshal([]byte(deployment), &d); err != nil {
		t.Fatal(err)
	}
	if _, err := deployments.Create(ctx, &d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	scale, err := deployments.GetScale(ctx, "d", metav1.GetOptions{})
	if err != nil || scale.Spec.Replicas != 2 {
		t.Fatal(scale, err)
	}
	scale.Spec.Replicas = 3
	if scale, err = deployments.UpdateScale(ctx, "d", scale, metav1.UpdateOptions{}); err != nil || scale.Spec.Replicas != 3 {
		t.Error(scale, err)
	}
	if err := deployments.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	found := clientdiscovery.NewDiscoveryClientForConfigOrDie(config)
	if groups, err := found.ServerGroups(); err != nil || len(groups.Groups) < 10 {
		t.Error(groups, err)
	}
}

// A watch in protobuf has the events of one in JSON, with and without the initial ones.
func TestClientGo_ProtobufWatch(t *testing.T) {
	s := newSite(t)
	config := s.restConfig()
	config.ContentType, config.AcceptContentTypes = protobufType, protobufType
	client := kubernetes.NewForConfigOrDie(config)
	configMaps := client.CoreV1().ConfigMaps("default")
	from := s.configMap("a", "x=y").revision()

	yes := true
	initial := follow(t, configMaps, metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	later := follow(t, configMaps, metav1.ListOptions{ResourceVersion: from})
	for _, want := range []watch.EventType{watch.Added, watch.Bookmark} {
		ev := <-initial
		if ev.Type != want || ev.Object.(*corev1.ConfigMap).ResourceVersion == "" {
			t.Fatalf("initially %v %v, want %v", ev.Type, ev.Object, want)
		}
	}
	s.must("PATCH", cm+"/a", `{"data":{"k":"w"}}`, "Content-Type", "application/merge-patch+json")
	s.must("DELETE", cm+"/a", "")
	for _, events := range []<-chan watch.Event{initial, later} {
		for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
			ev := <-events
			if obj, ok := ev.Object.(*corev1.ConfigMap); !ok || ev.Type != want || obj.Data["k"] != "w" {
				t.Errorf("%v %v, want %v", ev.Type, ev.Object, want)
			}
		}
	}
}

// The error that ends a watch comes as an event, in its encoding.
func TestClientGo_ProtobufWatchFails(t *testing.T) {
	s := newSite(t)
	config := s.restConfig()
	config.ContentType, config.AcceptContentTypes = protobufType, protobufType
	from := s.configMap("a", "").revision()
	s.configMap("b", "")
	if err := s.store.Compact(t.Context(), s.store.Revision()); err != nil {
		t.Fatal(err)
	}
	configMaps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	ev := <-follow(t, configMaps, metav1.ListOptions{ResourceVersion: from})
	if ev.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(ev.Object)) {
		t.Errorf("%v %v", ev.Type, ev.Object)
	}
}

type watcher interface {
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// follow watches until the test ends.
func follow(t *testing.T, client watcher, opts metav1.ListOptions) <-chan watch.Event {
	t.Helper()
	w, err := client.Watch(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w.ResultChan()
}

// A dynamic client that speaks CBOR does all it can do, with kinds built in and declared.
func TestClientGo_CBOR(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, features.ClientsAllowCBOR, true)
	featurestesting.SetFeatureDuringTest(t, features.ClientsPreferCBOR, true)
	s := newSite(t)
	s.must("POST", crds, definition(`{"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"number"}}}`))
	config, spoken := s.restConfig(), map[string]int{}
	config.ContentType = "application/cbor"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return overheard{next, spoken} })
	client := dynamic.NewForConfigOrDie(config)
	for _, c := range []struct {
		gvr     schema.GroupVersionResource
		obj     map[string]any
		changed string
	}{
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"},
			"data": map[string]any{"k": "<ü>"}, "binaryData": map[string]any{"b": "AAH/"}}, "data"},
		{schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"x": int64(7), "y": 1.5}}, "spec"},
	} {
		t.Run(c.gvr.Resource, func(t *testing.T) {
			ctx, objects := t.Context(), client.Resource(c.gvr).Namespace("default")
			events := follow(t, objects, metav1.ListOptions{})
			made, err := objects.Create(ctx, &unstructured.Unstructured{Object: c.obj}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range c.obj {
				if key != "metadata" && !cmp.Equal(want, made.Object[key]) {
					t.Error(cmp.Diff(want, made.Object[key]))
				}
			}
			if _, err := objects.Create(ctx, made, metav1.CreateOptions{}); !refusedAsMade(err) {
				t.Errorf("a second create: %v", err)
			}
			applied := made.DeepCopy()
			applied.Object["metadata"] = map[string]any{"name": "a", "labels": map[string]any{"l": "v"}}
			got, err := objects.Apply(ctx, "a", applied, metav1.ApplyOptions{FieldManager: "m", Force: true})
			if err != nil || got.GetLabels()["l"] != "v" {
				t.Fatal(got, err)
			}
			got.SetAnnotations(map[string]string{"seen": "yes"})
			if got, err = objects.Update(ctx, got, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			list, err := objects.List(ctx, metav1.ListOptions{LabelSelector: "l=v"})
			if err != nil || len(list.Items) != 1 || !cmp.Equal(list.Items[0].Object, got.Object) {
				t.Error(list, err)
			}
			if err := objects.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			if _, err := objects.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Error(err)
			}
			for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Modified, watch.Deleted} {
				ev := <-events
				if obj, ok := ev.Object.(*unstructured.Unstructured); !ok || ev.Type != want || obj.GetName() != "a" {
					t.Errorf("%v %v, want %v", ev.Type, ev.Object, want)
				}
			}
		})
	}
	if spoken["application/cbor"] < 14 || spoken["application/cbor-seq"] != 2 || len(spoken) != 2 {
		t.Errorf("answers were %v", spoken)
	}
}

// overheard counts the content types of answers.
type overheard struct {
	next   http.RoundTripper
	spoken map[string]int
}

func (o overheard) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil {
		o.spoken[resp.Header.Get("Content-Type")]++
	}
	return resp, err
}

// refusedAsMade says whether a create was refused since its object has a revision already.
func refusedAsMade(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && status.ErrStatus.Code == http.StatusInternalServerError &&
		status.ErrStatus.Message == "resourceVersion should not be set on objects to be created"
}
