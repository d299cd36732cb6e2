package apiserver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// The property tests make so many objects of each kind, or SETPOINT_PROPERTIES: sixty take two cores
// about a minute with the race detector. They are always the same ones; SETPOINT_SEED makes others, as
// make torture does with two hundred.
const propertiesUsually = 60

func properties(t *testing.T) (each int, seed uint64) {
	t.Helper()
	each, seed = propertiesUsually, 1
	for name, set := range map[string]func(uint64){
		"SETPOINT_PROPERTIES": func(n uint64) { each = int(n) },
		"SETPOINT_SEED":       func(n uint64) { seed = n },
	} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 63)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			set(n)
		}
	}
	t.Logf("SETPOINT_SEED=%d", seed)
	return each, seed
}

// TestEveryKindSurvives makes random objects of every kind, and has each created, read, updated,
// applied and watched, in JSON and in protobuf: nothing is lost on the way, and nothing changed.
func TestEveryKindSurvives(t *testing.T) {
	each, seed := properties(t)
	everyKind(t, func(t *testing.T, c *collection) {
		g := c.generator(seed)
		for i := range each {
			obj := c.valid(t, g, i)
			c.survives(t, obj, i%2 == 1)
			if t.Failed() {
				text, _ := json.Marshal(obj)
				t.Fatalf("object %d: %s", i, text)
			}
		}
	})
}

// collection is where the objects of a kind are.
type collection struct {
	*site
	kind  *kinds.Kind
	path  string
	seeds []kinds.Object // valid ones
}

// everyKind runs a test for each kind of which objects can be made, on a server of its own.
func everyKind(t *testing.T, test func(t *testing.T, c *collection)) {
	count := 0
	for _, k := range builtin.All() {
		if k.Verbs != nil && !slices.Contains(k.Verbs, "create") {
			continue
		}
		count++
		t.Run(k.GVR().GroupResource().String(), func(t *testing.T) {
			t.Parallel()
			c := &collection{site: newSite(t), kind: k}
			c.path = "/apis/" + k.Group + "/" + k.Version
			if k.Group == "" {
				c.path = "/api/" + k.Version
			}
			if k.Namespaced {
				c.path += "/namespaces/default"
			}
			c.path += "/" + k.Resource
			c.plant(t)
			test(t, c)
		})
	}
	if count < 60 {
		t.Errorf("found only %d kinds", count)
	}
}

func (c *collection) generator(seed uint64) generator {
	h := fnv.New64()
	h.Write([]byte(c.path))
	return generator{rand.New(rand.NewPCG(seed, h.Sum64()))}
}

