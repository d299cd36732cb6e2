package controllertest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"
)

// Resource is a kind of object that a Metadata server has.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// Metadata is an API server for metadata in memory: uids, revisions, finalizers, preconditions and
// propagation policies as the API server has them, and nothing else of an object. It implements
// metadata.Interface and answers discovery. It may be used concurrently.
type Metadata struct {
	// Before, if not nil, is called before each request, as "get configmaps ns/name", which fails with
	// the error it returns.
	Before func(request string) error

	mu        sync.Mutex
	resources []Resource
	objects   map[objectKey]*metav1.PartialObjectMetadata
	log       []logged
	streams   []*stream
	revision  int
	requests  []string
	failing   map[schema.GroupVersion]error
}

type objectKey struct {
	resource        schema.GroupResource
	namespace, name string
}

func (k objectKey) String() string { return k.namespace + "/" + k.name }

// logged is a change, as watches tell it.
type logged struct {
	key      objectKey
	revision int
	event    watch.Event
}

var _ metadata.Interface = &Metadata{}

// NewMetadata returns a server of the resources, without objects.
func NewMetadata(resources ...Resource) *Metadata {
	return &Metadata{resources: resources, objects: map[objectKey]*metav1.PartialObjectMetadata{}}
}

// IsWatchListSemanticsUnSupported says that lists are not streamed.
func (m *Metadata) IsWatchListSemanticsUnSupported() bool { return true }

// Put creates an object and returns it with uid and resourceVersion.
func (m *Metadata) Put(resource schema.GroupVersionResource,
	object metav1.ObjectMeta,
) *metav1.PartialObjectMetadata {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := &metav1.PartialObjectMetadata{ObjectMeta: object}
	if o.UID == "" {
		o.UID = types.UID(fmt.Sprintf("%s-%d", o.Name, m.revision+1))
	}
	m.store(watch.Added, objectKey{resource.GroupResource(), o.Namespace, o.Name}, o)
	return o.DeepCopy()
}

// Names returns "resource ns/name" of all objects, sorted.
func (m *Metadata) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for key := range m.objects {
		names = append(names, key.resource.String()+" "+strings.TrimPrefix(key.namespace+"/"+key.name, "/"))
	}
	slices.Sort(names)
	return names
}

// Object returns an object, or nil.
func (m *Metadata) Object(resource schema.GroupVersionResource,
	namespace, name string,
) *metav1.PartialObjectMetadata {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[objectKey{resource.GroupResource(), namespace, name}].DeepCopy()
}

// Requests returns the writes since the last call, as "delete configmaps ns/name".
func (m *Metadata) Requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	requests := m.requests
	m.requests = nil
	return requests
}

// FailDiscovery has the group version's discovery fail; a nil error has it work again.
func (m *Metadata) FailDiscovery(gv schema.GroupVersion, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing = map[schema.GroupVersion]error{}
	if err != nil {
		m.failing[gv] = err
	}
}

// AddResource has the server know one more resource.
func (m *Metadata) AddResource(r Resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resources = append(m.resources, r)
}

// RemoveResource has a resource and its objects vanish, and nobody is told: requests for it fail with
// 404, and discovery does not list it.
func (m *Metadata) RemoveResource(gvr schema.GroupVersionResource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resources = slices.DeleteFunc(m.resources, func(r Resource) bool { return r.GroupVersionResource == gvr })
	maps.DeleteFunc(m.objects, func(key objectKey, _ *metav1.PartialObjectMetadata) bool {
		return key.resource == gvr.GroupResource()
	})
}

// Resource is metadata.Interface's.
func (m *Metadata) Resource(resource schema.GroupVersionResource) metadata.Getter {
	return &access{server: m, resource: resource.GroupResource()}
}

// store keeps the object at a new revision and tells the watchers.
func (m *Metadata) store(event watch.EventType, key objectKey, o *metav1.PartialObjectMetadata) {
	m.revision++
	o.ResourceVersion = strconv.Itoa(m.revision)
	if event == watch.Deleted {
		delete(m.objects, key)
	} else {
		m.objects[key] = o
	}
	m.log = append(m.log, logged{key, m.revision, watch.Event{Type: event, Object: o.DeepCopy()}})
	for _, s := range m.streams {
		s.wake()
	}
}

