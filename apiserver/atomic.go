package apiserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// AtomicPath is where a POST makes several changes in one revision, or none:
//
//	{"operations":[
//	  {"verb":"create","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}},
//	  {"verb":"apply","object":{"apiVersion":"apps/v1","kind":"Deployment", …}},
//	  {"verb":"delete","object":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"old"}}}]}
//
// Verbs are create, update, apply and delete. Each operation is authorized, admitted and validated
// as if it came by itself, and sees what those before it did; the request as a whole takes the
// right to post to the path. The query is that of the single requests: dryRun, fieldManager,
// fieldValidation and force. A delete is of the object of the given uid and resourceVersion, where
// they are given. The answer is a List of the objects as they are then, in the order of the
// operations, of deleted ones their last state; its resourceVersion is that of the change. An error
// names the operation, and has the Status that it alone would have.
const AtomicPath = "/setpoint.dev/v1/atomic"

// operationsMax bounds a request; an object of the least size in each would fill the body.
const operationsMax = 1000

type atomicOperation struct {
	Verb   string          `json:"verb"`
	Object json.RawMessage `json:"object"`

	// What the object says of itself.
	head metav1.PartialObjectMetadata
}

func (o *atomicOperation) String() string {
	name := o.head.Name
	if o.head.Namespace != "" {
		name = o.head.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s %s", o.Verb, o.head.Kind, name)
}

// atomic answers POST of AtomicPath.
func (s *Server) atomic(w http.ResponseWriter, r *request) error {
	if r.http.Method != http.MethodPost {
		return errMethod()
	}
	for _, value := range r.query["dryRun"] {
		if value != metav1.DryRunAll {
			return apierrors.NewBadRequest(fmt.Sprintf("dryRun: found %q, want All", value))
		}
	}
	operations, err := readOperations(r)
	if err != nil {
		return err
	}
	for {
		b, err := s.newBatch(r)
		if err != nil {
			return err
		}
		answers, err := s.stageAll(w, r, b, operations)
		if err != nil {
			return err
		}
		list, err := s.finish(r, b, answers)
		var conflict *store.ConflictError
		if errors.As(err, &conflict) {
			continue // something got in between: from the beginning, on what is there now
		}
		if err != nil {
			return err
		}
		return s.respondJSON(w, r, http.StatusOK, list)
	}
}

func readOperations(r *request) ([]*atomicOperation, error) {
	data, err := readBody(r)
	if err != nil {
		return nil, err
	}
	var body struct {
		Operations []*atomicOperation `json:"operations"`
	}
	if err := yaml.Unmarshal(data, &body); err != nil {
		return nil, apierrors.NewBadRequest("the body is not a list of operations: " + err.Error())
	}
	if n := len(body.Operations); n == 0 || n > operationsMax {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("operations: found %d, want 1 to %d", n, operationsMax))
	}
	for i, o := range body.Operations {
		if o == nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("operations[%d]: must be given", i))
		}
		if err := json.Unmarshal(o.Object, &o.head); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("operations[%d].object: %v", i, err))
		}
	}
	return body.Operations, nil
}

// stageAll has each operation go the way of a single request, up to the commit, which goes into
// the batch.
func (s *Server) stageAll(w http.ResponseWriter, r *request, b *batch, operations []*atomicOperation) ([]*atomicAnswer, error) {
	answers := make([]*atomicAnswer, len(operations))
	for i, o := range operations {
		a, err := s.stageOne(w, r, b, o)
		if err != nil {
			return nil, ofOperation(i, o, err)
		}
		answers[i] = a
	}
	return answers, nil
}

// ofOperation says which operation an error is of.
func ofOperation(i int, o *atomicOperation, err error) error {
	s := *asStatus(err)
	s.ErrStatus.Message = fmt.Sprintf("operations[%d] (%v): %s", i, o, s.ErrStatus.Message)
	return &s
}

// atomicAnswer is what a single request would have been answered.
type atomicAnswer struct {
	request *request
	key     store.Key
	header  http.Header
	code    int
	body    bytes.Buffer
}

func (a *atomicAnswer) Header() http.Header         { return a.header }
func (a *atomicAnswer) WriteHeader(code int)        { a.code = code }
func (a *atomicAnswer) Write(p []byte) (int, error) { return a.body.Write(p) }