// plant finds the objects that the scripts of the kind create, and the server takes.
func (c *collection) plant(t *testing.T) {
	t.Helper()
	if c.kind.Kind == "CustomResourceDefinition" { // which has no script
		obj := asTree(t, []byte(definition(`{"type":"object","additionalProperties":{"type":"string"}}`)))
		obj["apiVersion"], obj["kind"] = c.kind.GVK().ToAPIVersionAndKind()
		c.seeds = []kinds.Object{obj}
		return
	}
	name := c.kind.GVR().GroupResource().String()
	archive, err := txtar.ParseFile(filepath.Join("..", "kinds", "builtin", "testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range archive.Files {
		if !strings.HasPrefix(file.Name, "create ") {
			continue
		}
		text, err := yaml.YAMLToJSON(file.Data)
		if err != nil {
			t.Fatal(err)
		}
		obj := asTree(t, text)
		if _, err := c.kind.Schema.Conform(obj); err != nil {
			continue
		}
		if tree.Str(obj, "metadata", "name") == "" {
			tree.Set(obj, "seed", "metadata", "name")
		}
		metadata := obj["metadata"].(map[string]any)
		for _, owned := range []string{"namespace", "uid", "generation", "resourceVersion", "creationTimestamp"} {
			delete(metadata, owned)
		}
		obj["apiVersion"], obj["kind"] = c.kind.GVK().GroupVersion().String(), c.kind.Kind
		delete(obj, "status")
		c.disown(obj)
		if code, _ := c.ask("POST", c.path+"?dryRun=All&fieldValidation=Strict", "", "", mustJSON(obj)); code == 201 {
			c.seeds = append(c.seeds, obj)
		}
	}
	if len(c.seeds) == 0 {
		t.Fatalf("the server takes no object of the scripts")
	}
}

// ask sends a request as an administrator does, and returns the answer as a tree.
func (c *collection) ask(method, path, accept, contentType string, body []byte) (int, kinds.Object) {
	c.t.Helper()
	code, text := c.raw(method, path, accept, contentType, body)
	return code, asTree(c.t, text)
}

func asTree(t testing.TB, text []byte) (obj kinds.Object) {
	t.Helper()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &obj); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return obj
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func (c *collection) raw(method, path, accept, contentType string, body []byte) (int, []byte) {
	c.t.Helper()
	admin := &authn.User{Name: "admin", Groups: []string{authn.Masters}}
	ctx := authn.WithUser(context.Background(), admin)
	req, err := http.NewRequestWithContext(ctx, method, "http://setpoint"+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	c.server.ServeHTTP(w, req)
	if w.Code >= 500 && !unreasoned(contentType, w.Body.Bytes()) {
		c.t.Errorf("%s %s: %d %s: %s", method, path, w.Code, w.Body.Bytes(), body)
	}
	return w.Code, w.Body.Bytes()
}

// unreasoned says that an answer of 500 is that to an apply of what is not of the type: Kubernetes' answer too.
func unreasoned(contentType string, answer []byte) bool {
	return contentType == apply && !bytes.Contains(answer, []byte(`"reason"`))
}

// valid makes an object that the server takes: a seed with more in it, as far as the rules allow.
func (c *collection) valid(t *testing.T, g generator, i int) kinds.Object {
	t.Helper()
	obj := tree.CopyMap(c.seeds[g.IntN(len(c.seeds))])
	g.decorate(obj)
	if c.kind.Kind == "Namespace" { // one that was deleted is there until a controller has cleaned it up
		tree.Set(obj, "ns-"+strconv.Itoa(i), "metadata", "name")
	}
	for range 4 {
		more := tree.CopyMap(obj)
		if path := g.graft(c.kind, more); path != "" && c.takes(t, c.disown(more), path) {
			obj = more
		}
	}
	return obj
}

// message is an object as a client sends it in protobuf.
func (c *collection) message(t *testing.T, obj kinds.Object) []byte {
	t.Helper()
	canonical := tree.CopyMap(obj)
	if _, err := c.kind.Schema.Conform(canonical); err != nil {
		t.Fatal(err)
	}
	text, _ := c.kind.Schema.Append(nil, canonical)
	raw, err := c.kind.Schema.AppendProto(nil, text)
	if err != nil {
		t.Fatal(err)
	}
	return compiled.AppendEnvelope(nil, tree.Str(obj, "apiVersion"), tree.Str(obj, "kind"), raw)
}

// survives sends an object through everything. It is created from protobuf, or from JSON.
func (c *collection) survives(t *testing.T, obj kinds.Object, asMessage bool) {
	t.Helper()
	from := strconv.FormatInt(int64(c.store.Revision()), 10)
	media, body := "", mustJSON(obj)
	if asMessage {
		media, body = protobufType, c.message(t, obj)
	}
	code, made := c.ask("POST", c.path+"?fieldManager=maker", "", media, body)
	if code != http.StatusCreated {
		t.Fatalf("create: %d %v", code, made)
	}
	c.complete(obj)
	for _, what := range lost("", inProtobuf(obj), made) {
		t.Errorf("create: %s", what)
	}
	one := c.path + "/" + tree.Str(made, "metadata", "name")
	_, got := c.ask("GET", one, "", "", nil)
	if c.kind.Kind == "CustomResourceDefinition" {
		made = got // its names were settled in a second step
	} else {
		same(t, "get", made, got)
		c.wasSeen(t, from, made)
	}
	_, message := c.raw("GET", one, protobufType, "", nil)
	c.sameMessage(t, "get", made, message)

	_, got = c.ask("PUT", one+"?fieldManager=maker", "", "", mustJSON(made))
	same(t, "an update that changes nothing", made, got)
	_, got = c.ask("PUT", one+"?fieldManager=maker", "", protobufType, message)
	same(t, "an update in protobuf that changes nothing", made, got)

	code, applied := c.ask("PATCH", one+"?fieldManager=applier&force=true", "", apply, mustJSON(obj))
	switch {
	case code == http.StatusOK:
		same(t, "apply", unmanaged(made), unmanaged(applied))
		_, again := c.ask("PATCH", one+"?fieldManager=applier&force=true", "", apply, mustJSON(obj))
		same(t, "apply again", applied, again)
	case !unappliable(tree.Str(applied, "message")):
		t.Fatalf("apply: %d %v", code, applied)
	}
	if len(tree.List(made, "metadata", "finalizers")) > 0 { // no controller runs that takes them away
		if code, answer := c.ask("PATCH", one, "", merge, []byte(`{"metadata":{"finalizers":null}}`)); code != http.StatusOK {
			t.Fatalf("without finalizers: %d %v", code, answer)
		}
	}
	if code, answer := c.ask("DELETE", one+"?gracePeriodSeconds=0&propagationPolicy=Background", "", "", nil); code != http.StatusOK {
		t.Fatalf("delete: %d %v", code, answer)
	}
}

// unappliable says that an object can be created and not applied, here and upstream: items of a list
// have the same key, or none; or a pod has matchLabelKeys, of which the server made expressions in a
// selector that is applied as a whole, and may not change.
func unappliable(message string) bool {
	_, changed, _ := strings.Cut(message, "; changed: ")
	for path := range strings.SplitSeq(changed, ", ") {
		if !strings.HasSuffix(path, ".labelSelector.matchExpressions") {
			changed = ""
		}
	}
	return changed != "" || strings.Contains(message, "duplicate entries") || strings.Contains(message, "omits key field")
}

func same(t *testing.T, what string, want, got kinds.Object) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

// unmanaged is an object but for who owns its fields.
func unmanaged(obj kinds.Object) kinds.Object {
	obj = tree.CopyMap(obj)
	metadata := obj["metadata"].(map[string]any)
	delete(metadata, "managedFields")
	delete(metadata, "resourceVersion")
	return obj
}

// goTypes knows the Go types of nearly all kinds.
var goTypes = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	return s
})

