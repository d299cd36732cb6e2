package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/apiserver/admission"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/patch/managed"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// The namespaces that are always there.
const (
	namespaceDefault = "default"
	namespaceSystem  = "kube-system"
	namespacePublic  = "kube-public"
	namespaceLeases  = "kube-node-lease"
)

// terminating says whether a namespace is going, from its stored bytes.
func terminating(namespace *store.Entry) bool {
	stamp, _ := member(metadataOf(namespace.Value), "deletionTimestamp")
	return stamp != nil
}

// admit sets up what takes part in every write, in Kubernetes' order: the server's own rules, what
// the embedder gave, policies, webhooks.
func (s *Server) admit() {
	hooks := admission.NewWebhooks(s.webhooks, s.random.uid, s.authz)
	limits := &admission.LimitRanges{}
	s.mutators = slices.Concat(
		[]admission.Mutator{admission.NamespaceLifecycle(terminating), admission.Defaults(), limits},
		s.opts.Mutators, []admission.Mutator{admission.MutatingPolicies(s.authz), hooks})
	s.validators = slices.Concat([]admission.Validator{limits},
		s.opts.Validators, []admission.Validator{admission.ValidatingPolicies(s.authz), hooks})
}

// attributes is the write as admission sees it. The object of a scale is the scale.
func (t *write) attributes(op admission.Operation, obj, old kinds.Object, snap store.Snapshot) *admission.Attributes {
	a := &admission.Attributes{
		Operation: op, Kind: t.kind, Subresource: t.subresource, Namespace: t.namespace, Name: t.name,
		User: t.user, DryRun: t.opts.dryRun, Object: obj, Old: old, Warn: t.warn,
		State: &state{t, snap},
		Namespaces: func(name string) *store.Entry {
			return t.depend(snap.Get(store.Key{Resource: namespacesResource.Resource, Path: name}))
		},
	}
	if t.subresource == "scale" && t.kind.Scale != nil {
		a.Body, a.Object, a.Old = scaleGVK, scaleOf(t.kind, obj), scaleOf(t.kind, old)
	}
	return a
}

// annotate keeps what admission notes for an audit; it goes into the history with the write.
func (t *write) annotate(key, value string) {
	if t.notes == nil {
		t.notes = map[string]string{}
	}
	t.notes[key] = value
}

// mutate runs the mutators, and makes canonical again what they may have left of the object.
func (t *write) mutate(a *admission.Attributes, obj kinds.Object) error {
	if t.consequence {
		return nil
	}
	if err := admission.Mutate(t.ctx, t.server.mutators, a); err != nil || a.Object == nil {
		return err
	}
	if !a.Body.Empty() {
		path := scalePath(t.kind.Scale.SpecReplicas)
		tree.Set(obj, tree.Int(a.Object, "spec", "replicas"), path...)
		return nil
	}
	if len(t.server.opts.Mutators) == 0 {
		return nil
	}
	return a.State.Settle(a, obj)
}

