package apiserver

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// request is an HTTP request and what is found out about it on its way. It belongs to one
// goroutine.
type request struct {
	http  *http.Request
	query url.Values
	kinds *kinds.Set // the set in force when the request arrived

	// Set by parse. verb is the API's: "get", "list", "watch", "create", "update", "patch",
	// "delete", "deletecollection", or the method in lower case for a path that is no resource.
	verb                                  string
	group, version, resource, subresource string
	namespace, name                       string
	extra                                 []string // segments behind the subresource
	behind                                string   // what is behind "…/proxy", as it was sent
	history                               bool     // asked is what happened, see HistoryPath

	user *authn.User // set by authenticate, changed by impersonate
	kind *kinds.Kind // set by route

	fence *fence // of a write, nil if it has none
	batch *batch // that a write becomes part of, nil for one by itself
}

// isResource says whether the path is that of an object, a collection or a subresource.
func (r *request) isResource() bool { return r.resource != "" }

// parse reads the path and the method: /api/VERSION/… for the core group, /apis/GROUP/VERSION/…
// for others, then optionally namespaces/NAMESPACE, then RESOURCE/NAME/SUBRESOURCE/….
func (r *request) parse() error {
	r.verb = strings.ToLower(r.http.Method)
	if r.http.Method == http.MethodHead {
		r.verb = "get"
	}
	escaped, behind := cutProxied(r.http.URL.EscapedPath())
	r.behind = behind
	segments, err := splitPath(escaped)
	if err != nil {
		return err
	}
	if len(segments) > 3 && slices.Equal(segments[:3], historySegments) {
		if r.history, segments = true, segments[3:]; r.http.Method != http.MethodGet {
			return errMethod()
		}
	}
	switch {
	case len(segments) >= 3 && segments[0] == "api":
		r.version, segments = segments[1], segments[2:]
	case len(segments) >= 4 && segments[0] == "apis":
		r.group, r.version, segments = segments[1], segments[2], segments[3:]
	default:
		return nil
	}
	watching := segments[0] == "watch" && len(segments) > 1
	if watching {
		segments = segments[1:]
		if r.http.Method != http.MethodGet {
			return errMethod()
		}
	}
	r.parseResource(segments)
	if err := r.checkNames(); err != nil {
		return err
	}
	r.verb = r.resourceVerb(watching)
	return nil
}

// splitPath returns the unescaped segments. An escaped slash stays inside its segment, where no
// name can have it: a path never reaches an object that it does not spell out.
func splitPath(escaped string) ([]string, error) {
	segments := strings.Split(strings.Trim(escaped, "/"), "/")
	for i, segment := range segments {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if plain == "" && len(segments) > 1 {
			return nil, errNotServed()
		}
		segments[i] = plain
	}
	return segments, nil
}

// cutProxied cuts off what is behind the subresource proxy: a path of somebody else's server, which
// may look like anything. Only what the core group has is proxied.
func cutProxied(escaped string) (path, behind string) {
	rest, ok := strings.CutPrefix(escaped, "/api/v1/")
	if !ok {
		return escaped, ""
	}
	skip := 2 // RESOURCE/NAME
	if strings.HasPrefix(rest, "namespaces/") {
		skip = 4
	}
	at := len(escaped) - len(rest)
	for range skip {
		i := strings.IndexByte(escaped[at:], '/')
		if i < 0 {
			return escaped, ""
		}
		at += i + 1
	}
	if behind, ok := strings.CutPrefix(escaped[at:], "proxy"); ok && (behind == "" || behind[0] == '/') {
		return escaped[:at] + "proxy", behind
	}
	return escaped, ""
}

// proxied says whether the request is for somebody else's server.
func (r *request) proxied() bool { return r.subresource == "proxy" && len(r.extra) == 0 }

func (r *request) parseResource(segments []string) {
	if segments[0] == "namespaces" && len(segments) > 1 {
		r.namespace = segments[1]
		own := len(segments) == 2 || segments[2] == "status" || segments[2] == "finalize"
		if !own {
			segments = segments[2:]
		}
	}
	r.resource = segments[0]
	if len(segments) > 1 {
		r.name = segments[1]
	}
	if len(segments) > 2 {
		r.subresource, r.extra = segments[2], segments[3:]
	}
	if r.resource == "namespaces" {
		r.namespace = r.name
	}
}

