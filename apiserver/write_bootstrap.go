package apiserver

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/patch/managed"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Bootstrap makes what every cluster has: the namespaces that the system needs and the Service by
// which pods know the API server. What is there already is left as it is. It is called before the
// server serves, and may be called again.
func (s *Server) Bootstrap(ctx context.Context) error {
	if err := s.definitions.settle(ctx, ""); err != nil {
		return err
	}
	for _, name := range []string{namespaceSystem, namespacePublic, namespaceLeases, namespaceDefault} {
		obj := kinds.Object{"metadata": map[string]any{"name": name}}
		if err := s.bootstrap(ctx, "Namespace", "", obj); err != nil {
			return err
		}
	}
	return s.bootstrap(ctx, "Service", namespaceDefault, kinds.Object{
		"metadata": map[string]any{
			"name":   "kubernetes",
			"labels": map[string]any{"component": "apiserver", "provider": "kubernetes"},
		},
		"spec": map[string]any{
			"clusterIP": s.opts.ServiceCIDR.Masked().Addr().Next().String(),
			"ports":     []any{map[string]any{"name": "https", "port": int64(443), "targetPort": int64(6443), "protocol": "TCP"}},
		},
	})
}

// bootstrap creates an object of the core group as the server itself, if the kind is served and
// the object is not there.
func (s *Server) bootstrap(ctx context.Context, kind, namespace string, obj kinds.Object) error {
	set := s.kinds.Current()
	k := set.Kind(schema.GroupVersionKind{Version: "v1", Kind: kind})
	if k == nil {
		return nil
	}
	// What is there must not even be tried: it holds its address already.
	snap, err := s.store.Snapshot(ctx)
	if err != nil || snap.Get(keyOf(k, namespace, tree.Str(obj, "metadata", "name"))) != nil {
		return err
	}
	obj["apiVersion"], obj["kind"] = "v1", kind
	t := &write{
		server: s, ctx: ctx, kinds: set, kind: k, hooks: &k.Strategy, verb: "create",
		manager: "kube-apiserver", namespace: namespace,
		user: &authn.User{Name: "system:apiserver", Groups: []string{authn.Masters}},
		opts: writeOptions{fieldValidation: metav1.FieldValidationStrict},
		now:  s.clock.Now(), warn: func(string) {},
	}
	_, err = t.insert(func() (kinds.Object, error) {
		obj := tree.CopyMap(obj)
		if _, err := k.Schema.Conform(obj); err != nil {
			return nil, err
		}
		return obj, t.prepareNew(obj)
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// managedType returns what is known of a kind's fields for managedFields.
func (s *Server) managedType(k *kinds.Kind) *managed.Type {
	if t, ok := s.managedTypes.Load(k.Schema); ok {
		return t.(*managed.Type)
	}
	t, _ := s.managedTypes.LoadOrStore(k.Schema, managed.NewType(k.Schema))
	return t.(*managed.Type)
}
