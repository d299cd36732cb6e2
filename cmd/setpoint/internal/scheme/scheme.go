// Package scheme lists the Go types that the command line's own clients use. The full scheme of
// client-go registers every API group there is, at a cost that each start would pay.
package scheme

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// New returns a scheme with the core, apps and discovery groups.
func New() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, discoveryv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // only two types of one name, in one group, can make this fail
		}
	}
	return s
}
