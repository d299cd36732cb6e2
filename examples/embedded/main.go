// Embedded is a program with a control plane in it: no port, no file, no other process.
//
//	go run ./examples/embedded
package main

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint"
)

func main() {
	cp, err := setpoint.New(setpoint.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer cp.Stop()
	ctx := context.Background()
	if err := cp.Start(ctx); err != nil {
		log.Fatal(err)
	}
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "example"}}
	if err := c.Create(ctx, ns); err != nil {
		log.Fatal(err)
	}
	fmt.Println(ns.Name, ns.Status.Phase)
}
