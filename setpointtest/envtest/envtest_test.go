package envtest_test

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/setpointtest/envtest"
)

// TestAsInASuite does what the suite that Kubebuilder writes does: start, make a manager with a
// reconciler, see it work, stop.
func TestAsInASuite(t *testing.T) {
	testEnv := &envtest.Environment{ErrorIfCRDPathMissing: true}
	cfg, err := testEnv.Start()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	reconciled := make(chan reconcile.Request, 10)
	err = ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(
		reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			reconciled <- req
			return reconcile.Result{}, mgr.GetClient().Get(ctx, req.NamespacedName, &corev1.ConfigMap{})
		}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()

	k8sClient, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "seen"}}
	if err := k8sClient.Create(ctx, obj); err != nil {
		t.Fatal(err)
	}
	if req := <-reconciled; req.NamespacedName != client.ObjectKeyFromObject(obj) {
		t.Errorf("reconciled %s, want %s", req, client.ObjectKeyFromObject(obj))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("manager: %v", err)
	}
	for range 2 {
		if err := testEnv.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}

// TestControllersRunIfAskedFor has a suite take a built-in one.
func TestControllersRunIfAskedFor(t *testing.T) {
	testEnv := &envtest.Environment{Controllers: []string{"deployment"}, Listen: "127.0.0.1:0"}
	if _, err := testEnv.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := testEnv.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	cfg, err := clientcmd.RESTConfigFromKubeConfig(testEnv.KubeConfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), &appsv1.ReplicaSetList{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	labels := map[string]string{"app": "web"}
	err = c.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if event := <-w.ResultChan(); event.Object.(*appsv1.ReplicaSet).GenerateName != "" {
		t.Errorf("%s of a replica set with a generated name", event.Type)
	}
}

// TestMistakesAreNamed has Start say what it cannot do.
func TestMistakesAreNamed(t *testing.T) {
	_, err := (&envtest.Environment{CRDDirectoryPaths: []string{"config/crd/bases"}}).Start()
	if err == nil || !strings.Contains(err.Error(), "config/crd/bases: CustomResourceDefinitions are not served") {
		t.Errorf("with a folder of definitions: %v", err)
	}
	if _, err := (&envtest.Environment{Controllers: []string{"nosuch"}}).Start(); err == nil {
		t.Error("a controller that does not exist was started")
	}
}