func (t *write) validate(a *admission.Attributes) error {
	if t.consequence {
		return nil
	}
	for _, v := range t.server.validators {
		if err := v.Validate(t.ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// state is what there is when a write is admitted.
type state struct {
	write *write
	snap  store.Snapshot
}

func (s *state) Kinds() *kinds.Set { return s.write.kinds }

func (s *state) Entry(k *kinds.Kind, namespace, name string) *store.Entry {
	return s.snap.Get(keyOf(k, namespace, name))
}

func (s *state) Entries(k *kinds.Kind, namespace string) []*store.Entry {
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	found, _ := s.snap.List(storageResource(k), store.ListOptions{Prefix: prefix})
	return found
}

func (s *state) Read(k *kinds.Kind, e *store.Entry) (kinds.Object, error) {
	return decodeStored(s.write.ctx, s.write.kinds, k, e.Value)
}

func (s *state) Equivalents(k *kinds.Kind) (others []*kinds.Kind) {
	for _, other := range s.write.kinds.All() {
		if other != k && storageResource(other) == storageResource(k) {
			others = append(others, other)
		}
	}
	return others
}

func (s *state) Convert(obj kinds.Object, from, to *kinds.Kind) (kinds.Object, error) {
	if to.Form != nil {
		objs, err := to.Form.From(s.write.ctx, []kinds.Object{tree.CopyMap(obj)})
		if err != nil {
			return nil, err
		}
		return objs[0], nil
	}
	at := *s.write
	at.kind = from
	op, err := at.encode(tree.CopyMap(obj))
	if err != nil {
		return nil, err
	}
	return decodeStored(s.write.ctx, s.write.kinds, to, op.Value)
}

func (s *state) Settle(a *admission.Attributes, obj kinds.Object) error {
	if !a.Body.Empty() {
		_, err := scaleSchema().Conform(obj)
		return err
	}
	if _, err := a.Kind.Schema.Conform(obj); err != nil {
		return fmt.Errorf("admission left an object that is not a %s: %w", a.Kind.Kind, err)
	}
	s.write.setDefaults(obj)
	return nil
}

func (s *state) Options(op admission.Operation) kinds.Object { return s.write.opts.tree(op) }

func (s *state) Annotate(key, value string) { s.write.annotate(key, value) }

func (s *state) Type(k *kinds.Kind) *managed.Type { return s.write.server.managedType(k) }

// tree is what admission is told of the options.
func (o writeOptions) tree(op admission.Operation) kinds.Object {
	kind := map[admission.Operation]string{
		admission.Create: "CreateOptions", admission.Update: "UpdateOptions", admission.Delete: "DeleteOptions",
	}[op]
	t := kinds.Object{"kind": kind, "apiVersion": "meta.k8s.io/v1"}
	if o.patch {
		t["kind"] = "PatchOptions"
	}
	if o.fieldManager != "" {
		t["fieldManager"] = o.fieldManager
	}
	if o.validationAsked != "" {
		t["fieldValidation"] = o.validationAsked
	}
	if o.dryRun {
		t["dryRun"] = []any{metav1.DryRunAll}
	}
	if o.force {
		t["force"] = true
	}
	return t
}

// endpointOf finds where a port of a Service is served. What runs in the cluster is reached at its own
// address; a service of another name, at that name.
func (s *Server) endpointOf(ctx context.Context, namespace, name string, port int64) (string, error) {
	snap, err := s.store.Snapshot(ctx)
	if err != nil {
		return "", err
	}
	set := s.kinds.Current()
	read := func(k *kinds.Kind, e *store.Entry) kinds.Object {
		obj, err := decodeStored(ctx, set, k, e.Value)
		if err != nil {
			return nil
		}
		return obj
	}
	services := set.Kind(schema.GroupVersionKind{Version: "v1", Kind: "Service"})
	slices := set.Kind(schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"})
	if services == nil || slices == nil {
		return "", fmt.Errorf("service %q not found", name)
	}
	entry := snap.Get(keyOf(services, namespace, name))
	if entry == nil {
		return "", fmt.Errorf("service %q not found", name)
	}
	service := read(services, entry)
	if tree.Str(service, "spec", "type") == "ExternalName" {
		return net.JoinHostPort(tree.Str(service, "spec", "externalName"), strconv.FormatInt(port, 10)), nil
	}
	wanted, found := "", false
	for _, p := range tree.Maps(service, "spec", "ports") {
		if tree.Int(p, "port") == port {
			wanted, found = tree.Str(p, "name"), true
		}
	}
	if !found {
		return "", fmt.Errorf("no service port %d found for service %q", port, name)
	}
	for e := range entries(snap, storageResource(slices), namespace+"/", "") {
		if slice := read(slices, e); tree.Str(slice, "metadata", "labels", "kubernetes.io/service-name") == name {
			if at := readyAt(slice, wanted); at != "" {
				return at, nil
			}
		}
	}
	return "", fmt.Errorf("no endpoints available for service %q", name)
}

// readyAt returns an address of a slice that is ready, with the port of a name; "" if there is none.
func readyAt(slice kinds.Object, port string) string {
	for _, p := range tree.Maps(slice, "ports") {
		if tree.Str(p, "name") != port {
			continue
		}
		for _, e := range tree.Maps(slice, "endpoints") {
			ready, said := tree.Get(e, "conditions", "ready").(bool)
			if at := tree.Strings(e, "addresses"); len(at) > 0 && (ready || !said) {
				return net.JoinHostPort(at[0], strconv.FormatInt(tree.Int(p, "port"), 10))
			}
		}
	}
	return ""
}

// sortedNotes are the notes of a write in order of their names.
func (t *write) sortedNotes() []string { return slices.Sorted(maps.Keys(t.notes)) }
