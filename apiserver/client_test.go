package apiserver_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

func (s *site) restConfig() *rest.Config {
	admin := &authn.User{Name: "admin", Groups: []string{authn.Masters}}
	return &rest.Config{Host: "http://setpoint", Transport: s.server.Transport(admin), QPS: -1}
}

// client-go's typed clients write protobuf, and its informers watch with sendInitialEvents: both
// must work as they are.
func TestClientGo(t *testing.T) {
	s := newSite(t)
	client, err := kubernetes.NewForConfig(s.restConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	configMaps := client.CoreV1().ConfigMaps("default")
	if _, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := configMaps.Get(ctx, "a", metav1.GetOptions{})
	if err != nil || got.Data["k"] != "v" || got.UID == "" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := configMaps.Get(ctx, "nosuch", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what does not exist: %v", err)
	}
	stale := got.DeepCopy()
	got.Data["k"] = "w"
	if _, err := configMaps.Update(ctx, got, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := configMaps.Update(ctx, stale, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		t.Errorf("a stale update: %v", err)
	}

	factory := informers.NewSharedInformerFactory(client, 0)
	lister := factory.Apps().V1().Deployments().Lister()
	informer := factory.Apps().V1().Deployments().Informer()
	added := make(chan string, 1)
	informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { added <- obj.(*appsv1.Deployment).Name },
	})
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	labels := map[string]string{"app": "web"}
	_, err = client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if name := <-added; name != "web" {
		t.Errorf("the informer was told of %s", name)
	}
	if d, err := lister.Deployments("default").Get("web"); err != nil || *d.Spec.Replicas != 1 {
		t.Errorf("the lister has %v, %v", d, err)
	}
}

// The garbage collector's clients see the metadata of every kind that discovery lists.
func TestClientGoMetadata(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "x=y")
	found, err := discovery.NewDiscoveryClientForConfig(s.restConfig())
	if err != nil {
		t.Fatal(err)
	}
	lists, err := found.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	all := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch", "delete"}}, lists)
	resources, err := discovery.GroupVersionResources(all)
	if err != nil || len(resources) < 10 {
		t.Fatalf("discovery finds %v, %v", resources, err)
	}
	client, err := metadata.NewForConfig(s.restConfig())
	if err != nil {
		t.Fatal(err)
	}
	factory := metadatainformer.NewSharedInformerFactory(client, 0)
	for gvr := range resources {
		factory.ForResource(gvr)
	}
	lister := factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Lister()
	factory.Start(t.Context().Done())
	for gvr, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Errorf("the informer of %s does not sync", gvr)
		}
	}
	obj, err := lister.ByNamespace("default").Get("a")
	if err != nil {
		t.Fatal(err)
	}
	if m := obj.(*metav1.PartialObjectMetadata); m.Labels["x"] != "y" {
		t.Errorf("metadata %v", m)
	}
}