func (s *Server) stageOne(w http.ResponseWriter, r *request, b *batch, o *atomicOperation) (*atomicAnswer, error) {
	hr, err := o.request(r)
	if err != nil {
		return nil, err
	}
	a := &atomicAnswer{header: http.Header{}}
	one := &request{http: hr, query: hr.URL.Query(), kinds: r.kinds, user: r.user, fence: r.fence, batch: b}
	if err := one.parse(); err != nil {
		return nil, err
	}
	if err := s.authorize(one); err != nil {
		return nil, err
	}
	handle, err := s.route(one)
	if err != nil {
		return nil, err
	}
	b.last = store.Key{}
	if err := handle(s, a, one); err != nil {
		return nil, err
	}
	for _, text := range a.header.Values("Warning") {
		w.Header().Add("Warning", text)
	}
	a.request, a.key = one, cmp.Or(b.last, one.key())
	return a, nil
}

// request is the operation as a request of its own. Possible errors: 400 for what names nothing.
func (o *atomicOperation) request(r *request) (*http.Request, error) {
	gv, err := schema.ParseGroupVersion(o.head.APIVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest("apiVersion: " + err.Error())
	}
	k := r.kinds.Kind(gv.WithKind(o.head.Kind))
	if k == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("there is no kind %q in apiVersion %q", o.head.Kind, o.head.APIVersion))
	}
	path := collectionPath(k, o.head.Namespace)
	if o.Verb != "create" {
		if o.head.Name == "" {
			return nil, apierrors.NewBadRequest("metadata.name: must be given")
		}
		path += "/" + url.PathEscape(o.head.Name)
	}
	query, body, contentType := url.Values{}, []byte(o.Object), jsonType
	for _, name := range []string{"fieldManager", "fieldValidation", "force"} {
		if r.query.Has(name) && (name != "force" || o.Verb == "apply") {
			query[name] = r.query[name]
		}
	}
	method, ok := map[string]string{
		"create": http.MethodPost, "update": http.MethodPut, "apply": http.MethodPatch, "delete": http.MethodDelete,
	}[o.Verb]
	switch o.Verb {
	case "apply":
		contentType = string(types.ApplyYAMLPatchType)
	case "delete":
		query, body = url.Values{}, o.preconditions()
	}
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("verb: found %q, want create, update, apply or delete", o.Verb))
	}
	hr, err := http.NewRequestWithContext(r.http.Context(), method, path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	hr.Header.Set("Content-Type", contentType)
	hr.Header.Set("User-Agent", r.http.UserAgent())
	return hr, nil
}

func collectionPath(k *kinds.Kind, namespace string) string {
	path := "/apis/" + k.Group + "/" + k.Version
	if k.Group == "" {
		path = "/api/" + k.Version
	}
	if k.Namespaced {
		path += "/namespaces/" + url.PathEscape(cmp.Or(namespace, metav1.NamespaceDefault))
	}
	return path + "/" + k.Resource
}

// preconditions are the options of a delete of the very object.
func (o *atomicOperation) preconditions() []byte {
	var options metav1.DeleteOptions
	if uid, revision := o.head.UID, o.head.ResourceVersion; uid != "" || revision != "" {
		options.Preconditions = &metav1.Preconditions{}
		if uid != "" {
			options.Preconditions.UID = &uid
		}
		if revision != "" {
			options.Preconditions.ResourceVersion = &revision
		}
	}
	data, _ := json.Marshal(options) // it always has a form
	return data
}

// atomicList is the answer.
type atomicList struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta   `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

// finish commits the batch, and returns the answer. Possible errors: *store.ConflictError, and what
// storeError makes.
func (s *Server) finish(r *request, b *batch, answers []*atomicAnswer) (*atomicList, error) {
	list := &atomicList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []json.RawMessage{}}
	if r.query.Has("dryRun") {
		for _, a := range answers {
			list.Items = append(list.Items, bytes.TrimSpace(a.body.Bytes()))
		}
		return list, nil
	}
	revision, entries, err := b.commit(r.http.Context())
	if err != nil {
		return nil, err
	}
	list.Metadata.ResourceVersion = revisionText(revision)
	media := mediaType{}
	for _, a := range answers {
		item := bytes.TrimSpace(a.body.Bytes())
		if e := entries[a.key]; e != nil {
			if item, err = s.render(media, a.request, e.Value); err != nil {
				return nil, err
			}
		}
		list.Items = append(list.Items, bytes.TrimSpace(item))
	}
	return list, nil
}
