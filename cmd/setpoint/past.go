package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/setpoint-dev/setpoint/apiserver"
)

// past asks a server what happened.
type past struct {
	client    *rest.RESTClient
	discovery discovery.CachedDiscoveryInterface
}

func newPast(a *access) (*past, error) {
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	return &past{client, memory.NewMemCacheClient(discovery.NewDiscoveryClient(client))}, nil
}

// target is an object, or a collection if it has no name.
type target struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// path is where the API has it.
func (t target) path() string {
	path := []string{"", "apis", t.resource.Group, t.resource.Version}
	if t.resource.Group == "" {
		path = []string{"", "api", t.resource.Version}
	}
	if t.namespace != "" {
		path = append(path, "namespaces", t.namespace)
	}
	path = append(path, t.resource.Resource)
	if t.name != "" {
		path = append(path, t.name)
	}
	return strings.Join(path, "/")
}

// String is what people call an object.
func (t target) String() string {
	called := t.resource.GroupResource().String() + "/" + t.name
	if t.namespace != "" {
		return t.namespace + "/" + called
	}
	return called
}

// find returns the objects that arguments KIND/NAME mean. A kind is named as for kubectl: as Kind or
// resource, singular or plural or short, with a version and a group or without.
func (p *past) find(args []string, namespace string) ([]target, error) {
	groups, err := restmapper.GetAPIGroupResources(p.discovery)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), p.discovery, nil)
	var found []target
	for _, arg := range args {
		kind, name, ok := strings.Cut(arg, "/")
		if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("%q: want KIND/NAME, such as deployment/web", arg)
		}
		mapping, err := mappingOf(mapper, kind)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", arg, err)
		}
		if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			found = append(found, target{resource: mapping.Resource, name: name})
		} else {
			found = append(found, target{mapping.Resource, namespace, name})
		}
	}
	return found, nil
}

// mappingOf looks a kind up by what people call it.
func mappingOf(mapper meta.RESTMapper, text string) (*meta.RESTMapping, error) {
	versioned, resource := schema.ParseResourceArg(text)
	if versioned == nil {
		versioned = &schema.GroupVersionResource{}
	}
	kind, _ := mapper.KindFor(*versioned)
	if kind.Empty() {
		kind, _ = mapper.KindFor(resource.WithVersion(""))
	}
	if kind.Empty() {
		gvk, gk := schema.ParseKindArg(text)
		if gvk != nil {
			if mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err == nil {
				return mapping, nil
			}
		}
		mapping, err := mapper.RESTMapping(gk)
		if err != nil {
			return nil, fmt.Errorf("the server has no kind %q; kubectl api-resources lists those it has", text)
		}
		return mapping, nil
	}
	return mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

// all returns all collections, in the order of their paths: those of a namespace, or everything if it is "".
func (p *past) all(namespace string) ([]target, error) {
	lists, err := p.discovery.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var found []target
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "watch") || strings.Contains(r.Name, "/") || namespace != "" && !r.Namespaced {
				continue // what cannot be watched is not stored
			}
			found = append(found, target{resource: gv.WithResource(r.Name), namespace: namespace})
		}
	}
	slices.SortFunc(found, func(a, b target) int { return strings.Compare(a.path(), b.path()) })
	return found, nil
}

// event is one thing that happened.
type event struct {
	Revision string         `json:"revision"`
	Type     string         `json:"type"`
	Origin   origin         `json:"origin"`
	Object   map[string]any `json:"object"`
	Previous map[string]any `json:"previous"`
}

// origin is who did it.
type origin struct {
	User        string `json:"user"`
	Manager     string `json:"manager"`
	Verb        string `json:"verb"`
	Subresource string `json:"subresource"`
	Time        string `json:"time"`
}

// of returns which object of a target's collection it happened to, and its uid.
func (e *event) of(t target) (object target, uid string) {
	state := e.Object
	if state == nil {
		state = e.Previous
	}
	metadata, _ := state["metadata"].(map[string]any)
	t.namespace, _ = metadata["namespace"].(string)
	t.name, _ = metadata["name"].(string)
	uid, _ = metadata["uid"].(string)
	return t, uid
}

// after is the object after the event, nil if it was deleted.
func (e *event) after() map[string]any {
	if e.Type == "DELETED" {
		return nil
	}
	return e.Object
}

// who is a user, and the manager in whose name it wrote.
func (o origin) who() string {
	switch {
	case o.User == "":
		return "-"
	case o.Manager == "":
		return o.User
	}
	return o.User + " (" + o.Manager + ")"
}

// page is an answer of the server: its events, and the revision up to which they are all.
type page struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Oldest          string `json:"oldest"`
		More            bool   `json:"more"`
	} `json:"metadata"`
	Items []event `json:"items"`
}

// span is what of the history is asked for: what happened after one revision, up to another. An end
// that is "" is that of what is kept.
type span struct{ from, to string }

// read calls see with what happened to a target, oldest first, and returns the span that it has read.
func (p *past) read(ctx context.Context, t target, asked span, see func(*event)) (covered span, err error) {
	for covered, from := asked, asked.from; ; {
		answer, err := p.page(ctx, t, from, asked.to)
		if err != nil {
			return span{}, err
		}
		for i := range answer.Items {
			see(&answer.Items[i])
		}
		if covered.from == "" {
			covered.from = answer.Metadata.Oldest
		}
		from = answer.Metadata.ResourceVersion
		if covered.to = from; !answer.Metadata.More {
			return covered, nil
		}
	}
}

func (p *past) page(ctx context.Context, t target, from, to string) (answer page, err error) {
	// A revision that has not happened is answered with 504; nobody waits for it.
	request := p.client.Get().AbsPath(apiserver.HistoryPath+t.path()).Param("previous", "true").MaxRetries(0)
	if from != "" {
		request = request.Param("from", from)
	}
	if to != "" {
		request = request.Param("to", to)
	}
	result := request.WarningHandler(rest.NoWarnings{}).Do(ctx) // deprecated kinds have a past, too
	switch err := result.Error(); {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return answer, p.forgotten(ctx, t, from)
	case err != nil:
		return answer, err
	}
	data, err := result.Raw()
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return answer, fmt.Errorf("the server's answer: %w", err)
	}
	return answer, nil
}

// forgotten is the error for a revision that is too old.
func (p *past) forgotten(ctx context.Context, t target, from string) error {
	if from == "" {
		return errors.New("the server forgets its history faster than it can be read; see the flags --history and --history-bytes of setpoint up")
	}
	kept, err := p.page(ctx, t, "", "")
	if err != nil {
		return err
	}
	return fmt.Errorf("revision %s is forgotten: the server remembers what happened after revision %s; "+
		"the flags --history and --history-bytes of setpoint up make it remember more", from, kept.Metadata.Oldest)
}

// existed is an error if an object was not there at a revision.
func (p *past) existed(ctx context.Context, t target, revision string) error {
	err := p.client.Get().AbsPath(t.path()).
		Param("resourceVersion", revision).Param("resourceVersionMatch", "Exact").Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("at revision %s: %w", revision, err)
	}
	return nil
}