// admit notes a request, and refuses it if the test wants that.
func (m *Metadata) admit(verb string, key objectKey) error {
	request := fmt.Sprintf("%s %s %s", verb, key.resource,
		strings.TrimPrefix(key.namespace+"/"+key.name, "/"))
	if m.Before != nil {
		if err := m.Before(request); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if verb == "delete" || verb == "patch" || verb == "deletecollection" {
		m.requests = append(m.requests, request)
	}
	if !slices.ContainsFunc(m.resources, func(r Resource) bool { return r.GroupResource() == key.resource }) {
		return apierrors.NewNotFound(key.resource, key.name)
	}
	return nil
}

// find returns a copy of an object.
func (m *Metadata) find(key objectKey) (*metav1.PartialObjectMetadata, error) {
	if o := m.objects[key]; o != nil {
		return o.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(key.resource, key.name)
}

// erase deletes an object as the options say: it goes at once, or waits for its finalizers.
func (m *Metadata) erase(key objectKey, opts metav1.DeleteOptions) error {
	o, err := m.find(key)
	if err != nil {
		return err
	}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != o.UID ||
			p.ResourceVersion != nil && *p.ResourceVersion != o.ResourceVersion {
			return apierrors.NewConflict(key.resource, key.name,
				fmt.Errorf("it is not as the precondition says"))
		}
	}
	switch ptr.Deref(opts.PropagationPolicy, metav1.DeletePropagationBackground) {
	case metav1.DeletePropagationForeground:
		addFinalizer(o, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationOrphan:
		addFinalizer(o, metav1.FinalizerOrphanDependents)
	}
	if len(o.Finalizers) == 0 {
		m.store(watch.Deleted, key, o)
		return nil
	}
	if o.DeletionTimestamp == nil {
		o.DeletionTimestamp = &metav1.Time{Time: Start}
	}
	m.store(watch.Modified, key, o)
	return nil
}

func addFinalizer(o *metav1.PartialObjectMetadata, finalizer string) {
	if !slices.Contains(o.Finalizers, finalizer) {
		o.Finalizers = append(o.Finalizers, finalizer)
	}
}

// access is the server's interface for one resource, in one namespace or in all.
type access struct {
	server    *Metadata
	resource  schema.GroupResource
	namespace string
}

func (a *access) Namespace(namespace string) metadata.ResourceInterface {
	return &access{server: a.server, resource: a.resource, namespace: namespace}
}

func (a *access) key(name string) objectKey { return objectKey{a.resource, a.namespace, name} }

func (a *access) Get(_ context.Context, name string, _ metav1.GetOptions,
	_ ...string,
) (*metav1.PartialObjectMetadata, error) {
	if err := a.server.admit("get", a.key(name)); err != nil {
		return nil, err
	}
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	return a.server.find(a.key(name))
}

// List lists in pages, all of them as of the revision of the first.
func (a *access) List(_ context.Context,
	opts metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	if err := a.server.admit("list", a.key("")); err != nil {
		return nil, err
	}
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	revision, last := strconv.Itoa(a.server.revision), ""
	if opts.Continue != "" {
		revision, last, _ = strings.Cut(opts.Continue, " ")
	}
	asOf, err := strconv.Atoi(revision)
	if err != nil {
		return nil, apierrors.NewBadRequest("continue: " + err.Error())
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: revision}}
	objects := a.server.asOf(asOf)
	for _, key := range a.keys(objects) {
		if key.String() <= last {
			continue
		}
		if opts.Limit > 0 && int64(len(list.Items)) == opts.Limit {
			at := list.Items[opts.Limit-1]
			list.Continue = revision + " " + objectKey{a.resource, at.Namespace, at.Name}.String()
			break
		}
		list.Items = append(list.Items, *objects[key].DeepCopy())
	}
	return list, nil
}

// asOf returns the objects that there were at a revision.
func (m *Metadata) asOf(revision int) map[objectKey]*metav1.PartialObjectMetadata {
	if revision == m.revision {
		return m.objects
	}
	objects := map[objectKey]*metav1.PartialObjectMetadata{}
	for _, change := range m.log {
		switch {
		case change.revision > revision:
		case change.event.Type == watch.Deleted:
			delete(objects, change.key)
		default:
			objects[change.key] = change.event.Object.(*metav1.PartialObjectMetadata)
		}
	}
	return objects
}

// keys returns those of the objects that are accessed, sorted.
func (a *access) keys(objects map[objectKey]*metav1.PartialObjectMetadata) []objectKey {
	var keys []objectKey
	for key := range objects {
		if key.resource == a.resource && (a.namespace == "" || key.namespace == a.namespace) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b objectKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

func (a *access) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := a.server.admit("watch", a.key("")); err != nil {
		return nil, err
	}
	from, err := strconv.Atoi(opts.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest("resourceVersion: " + err.Error())
	}
	s := &stream{access: a, results: make(chan watch.Event), changed: make(chan struct{}, 1),
		stopped: make(chan struct{})}
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	a.server.streams = append(a.server.streams, s)
	go s.run(from)
	return s, nil
}

func (a *access) Delete(_ context.Context, name string, opts metav1.DeleteOptions, _ ...string) error {
	if err := a.server.admit("delete", a.key(name)); err != nil {
		return err
	}
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	return a.server.erase(a.key(name), opts)
}

func (a *access) DeleteCollection(_ context.Context, opts metav1.DeleteOptions,
	_ metav1.ListOptions,
) error {
	if err := a.server.admit("deletecollection", a.key("")); err != nil {
		return err
	}
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	for _, key := range a.keys(a.server.objects) {
		if err := a.server.erase(key, opts); err != nil {
			return err
		}
	}
	return nil
}

// Patch takes merge patches of finalizers and ownerReferences, with uid and resourceVersion as
// preconditions. An object that is being deleted goes with its last finalizer.
func (a *access) Patch(_ context.Context, name string, _ types.PatchType, data []byte,
	_ metav1.PatchOptions, _ ...string,
) (*metav1.PartialObjectMetadata, error) {
	if err := a.server.admit("patch", a.key(name)); err != nil {
		return nil, err
	}
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	o, err := a.server.find(a.key(name))
	if err != nil {
		return nil, err
	}
	var body struct{ Metadata map[string]json.RawMessage }
	var asked metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := json.Unmarshal(data, &asked); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if asked.UID != "" && asked.UID != o.UID ||
		asked.ResourceVersion != "" && asked.ResourceVersion != o.ResourceVersion {
		return nil, apierrors.NewConflict(a.resource, name, fmt.Errorf("it is not as the patch says"))
	}
	if _, ok := body.Metadata["finalizers"]; ok {
		o.Finalizers = asked.Finalizers
	}
	if _, ok := body.Metadata["ownerReferences"]; ok {
		o.OwnerReferences = asked.OwnerReferences
	}
	event := watch.Modified
	if o.DeletionTimestamp != nil && len(o.Finalizers) == 0 {
		event = watch.Deleted
	}
	a.server.store(event, a.key(name), o)
	return o.DeepCopy(), nil
}

// ServerGroupsAndResources answers discovery.
func (m *Metadata) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lists := map[string]*metav1.APIResourceList{}
	groups := map[string]*metav1.APIGroup{}
	for _, r := range m.resources {
		if m.failing[r.GroupVersion()] != nil {
			continue
		}
		version := r.GroupVersion().String()
		if lists[version] == nil {
			lists[version] = &metav1.APIResourceList{GroupVersion: version}
			served := metav1.GroupVersionForDiscovery{GroupVersion: version, Version: r.Version}
			groups[r.Group] = &metav1.APIGroup{Name: r.Group,
				Versions: []metav1.GroupVersionForDiscovery{served}, PreferredVersion: served}
		}
		lists[version].APIResources = append(lists[version].APIResources, metav1.APIResource{
			Name: r.Resource, Kind: r.Kind, Namespaced: r.Namespaced,
			Verbs: []string{"create", "delete", "deletecollection", "get", "list", "patch",
				"update", "watch"},
		})
	}
	var err error
	if len(m.failing) > 0 {
		err = &discovery.ErrGroupDiscoveryFailed{Groups: maps.Clone(m.failing)}
	}
	return slices.Collect(maps.Values(groups)), slices.Collect(maps.Values(lists)), err
}

// ServerPreferredNamespacedResources answers discovery.
func (m *Metadata) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	_, lists, err := m.ServerGroupsAndResources()
	return lists, err
}