// sameMessage compares an object in protobuf with its tree: as its Go type, where that is known, and
// as our own reader has it.
func (c *collection) sameMessage(t *testing.T, what string, want kinds.Object, message []byte) {
	t.Helper()
	want = inProtobuf(want)
	apiVersion, kind, raw, err := compiled.Envelope(message)
	if err != nil {
		t.Fatalf("%s in protobuf: %v: %q", what, err, message)
	}
	decoded, err := c.kind.Schema.DecodeProto(raw)
	if err != nil {
		t.Fatalf("%s in protobuf: %v", what, err)
	}
	decoded.Object["apiVersion"], decoded.Object["kind"] = apiVersion, kind
	same(t, what+" in protobuf", want, decoded.Object)
	if !goTypes().Recognizes(c.kind.GVK()) {
		return
	}
	fromProto, _, err := protobufserializer.NewSerializer(goTypes(), goTypes()).Decode(message, nil, nil)
	if err != nil {
		t.Fatalf("%s in protobuf: %v", what, err)
	}
	fromJSON, err := goTypes().New(c.kind.GVK())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(mustJSON(want), fromJSON); err != nil {
		t.Fatal(err)
	}
	same(t, what+" as a typed object", asTree(t, mustJSON(fromJSON)), asTree(t, mustJSON(fromProto)))
}

// wasSeen reads the first event of watches from a revision on.
func (c *collection) wasSeen(t *testing.T, from string, made kinds.Object) {
	t.Helper()
	path := c.path + "?watch=1&resourceVersion=" + from + "&fieldSelector=metadata.name=" + tree.Str(made, "metadata", "name")
	c.open(t, path, "application/json", func(r io.Reader) {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := json.NewDecoder(r).Decode(&event); err != nil || event.Type != "ADDED" {
			t.Fatal(event.Type, err)
		}
		same(t, "watch", made, asTree(t, event.Object))
	})
	c.open(t, path, protobufType, func(r io.Reader) {
		var size [4]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(r, frame); err != nil {
			t.Fatal(err)
		}
		var event metav1.WatchEvent
		if err := event.Unmarshal(frame); err != nil || event.Type != "ADDED" {
			t.Fatal(event.Type, err)
		}
		c.sameMessage(t, "watch", made, event.Object.Raw)
	})
}

// open sends a GET and has its answer read.
func (c *collection) open(t *testing.T, path, accept string, read func(io.Reader)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://setpoint"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := c.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	read(resp.Body)
}

// serverOwns are the fields, by kind, of which the server and not the client says what they are, or
// that are not kept as they are sent. A server of Kubernetes does the same with each.
var serverOwns = map[string][]string{
	"CertificateSigningRequest": {"spec.username", "spec.uid", "spec.groups", "spec.extra"}, // who asks
	"CronJob":                   {"spec.jobTemplate.spec.scheduling"},                       // alpha, and off
	"Job":                       {"spec.scheduling"},                                        // the same
	"Lease":                     {"spec.strategy", "spec.preferredHolder"},                  // beta, and off
	"Secret":                    {"stringData"},                                             // goes into data
}

