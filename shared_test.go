package setpoint_test

import (
	"net/url"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint"
)

// etcdURL starts an etcd, and returns how to name it as a store.
func etcdURL(t *testing.T) string {
	conf := embed.NewConfig()
	conf.Dir, conf.LogLevel, conf.UnsafeNoFsync = t.TempDir(), "fatal", true
	anywhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	conf.ListenClientUrls, conf.ListenPeerUrls = anywhere, anywhere
	e, err := embed.StartEtcd(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return "etcd://" + e.Clients[0].Addr().String()
}

// Two control planes on one etcd are one to their clients, and when the one whose controllers work
// ends, the other's go on.
func TestControlPlanesShareAStore(t *testing.T) {
	at := etcdURL(t)
	start := func() (*setpoint.ControlPlane, kubernetes.Interface) {
		cp, err := setpoint.New(setpoint.Options{Store: at})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cp.Stop() })
		if err := cp.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return cp, kubernetes.NewForConfigOrDie(cp.RESTConfig())
	}
	first, a := start()
	if _, err := a.AppsV1().Deployments("default").Create(t.Context(), deployment(1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPods(t, a, 1)
	_, b := start()
	awaitPods(t, b, 1)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	scale := []byte(`{"spec":{"replicas":3}}`)
	_, err := b.AppsV1().Deployments("default").Patch(t.Context(), "web", "application/merge-patch+json", scale, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitPods(t, b, 3)
}

// awaitPods waits until there are as many pods.
func awaitPods(t *testing.T, c kubernetes.Interface, want int) {
	t.Helper()
	pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for n := len(pods.Items); n != want; {
		e, ok := <-w.ResultChan()
		if !ok {
			t.Fatalf("the watch ended at %d pods, want %d", n, want)
		}
		switch e.Type {
		case "ADDED":
			n++
		case "DELETED":
			n--
		}
	}
}
