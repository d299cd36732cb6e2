package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/setpointtest"
)

func Example() {
	main()
	// Output: example Active
}

func TestServiceAccountOfANewNamespace(t *testing.T) {
	cp := setpointtest.Start(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	if err := cp.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "default"}}
	cp.Await(account, "it is there", func() bool { return account.UID != "" })
}