// checkNames refuses names that cannot be path segments, so that none ever becomes part of a key.
func (r *request) checkNames() error {
	for _, name := range []string{r.namespace, r.name} {
		if strings.Contains(name, "/") {
			return errNotServed()
		}
		if msgs := content.IsPathSegmentName(name); len(msgs) > 0 {
			return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", name, strings.Join(msgs, ", ")))
		}
	}
	return nil
}

// resourceVerb is the API's verb for the method. A list that selects one name is authorized with
// that name.
func (r *request) resourceVerb(watching bool) string {
	switch r.http.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if r.name == "" {
			return "deletecollection"
		}
		return "delete"
	case http.MethodGet, http.MethodHead:
	default:
		return strings.ToLower(r.http.Method)
	}
	switch {
	case watching || r.name == "" && boolParam(r.query, "watch"):
		watching = true
	case r.name != "":
		return "get"
	}
	if r.name == "" {
		r.selectName()
	}
	if watching {
		return "watch"
	}
	return "list"
}

func (r *request) selectName() {
	text := r.query.Get("fieldSelector")
	if text == "" {
		return
	}
	if sel, err := fields.ParseSelector(text); err == nil {
		if name, ok := sel.RequiresExactMatch("metadata.name"); ok && len(content.IsPathSegmentName(name)) == 0 {
			r.name = name
		}
	}
}

// boolParam reads a flag as the API does: only absence, "0" and "false" are false.
func boolParam(query url.Values, name string) bool {
	values, ok := query[name]
	return ok && len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// misplaced says whether the path has a namespace that the kind has not, or the other way round.
func (r *request) misplaced() bool {
	if r.kind.Namespaced {
		one := r.name != "" && r.verb != "list" && r.verb != "watch"
		return one && r.namespace == ""
	}
	return r.namespace != "" && r.resource != "namespaces"
}

// wellFormed says whether the verb fits the path: create wants a collection, or a subresource;
// update and patch want a name; nothing but named subresources has segments behind them.
func (r *request) wellFormed() bool {
	if r.http.Method == http.MethodHead || r.http.Method == http.MethodOptions || len(r.extra) > 0 {
		return false
	}
	switch r.verb {
	case "create":
		return r.subresource != "" || r.name == "" && (r.namespace != "" || !r.kind.Namespaced)
	case "update", "patch":
		return r.name != ""
	case "deletecollection":
		return r.namespace != "" || !r.kind.Namespaced
	}
	return true
}

// key is the store's key of the object that the request names.
func (r *request) key() store.Key { return keyOf(r.kind, r.namespace, r.name) }

// keyOf returns the store's key of an object. The namespace of a kind without namespaces is not
// looked at.
func keyOf(k *kinds.Kind, namespace, name string) store.Key {
	key := store.Key{Resource: storageResource(k), Path: name}
	if k.Namespaced {
		key.Path = namespace + "/" + name
	}
	return key
}

// prefix is what the paths of the request's collection begin with.
func (r *request) prefix() string {
	if !r.kind.Namespaced || r.namespace == "" {
		return ""
	}
	return r.namespace + "/"
}

// watchPrefix is prefix, narrowed to one name if the request selects one.
func (r *request) watchPrefix() string {
	if r.kind.Namespaced && r.namespace == "" {
		return ""
	}
	return r.prefix() + r.name
}

// splitKey returns the namespace and the name that a key says.
func splitKey(k *kinds.Kind, key store.Key) (namespace, name string) {
	if !k.Namespaced {
		return "", key.Path
	}
	namespace, name, _ = strings.Cut(key.Path, "/")
	return namespace, name
}

// storageResource is the resource under which a kind's objects are kept.
func storageResource(k *kinds.Kind) string {
	if k.Storage == nil {
		return k.GroupResource().String()
	}
	if k.Storage.Group == "" {
		return k.Storage.Resource
	}
	return k.Storage.Resource + "." + k.Storage.Group
}

// hasSubresource says whether a kind has the subresource; "" is the object itself.
func hasSubresource(k *kinds.Kind, name string) bool {
	switch name {
	case "":
		return true
	case "status":
		return k.Status
	case "scale":
		return k.Scale != nil
	}
	return slices.ContainsFunc(k.Subresources, func(s kinds.Subresource) bool { return s.Name == name })
}

// verbs are what can be done with a kind's objects.
func verbs(k *kinds.Kind) []string {
	if k.Verbs != nil {
		return k.Verbs
	}
	return kinds.AllVerbs
}
