package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/memory"
)

// site is a server over a store in memory, and its administrator.
type site struct {
	t      testing.TB
	store  store.Store
	server *apiserver.Server
	client *http.Client
}

func newSite(t testing.TB, change ...func(*apiserver.Options)) *site {
	t.Helper()
	opts := apiserver.Options{Store: memory.New(memory.Options{}), Kinds: kinds.NewRegistry(builtin.Set())}
	for _, c := range change {
		c(&opts)
	}
	s, err := apiserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	admin := &authn.User{Name: "admin", Groups: []string{authn.Masters}}
	return &site{t: t, store: opts.Store, server: s, client: &http.Client{Transport: s.Transport(admin)}}
}

// reply is an answer that has been read to its end.
type reply struct {
	code   int
	header http.Header
	text   string
}

// ask sends a request; header are names and values.
func (s *site) ask(method, path, body string, header ...string) reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://setpoint"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

func (s *site) get(path string, header ...string) reply {
	s.t.Helper()
	return s.ask("GET", path, "", header...)
}

// must is ask for what has to succeed; it returns the object.
func (s *site) must(method, path, body string, header ...string) object {
	s.t.Helper()
	r := s.ask(method, path, body, header...)
	if r.code >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, r.code, r.text)
	}
	return r.object(s.t)
}

// object is a decoded answer, looked into by dotted paths.
type object map[string]any

func (r reply) object(t testing.TB) object {
	t.Helper()
	var o object
	if err := json.Unmarshal([]byte(r.text), &o); err != nil {
		t.Fatalf("%v in %q", err, r.text)
	}
	return o
}

