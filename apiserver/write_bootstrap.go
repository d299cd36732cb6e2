package apiserver

import (
	"cmp"
	"context"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/patch/managed"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Bootstrap makes what every cluster has: the namespaces that the system needs, the Service by which
// pods know the API server, and what the server says of itself. What is there already is left as it
// is, and what it holds is reserved. It is called before the server serves, and may be called again.
func (s *Server) Bootstrap(ctx context.Context) error {
	if err := s.definitions.settle(ctx, ""); err != nil {
		return err
	}
	if err := s.mendReservations(ctx); err != nil {
		return err
	}
	var namespaces []first
	for _, name := range []string{namespaceSystem, namespacePublic, namespaceLeases, namespaceDefault} {
		obj := kinds.Object{"metadata": map[string]any{"name": name}}
		namespaces = append(namespaces, first{gvk: coreKind("Namespace"), obj: obj})
	}
	if err := s.bootstrapAll(ctx, namespaces); err != nil {
		return err
	}
	return s.bootstrapAll(ctx, s.firsts())
}

// bootstrapAll creates objects side by side: one by one they would wait for the disk as often as there
// are objects.
func (s *Server) bootstrapAll(ctx context.Context, all []first) error {
	together, ctx := errgroup.WithContext(ctx)
	for _, f := range all {
		together.Go(func() error { return s.bootstrap(ctx, f) })
	}
	return together.Wait()
}

// bootstrap creates an object as the server itself, if the kind is served and the object is not there.
func (s *Server) bootstrap(ctx context.Context, f first) error {
	set := s.kinds.Current()
	k := set.Kind(f.gvk)
	if k == nil {
		return nil
	}
	there := func() (bool, error) {
		snap, err := s.store.Snapshot(ctx)
		return err == nil && snap.Get(keyOf(k, f.namespace, tree.Str(f.obj, "metadata", "name"))) != nil, err
	}
	if there, err := there(); there || err != nil {
		return err
	}
	f.obj["apiVersion"], f.obj["kind"] = f.gvk.ToAPIVersionAndKind()
	t := &write{
		server: s, ctx: ctx, kinds: set, kind: k, hooks: &k.Strategy, verb: "create",
		manager: cmp.Or(f.manager, selfManager), namespace: f.namespace, user: serverUser,
		opts: writeOptions{fieldValidation: metav1.FieldValidationStrict},
		now:  s.clock.Now(), warn: func(string) {},
	}
	if f.whole {
		t.hooks = &kinds.Strategy{}
	}
	_, err := t.insert(func() (kinds.Object, error) {
		obj := tree.CopyMap(f.obj)
		if _, err := k.Schema.Conform(obj); err != nil {
			return nil, err
		}
		return obj, t.prepareNew(obj)
	})
	// Another server on the store may have made it meanwhile: then it exists, and holds its address.
	if there, unknown := there(); err != nil && unknown == nil && there {
		return nil
	}
	if err != nil || f.status == nil {
		return err
	}
	return t.sayStatus(f)
}

// sayStatus applies what is said of an object that has been made.
func (t *write) sayStatus(f first) error {
	next := *t
	next.verb, next.subresource, next.manager, next.opts.force = "patch", "status", f.statusManager, true
	config := kinds.Object{
		"apiVersion": f.obj["apiVersion"], "kind": f.obj["kind"],
		"metadata": map[string]any{"name": t.name}, "status": f.status,
	}
	_, _, err := next.modify(change{next: func(live kinds.Object) (kinds.Object, error) {
		obj, err := next.applyTree(live, config)
		if err != nil {
			return nil, err
		}
		return obj, next.settlePatched(obj)
	}})
	return err
}

// serverUser is the server where it writes for itself. Known leaves it as it is, so that it can be told
// from whoever has its name.
var serverUser = (&authn.User{Name: "system:apiserver", Groups: []string{authn.Masters}}).Known()

// managedType returns what is known of a kind's fields for managedFields.
func (s *Server) managedType(k *kinds.Kind) *managed.Type { return s.managedTypeOf(k.Schema) }

func (s *Server) managedTypeOf(of *compiled.Schema) *managed.Type {
	if t, ok := s.managedTypes.Load(of); ok {
		return t.(*managed.Type)
	}
	t, _ := s.managedTypes.LoadOrStore(of, managed.NewType(of))
	return t.(*managed.Type)
}
