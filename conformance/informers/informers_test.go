// Package informers_test runs client-go's informers through what servers do to them.
package informers_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/conformance/server"
)

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// resync is never, which leaves nothing to hide a change that the watch has missed.
const resync = 0

// forms are the informers that client-go has: what they keep, and in which encoding they ask for it.
var forms = map[string]func(*rest.Config) cache.SharedIndexInformer{
	"typed, JSON": func(c *rest.Config) cache.SharedIndexInformer {
		c.ContentType, c.AcceptContentTypes = "application/json", "application/json"
		return typed(c)
	},
	"typed, protobuf": func(c *rest.Config) cache.SharedIndexInformer {
		c.ContentType = "application/vnd.kubernetes.protobuf"
		c.AcceptContentTypes = "application/vnd.kubernetes.protobuf"
		return typed(c)
	},
	"dynamic": func(c *rest.Config) cache.SharedIndexInformer {
		client := dynamic.NewForConfigOrDie(c)
		factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, resync, "default", nil)
		return factory.ForResource(configMaps).Informer()
	},
	"metadata": func(c *rest.Config) cache.SharedIndexInformer {
		client := metadata.NewForConfigOrDie(c)
		factory := metadatainformer.NewFilteredSharedInformerFactory(client, resync, "default", nil)
		return factory.ForResource(configMaps).Informer()
	},
}

func typed(c *rest.Config) cache.SharedIndexInformer {
	factory := informers.NewSharedInformerFactoryWithOptions(
		kubernetes.NewForConfigOrDie(c), resync, informers.WithNamespace("default"))
	return factory.Core().V1().ConfigMaps().Informer()
}

// TestInformersFollow has each informer follow config maps while the server is killed and started
// again, and while the watch is cut off for longer than the server remembers. At every step what it has
// told its handler must come to be what there is: each object once, each deletion too.
func TestInformersFollow(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watch-list %v", watchList), func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			for name, informer := range forms {
				t.Run(name, func(t *testing.T) {
					t.Parallel() // each waits for its own back-off most of the time
					follow(t, informer)
				})
			}
		})
	}
}

func follow(t *testing.T, informer func(*rest.Config) cache.SharedIndexInformer) {
	s := server.Start(t, "server", "--controllers=none", "--history=1ms")
	w := writer{t: t, client: kubernetes.NewForConfigOrDie(s.Config)}
	wire := &line{}
	config := rest.CopyConfig(s.Config)
	config.Wrap(wire.wrap)
	seen := newMirror(t, informer(config))

	w.write("a", "b", "c")
	seen.await("what was created", "a", "b", "c")
	w.remove("b")
	w.write("a")
	seen.await("a change and a deletion", "a", "c")

	s.Restart(t, syscall.SIGKILL)
	w.write("c", "d")
	w.remove("a")
	seen.await("what was done after the server was killed", "c", "d")
	s.Restart(t, syscall.SIGTERM)
	w.write("e")
	seen.await("what was done after the server had ended", "c", "d", "e")

	wire.cut()
	w.remove("c")
	w.write("d", "f")
	w.forget()
	wire.mend()
	seen.await("what the server no longer remembers", "d", "e", "f")
	w.write("g")
	seen.await("what came after", "d", "e", "f", "g")
}

// writer changes the config maps of namespace default.
type writer struct {
	t      *testing.T
	client kubernetes.Interface
}

// write creates each config map, or changes it if it is there.
func (w writer) write(names ...string) {
	w.t.Helper()
	for _, name := range names {
		maps := w.client.CoreV1().ConfigMaps("default")
		obj, err := maps.Get(w.t.Context(), name, metav1.GetOptions{})
		if err == nil {
			obj.Data = map[string]string{"after": obj.ResourceVersion}
			_, err = maps.Update(w.t.Context(), obj, metav1.UpdateOptions{})
		} else {
			obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"seen": "yes"}}}
			_, err = maps.Create(w.t.Context(), obj, metav1.CreateOptions{})
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w writer) remove(name string) {
	w.t.Helper()
	err := w.client.CoreV1().ConfigMaps("default").Delete(w.t.Context(), name, metav1.DeleteOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// forget returns when the server can no longer tell what has happened since now. It writes elsewhere
// until then, for a server has no need to forget while nothing happens.
func (w writer) forget() {
	w.t.Helper()
	list, err := w.client.CoreV1().ConfigMaps("default").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	secrets := w.client.CoreV1().Secrets("kube-system")
	for range 10_000 {
		obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "noise-"}}
		if _, err := secrets.Create(w.t.Context(), obj, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
		if w.gone(list.ResourceVersion) {
			return
		}
	}
	w.t.Fatalf("the server still remembers revision %s", list.ResourceVersion)
}

// gone tells whether a watch of the noise from a revision is refused, by its answer or its first event.
func (w writer) gone(revision string) bool {
	w.t.Helper()
	stream, err := w.client.CoreV1().Secrets("kube-system").Watch(w.t.Context(), metav1.ListOptions{ResourceVersion: revision})
	if err != nil {
		return true
	}
	defer stream.Stop()
	select {
	case event := <-stream.ResultChan():
		return event.Type == watch.Error
	case <-time.After(time.Minute):
		w.t.Fatal("a watch told nothing of what was written")
	}
	return false
}