func (o object) at(path string) any {
	var v any = map[string]any(o)
	for _, key := range strings.Split(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func (o object) str(path string) string { text, _ := o.at(path).(string); return text }

func (o object) revision() string { return o.str("metadata.resourceVersion") }

// names are the names of a list's items, joined.
func (o object) names() string {
	items, _ := o["items"].([]any)
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = object(item.(map[string]any)).str("metadata.name")
	}
	return strings.Join(names, " ")
}

const cm = "/api/v1/namespaces/default/configmaps"

// configMap makes one with labels, written "a=b c=d".
func (s *site) configMap(name, labels string) object {
	s.t.Helper()
	set := map[string]string{}
	for _, pair := range strings.Fields(labels) {
		key, value, _ := strings.Cut(pair, "=")
		set[key] = value
	}
	body, _ := json.Marshal(object{"metadata": object{"name": name, "labels": set}, "data": object{"k": "v"}})
	return s.must("POST", cm, string(body))
}

func TestListSelects(t *testing.T) {
	s := newSite(t)
	for name, labels := range map[string]string{
		"a": "set=t color=red size=1", "b": "set=t color=blue size=2", "c": "set=t size=10", "d": "set=t color=",
	} {
		s.configMap(name, labels)
	}
	s.must("POST", "/api/v1/namespaces/kube-public/configmaps", `{"metadata":{"name":"a","labels":{"set":"t"}}}`)

	cases := []struct{ query, want string }{
		{"labelSelector=set=t", "a b c d"},
		{"labelSelector=set=t,color!=red", "b c d"},
		{"labelSelector=set=t,!color", "c"},
		{"labelSelector=color in (red,blue)", "a b"},
		{"labelSelector=size>1", "b c"},
		{"labelSelector=set=t&fieldSelector=metadata.name=b", "b"},
		{"labelSelector=set=t&fieldSelector=metadata.name!=b", "a c d"},
		{"labelSelector=set=t&fieldSelector=metadata.namespace=default", "a b c d"},
		{"fieldSelector=metadata.namespace=elsewhere", ""},
		{"labelSelector=a=b=c", "400: found '=', expected: ',' or 'end of string'"},
		{"fieldSelector=data.k=v", `400: "data.k" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{"limit=many", `400: strconv.ParseInt: parsing "many": invalid syntax`},
		{"resourceVersion=x", `400: invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		{"resourceVersion=1&resourceVersionMatch=Newest", `422: ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Unsupported value: "Newest": supported values: "Exact", "NotOlderThan", ""`},
		{"limit=-1&labelSelector=set=t", "a b c d"},
	}
	for _, c := range cases {
		t.Run(c.query, func(t *testing.T) {
			r := s.get(cm + "?" + strings.ReplaceAll(c.query, " ", "%20"))
			got := r.object(t).names()
			if r.code != http.StatusOK {
				got = fmt.Sprintf("%d: %s", r.code, r.object(t).str("message"))
			}
			if got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
	if got := s.get("/api/v1/configmaps?labelSelector=set=t").object(t).names(); got != "a b c d a" {
		t.Errorf("all namespaces: %s", got)
	}
}

func TestPodsAreSelectedByTheirFields(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"placed", "waiting"} {
		node := map[string]string{"placed": `"nodeName":"n1",`}[name]
		s.must("POST", "/api/v1/namespaces/default/pods",
			`{"metadata":{"name":"`+name+`"},"spec":{`+node+`"containers":[{"name":"c","image":"i"}]}}`)
	}
	for query, want := range map[string]string{
		"spec.nodeName=n1":                       "placed",
		"spec.nodeName=":                         "waiting",
		"spec.nodeName!=":                        "placed",
		"status.phase!=Succeeded,spec.nodeName=": "waiting",
	} {
		if got := s.get("/api/v1/pods?fieldSelector=" + query).object(t).names(); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	r := s.get("/api/v1/pods?fieldSelector=spec.color=red")
	if want := "field label not supported: spec.color"; r.code != 400 || r.object(t).str("message") != want {
		t.Errorf("an unknown field: %d %s", r.code, r.text)
	}
}

// All pages of a list are of one revision, whatever is written between them, and a token that has
// become too old is replaced by one that goes on at the newest state.
func TestB016_ContinueToken(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		s.configMap(name, "set=t")
	}
	const list = cm + "?labelSelector=set=t&limit=2"
	first := s.get(list).object(t)
	s.configMap("bb", "set=t")
	s.must("DELETE", cm+"/d", "")
	second := s.get(list + "&continue=" + first.str("metadata.continue")).object(t)
	third := s.get(list + "&continue=" + second.str("metadata.continue")).object(t)
	if got := first.names() + "|" + second.names() + "|" + third.names(); got != "a b|c d|e" {
		t.Errorf("pages %s", got)
	}
	if first.revision() != second.revision() || second.revision() != third.revision() {
		t.Errorf("revisions %s, %s, %s", first.revision(), second.revision(), third.revision())
	}
	if third.at("metadata.continue") != nil {
		t.Error("the last page says that there are more")
	}

	if err := s.store.Compact(t.Context(), s.store.Revision()); err != nil {
		t.Fatal(err)
	}
	expired := s.get(list + "&continue=" + first.str("metadata.continue"))
	if expired.code != http.StatusGone || expired.object(t).str("reason") != "Expired" {
		t.Fatalf("an old token: %d %s", expired.code, expired.text)
	}
	rest := s.get(cm + "?labelSelector=set=t&limit=9&continue=" + expired.object(t).str("metadata.continue")).object(t)
	if got := rest.names(); got != "bb c e" || rest.revision() != fmt.Sprint(s.store.Revision()) {
		t.Errorf("after the expired token: %s at %s", got, rest.revision())
	}
}

func TestB016_TokenOfAnotherList(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"a", "b", "c"} {
		s.configMap(name, "set=t")
	}
	token := s.get(cm + "?limit=1").object(t).str("metadata.continue")
	for about, path := range map[string]string{
		"another selector":  cm + "?labelSelector=set=t&continue=" + token,
		"another field":     cm + "?fieldSelector=metadata.name!=x&continue=" + token,
		"another namespace": "/api/v1/namespaces/kube-system/configmaps?continue=" + token,
		"all namespaces":    "/api/v1/configmaps?continue=" + token,
		"another resource":  "/api/v1/namespaces/default/secrets?continue=" + token,
		"with a revision":   cm + "?resourceVersion=5&continue=" + token,
		"garbage":           cm + "?continue=garbage",
		"half of it":        cm + "?continue=" + token[:len(token)/2],
	} {
		if r := s.get(path); r.code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", about, r.code, r.text)
		}
	}
}

func TestRemainingItemCount(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		s.configMap(name, "set=t")
	}
	for query, want := range map[string]any{
		"limit=2": 3.0, "limit=5": nil, "limit=2&labelSelector=set=t": nil,
	} {
		if got := s.get(cm + "?" + query).object(t).at("metadata.remainingItemCount"); got != want {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}

func TestB008_RevisionFromTheFuture(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "")
	for _, path := range []string{
		cm + "?resourceVersion=999999999&resourceVersionMatch=NotOlderThan",
		cm + "?resourceVersion=999999999&resourceVersionMatch=Exact",
		cm + "?resourceVersion=999999999",
		cm + "/a?resourceVersion=999999999",
	} {
		r := s.get(path)
		o := r.object(t)
		if r.code != http.StatusGatewayTimeout || o.str("reason") != "Timeout" || r.header.Get("Retry-After") != "1" ||
			!strings.Contains(r.text, `"reason":"ResourceVersionTooLarge"`) {
			t.Errorf("%s: %d %s", path, r.code, r.text)
		}
	}
}

func TestListAsOfARevision(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "set=t")
	at := s.configMap("b", "set=t").revision()
	s.configMap("c", "set=t")
	const list = cm + "?labelSelector=set=t&resourceVersion="
	for query, want := range map[string]string{
		at + "&resourceVersionMatch=Exact":        "a b",
		at + "&limit=10":                          "a b",
		at + "&resourceVersionMatch=NotOlderThan": "a b c",
		at: "a b c", "0": "a b c",
	} {
		if got := s.get(list + query).object(t).names(); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if err := s.store.Compact(t.Context(), s.store.Revision()); err != nil {
		t.Fatal(err)
	}
	if r := s.get(list + at + "&resourceVersionMatch=Exact"); r.code != http.StatusGone || r.object(t).str("reason") != "Expired" {
		t.Errorf("a forgotten revision: %d %s", r.code, r.text)
	}
}

// The text of a list is the text of its objects: nothing is decoded on the way.
func TestListIsJoinedFromStoredBytes(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "set=t")
	s.configMap("b", "set=t")
	list := s.get(cm + "?labelSelector=set=t")
	for _, name := range []string{"a", "b"} {
		one := strings.TrimSpace(s.get(cm + "/" + name).text)
		item := strings.Replace(one, `"kind":"ConfigMap","apiVersion":"v1",`, "", 1)
		if !strings.Contains(list.text, item) {
			t.Errorf("the list does not have %s", item)
		}
	}
	if !json.Valid([]byte(list.text)) || !strings.HasPrefix(list.text, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"`) {
		t.Errorf("list %s", list.text)
	}
}

func TestForms(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "color=blue")
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	const partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	const partials = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	one, all := cm+"/a", cm+"?labelSelector=color=blue"
	cases := []struct {
		path, accept string
		code         int
		kind         string // of the answer; or its message
		contentType  string
	}{
		{one, "", 200, "ConfigMap", "application/json"},
		{one, "*/*", 200, "ConfigMap", "application/json"},
		{one, "text/html, application/json", 200, "ConfigMap", "application/json"},
		{one, "application/yaml;q=0.5, application/json;q=0.9", 200, "ConfigMap", "application/json"},
		{one, "application/yaml", 200, "", "application/yaml"},
		{one, "text/html", 406, "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf", "application/json"},
		{one, "application/json;as=Picture;v=v1;g=meta.k8s.io", 406, "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf", "application/json"},
		{one, table, 200, "Table", "application/json"},
		{one, table + ",application/json", 200, "Table", "application/json"},
		{one, "application/json;as=Table;v=v9;g=meta.k8s.io,application/json", 200, "ConfigMap", "application/json"},
		{one, partial, 200, "PartialObjectMetadata", "application/json"},
		{one, partials, 406, "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)", "application/json"},
		{all, table, 200, "Table", "application/json"},
		{all, partials, 200, "PartialObjectMetadataList", "application/json"},
		{all, partial, 406, "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)", "application/json"},
		{all, "application/yaml", 200, "", "application/yaml"},
		{cm + "/nosuch", table, 404, `configmaps "nosuch" not found`, "application/json"},
	}
	for _, c := range cases {
		t.Run(c.path[len(cm):]+" as "+c.accept, func(t *testing.T) {
			r := s.get(c.path, "Accept", c.accept)
			if r.code != c.code || r.header.Get("Content-Type") != c.contentType {
				t.Fatalf("%d %s: %s", r.code, r.header.Get("Content-Type"), r.text)
			}
			if c.contentType == "application/yaml" {
				if !strings.Contains(r.text, "color: blue\n") {
					t.Errorf("not YAML: %s", r.text)
				}
				return
			}
			o := r.object(t)
			got := o.str("kind")
			if c.code != 200 {
				got = o.str("message")
			}
			if got != c.kind {
				t.Errorf("got %q, want %q", got, c.kind)
			}
		})
	}
}