// podSpecs is where the kinds have a pod's spec.
var podSpecs = [][]string{
	{"spec"}, {"template", "spec"}, {"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"},
}

// disown takes out of an object what is the server's.
func (c *collection) disown(obj kinds.Object) kinds.Object {
	for _, path := range serverOwns[c.kind.Kind] {
		tree.Delete(obj, strings.Split(path, ".")...)
	}
	drop := func(when bool, path ...string) {
		if when {
			tree.Delete(obj, path...)
		}
	}
	for _, above := range podSpecs { // an old name for the account, in which the server repeats it
		drop(tree.Has(obj, slices.Concat(above, []string{"serviceAccountName"})...),
			slices.Concat(above, []string{"serviceAccount"})...)
	}
	switch spec := tree.Map(obj, "spec"); c.kind.Kind {
	case "Job": // which has an empty selector filled in
		drop(len(tree.Map(spec, "selector")) == 0, "spec", "selector")
	case "PersistentVolumeClaim":
		of := tree.Str(spec, "dataSource", "apiGroup") + "/" + tree.Str(spec, "dataSource", "kind")
		known := of == "/PersistentVolumeClaim" || of == "snapshot.storage.k8s.io/VolumeSnapshot"
		drop(!known && !tree.Has(spec, "dataSourceRef"), "spec", "dataSource")
		drop(tree.Has(spec, "dataSourceRef", "namespace"), "spec", "dataSourceRef") // alpha, and off
	case "Node": // of which one range of addresses replaces a list that begins otherwise
		drop(tree.Has(spec, "podCIDR"), "spec", "podCIDRs")
	case "Pod": // of which a negative grace period is 1
		grace, _ := spec["terminationGracePeriodSeconds"].(int64)
		drop(grace < 0, "spec", "terminationGracePeriodSeconds")
	case "ServiceAccount": // of whose secrets only the names are kept
		for _, secret := range tree.Maps(obj, "secrets") {
			maps.DeleteFunc(secret, func(key string, _ any) bool { return key != "name" })
		}
	case "Service": // which has no policy for an external name, and nothing on affinity without it
		drop(tree.Str(spec, "sessionAffinity") != "ClientIP", "spec", "sessionAffinityConfig")
		drop(spec["type"] == "ExternalName", "spec", "internalTrafficPolicy")
	}
	return obj
}

// complete adds what the server adds to lists of an object that is created, or leaves it to the server.
func (c *collection) complete(obj kinds.Object) {
	add := func(item any, path ...string) {
		list, _ := tree.Get(obj, path...).([]any)
		if !slices.ContainsFunc(list, func(has any) bool { return cmp.Equal(has, item) }) {
			tree.Set(obj, append(slices.Clone(list), item), path...)
		}
	}
	switch c.kind.Kind {
	case "Service": // a headless one that selects nothing may have addresses of both families
		if tree.Str(obj, "spec", "clusterIP") == "None" && len(tree.Map(obj, "spec", "selector")) == 0 {
			tree.Delete(obj, "spec", "ipFamilies")
		}
	case "Pod": // which stays for a while on a node that is in trouble, unless it says otherwise
		said := tree.List(obj, "spec", "tolerations")
		for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
			if !slices.ContainsFunc(said, func(v any) bool {
				t, _ := v.(map[string]any)
				of, effect := tree.Str(t, "key"), tree.Str(t, "effect")
				return (of == key || of == "") && (effect == "NoExecute" || effect == "")
			}) {
				add(map[string]any{
					"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": int64(300),
				}, "spec", "tolerations")
			}
		}
	case "Namespace":
		add("kubernetes", "spec", "finalizers")
	case "Node":
		add(map[string]any{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, "spec", "taints")
	}
}

// inProtobuf is how protobuf has an object: without the types of the claims in a StatefulSet.
func inProtobuf(obj kinds.Object) kinds.Object {
	if obj["kind"] != "StatefulSet" {
		return obj
	}
	obj = tree.CopyMap(obj)
	for _, claim := range tree.Maps(obj, "spec", "volumeClaimTemplates") {
		delete(claim, "apiVersion")
		delete(claim, "kind")
	}
	return obj
}
