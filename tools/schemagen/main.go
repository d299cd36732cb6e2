// Schemagen writes the embedded data of package kinds/schema from the Go types of k8s.io/api,
// k8s.io/apimachinery, k8s.io/apiextensions-apiserver and k8s.io/kube-aggregator at the versions
// that its go.mod pins:
//
//   - builtin.txt, the structure of every type that is registered there, or that such a type
//     refers to (see type walker for the format);
//   - openapi.json.gz, the OpenAPI v3 definition of the same types, with descriptions.
//
// Names, omission, embedding, protobuf numbers and patch directives come from the types by
// reflection; defaults, list types, enums, required fields and descriptions from the definitions
// that openapi-gen finds in the comments. Both files are the same for the same pins.
//
// Run it with "go generate ./kinds/schema", which runs openapi-gen first; that takes a few minutes.
package main

//go:generate go tool openapi-gen --output-dir=openapi --output-pkg=github.com/setpoint-dev/setpoint/tools/schemagen/openapi --output-file=zz_generated.go --go-header-file=/dev/null --report-filename=openapi/report.txt k8s.io/api/... k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/util/intstr k8s.io/apimachinery/pkg/version k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1 k8s.io/kube-aggregator/pkg/apis/apiregistration/v1
//go:generate go run . -out ../../kinds/schema

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func main() {
	out := flag.String("out", ".", "directory to write to")
	flag.Parse()
	if err := generate(*out); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

func generate(dir string) error {
	known := registered()
	defs, err := loadDefinitions(known)
	if err != nil {
		return err
	}
	types, err := describe(known, defs)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "builtin.txt"), types, 0o644); err != nil {
		return err
	}
	packed, err := defs.pack()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "openapi.json.gz"), packed, 0o644)
}

// registered returns the types that a server or client of the API knows by group, version and kind.
func registered() map[schema.GroupVersionKind]reflect.Type {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(apiregistrationv1.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	known := map[schema.GroupVersionKind]reflect.Type{}
	for gvk, t := range s.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal {
			known[gvk] = t
		}
	}
	return known
}