func TestPretty(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "")
	for _, c := range []struct {
		query, agent string
		want         bool
	}{
		{"", "", false}, {"?pretty=1", "", true}, {"?pretty=true", "", true}, {"", "curl/8.0", true},
		{"?pretty=0", "curl/8.0", false}, {"?pretty=false", "", false},
	} {
		r := s.get(cm+"/a"+c.query, "User-Agent", c.agent)
		if got := strings.HasPrefix(r.text, "{\n  \"kind\": \"ConfigMap\",\n"); got != c.want {
			t.Errorf("%q to %q: pretty is %v", c.query, c.agent, got)
		}
	}
}

func TestTable(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "color=blue")
	const accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
	table := s.get(cm+"?labelSelector=color=blue", "Accept", accept).object(t)
	columns := table["columnDefinitions"].([]any)
	var names []string
	for _, c := range columns {
		names = append(names, c.(map[string]any)["name"].(string))
	}
	if diff := cmp.Diff([]string{"Name", "Data", "Age"}, names); diff != "" {
		t.Error(diff)
	}
	row := table["rows"].([]any)[0].(map[string]any)
	if cells := row["cells"].([]any); cells[0] != "a" || cells[1] != 1.0 {
		t.Errorf("cells %v", cells)
	}
	for include, want := range map[string]any{
		"": "PartialObjectMetadata", "Metadata": "PartialObjectMetadata", "Object": "ConfigMap", "None": nil,
	} {
		table := s.get(cm+"/a?includeObject="+include, "Accept", accept).object(t)
		row := object(table["rows"].([]any)[0].(map[string]any))
		if got := row.at("object.kind"); got != want {
			t.Errorf("includeObject=%s: %v, want %v", include, got, want)
		}
	}
	if r := s.get(cm+"?includeObject=Half", "Accept", accept); r.code != http.StatusBadRequest {
		t.Errorf("an unknown includeObject: %d", r.code)
	}
}

