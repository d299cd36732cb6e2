package serviceaccount_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/serviceaccount"
)

var request = reconcile.Request{NamespacedName: client.ObjectKey{Name: "ns"}}

func pass(t *testing.T, c *controllertest.Client, ca string) []string {
	t.Helper()
	if _, err := serviceaccount.NewReconciler(c, []byte(ca)).Reconcile(context.Background(), request); err != nil {
		t.Fatal(err)
	}
	return c.Writes()
}

func TestNamespaceIsProvidedOnce(t *testing.T) {
	c := controllertest.NewClient(t, controllertest.NewClock(), nil, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	if diff := cmp.Diff([]string{"create ServiceAccount ns/default", "create ConfigMap ns/kube-root-ca.crt"}, pass(t, c, "CA")); diff != "" {
		t.Errorf("first pass (-want +got):\n%s", diff)
	}
	if writes := pass(t, c, "CA"); len(writes) != 0 {
		t.Errorf("second pass wrote %v", writes)
	}
	if diff := cmp.Diff([]string{"update ConfigMap ns/kube-root-ca.crt"}, pass(t, c, "another")); diff != "" {
		t.Errorf("with another authority (-want +got):\n%s", diff)
	}
}

func TestDyingNamespaceGetsNothing(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "ns", DeletionTimestamp: ptr.To(metav1.NewTime(controllertest.Start)), Finalizers: []string{"x"},
	}}
	if writes := pass(t, controllertest.NewClient(t, controllertest.NewClock(), nil, ns), "CA"); len(writes) != 0 {
		t.Errorf("wrote %v, want nothing", writes)
	}
}

func TestNamespaceThatStartsToDieMeanwhile(t *testing.T) {
	c := controllertest.NewClient(t, controllertest.NewClock(), nil, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	c.Before = func(string, client.Object) error { return controllertest.NamespaceTerminating("ns") }
	pass(t, c, "CA")
}