// brokenStore panics when it is read.
type brokenStore struct {
	store.Store
	broken *bool
}

func (b brokenStore) Snapshot(ctx context.Context) (store.Snapshot, error) {
	if *b.broken {
		panic("a mistake")
	}
	return b.Store.Snapshot(ctx)
}

func TestPanicIsAnsweredAndTheServerLivesOn(t *testing.T) {
	broken := false
	s := newSite(t, func(o *apiserver.Options) { o.Store = brokenStore{o.Store, &broken} })
	s.configMap("a", "")
	broken = true
	if r := s.get(cm + "/a"); r.code != http.StatusInternalServerError || r.object(t).str("reason") != "InternalError" {
		t.Errorf("%d %s", r.code, r.text)
	}
	broken = false
	if r := s.get(cm + "/a"); r.code != http.StatusOK {
		t.Errorf("after the panic: %d %s", r.code, r.text)
	}
	if !strings.Contains(s.get("/metrics").text, "apiserver_panics_total 1") {
		t.Error("the panic was not counted")
	}
}

func TestOneEventIsSeenThroughTwoAPIs(t *testing.T) {
	s := newSite(t)
	s.must("POST", "/apis/events.k8s.io/v1/namespaces/default/events", `{"metadata":{"name":"e"},
		"eventTime":"2026-01-02T03:04:05.000000Z","reportingController":"x/y","reportingInstance":"i","action":"A",
		"reason":"R","type":"Normal","note":"hello","regarding":{"kind":"Pod","namespace":"default","name":"p"}}`)
	for path, want := range map[string][2]string{
		"/api/v1/namespaces/default/events/e":                {"message", "involvedObject.name"},
		"/apis/events.k8s.io/v1/namespaces/default/events/e": {"note", "regarding.name"},
	} {
		o := s.get(path).object(t)
		if o.str(want[0]) != "hello" || o.str(want[1]) != "p" || o.revision() == "" {
			t.Errorf("%s: %v", path, o)
		}
	}
	for path, want := range map[string]string{
		"/api/v1/events?fieldSelector=involvedObject.name=p":           "e",
		"/apis/events.k8s.io/v1/events?fieldSelector=regarding.name=p": "e",
		"/apis/events.k8s.io/v1/events?fieldSelector=regarding.name=q": "",
	} {
		if got := s.get(path).object(t).names(); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if !slices.Contains(strings.Fields(s.get("/apis/events.k8s.io/v1/namespaces/default/events/e", "Accept", "application/yaml").text), "events.k8s.io/v1") {
		t.Error("the apiVersion is not the API's")
	}
}

// The metadata of stored bytes is found by scanning them; text that looks like JSON must not
// mislead the scan.
func TestHostileTextDoesNotHideMetadata(t *testing.T) {
	s := newSite(t)
	for i, text := range []string{`"`, `\`, `\"`, `"}},{"labels":{"x":"z"}`, "{[\"", "\u2028<>&", `\\\"metadata\":{`, ""} {
		name := fmt.Sprintf("c%d", i)
		body, err := json.Marshal(object{
			"metadata": object{"name": name, "labels": object{"x": "y"}, "annotations": object{"a.b/c": text}},
			"data":     object{"metadata": text, "labels": text},
		})
		if err != nil {
			t.Fatal(err)
		}
		made := s.must("POST", cm, string(body))
		o := s.get(cm+"/"+name, "Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").object(t)
		annotations := o.at("metadata.annotations").(map[string]any)
		if annotations["a.b/c"] != text || o.str("metadata.labels.x") != "y" || o.revision() != made.revision() {
			t.Errorf("%q: %v", text, o)
		}
		s.must("DELETE", cm+"/"+name, "")
	}
}
