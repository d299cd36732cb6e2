package apiserver_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// TestEveryKindRefuses spoils random objects of every kind, in JSON and in protobuf. The answer names
// the field, and is never that the server failed.
func TestEveryKindRefuses(t *testing.T) {
	each, seed := properties(t)
	everyKind(t, func(t *testing.T, c *collection) {
		g := c.generator(seed)
		for range each {
			spoils := []func(*testing.T, generator, kinds.Object){
				c.refusesUnknown, c.refusesType, c.refusesMetadata, c.refusesTorn, c.refusesOrTakes, c.refusesOrTakes,
			}
			obj := tree.CopyMap(c.seeds[g.IntN(len(c.seeds))])
			if spoils[g.IntN(len(spoils))](t, g, obj); t.Failed() {
				t.Fatalf("%s", mustJSON(obj))
			}
		}
	})
}

// takes says whether the server takes an object to which a field was added. If not it must say which
// field is wrong, and that must be near the one that was added.
func (c *collection) takes(t *testing.T, obj kinds.Object, path string) bool {
	t.Helper()
	code, answer := c.dryRun("", mustJSON(obj))
	switch {
	case code == http.StatusCreated:
		return true
	case code == http.StatusUnprocessableEntity:
		c.namesNear(t, answer, path)
	case code == http.StatusForbidden && c.kind.Kind == "Pod": // by admission, which names no field
	default:
		t.Errorf("%s: %d %v: %s", path, code, answer, mustJSON(obj))
	}
	return false
}

func (c *collection) dryRun(contentType string, body []byte) (int, kinds.Object) {
	c.t.Helper()
	return c.ask("POST", c.path+"?dryRun=All&fieldValidation=Strict", "", contentType, body)
}

// namesNear wants a field in each cause, and one of them above, beside or below a path, or with its name.
// Not all rules count the items of lists, and a few name what they compare the field with.
func (c *collection) namesNear(t *testing.T, answer kinds.Object, path string) {
	t.Helper()
	path = strings.NewReplacer("deprecatedSource", "source", "downwardAPI.items", "downwardAPI").Replace(uncounted(path))
	last := strings.LastIndexByte(path, '.')
	parent, name := path[:max(0, last)], path[last+1:]
	near := false
	for _, cause := range tree.Maps(answer, "details", "causes") {
		field := uncounted(tree.Str(cause, "field"))
		if field == "" {
			t.Errorf("%s is refused by a cause without a field: %v", path, cause)
		}
		near = near || strings.HasPrefix(field, parent) || strings.HasPrefix(parent, field) ||
			strings.Contains(field, name) || strings.HasPrefix(field, "annotations.")
	}
	if !near {
		t.Errorf("no cause is near %s: %v", path, answer)
	}
}

var index = regexp.MustCompile(`\[[^\]]*\]`)

// uncounted is a path without indexes.
func uncounted(path string) string { return index.ReplaceAllString(path, "") }

// refusesOrTakes adds what may well be wrong. Protobuf is answered as JSON is.
func (c *collection) refusesOrTakes(t *testing.T, g generator, obj kinds.Object) {
	t.Helper()
	path := g.graft(c.kind, obj)
	if path == "" || c.takes(t, obj, path) {
		return
	}
	c.refusesMessage(t, obj)
}

// refusesMessage wants the answer to an object in protobuf that there is to it in JSON, but for what the
// server has drawn meanwhile: node ports, and the uids that labels of Jobs repeat.
func (c *collection) refusesMessage(t *testing.T, obj kinds.Object) {
	t.Helper()
	_, want := c.dryRun("", mustJSON(obj))
	_, got := c.dryRun(protobufType, c.message(t, obj))
	same := cmp.Transformer("", func(text string) string { return drawn.ReplaceAllString(text, "drawn") })
	if diff := cmp.Diff(want, got, cmp.FilterPath(isMessage, same)); diff != "" {
		t.Errorf("in protobuf: %s", diff)
	}
}

var drawn = regexp.MustCompile(`\b(3[0-2]\d{3}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\b`)

// isMessage says that a value is what a status or a cause says to people.
func isMessage(p cmp.Path) bool {
	key, ok := p.Index(-2).(cmp.MapIndex)
	return ok && key.Key().String() == "message"
}

func (c *collection) refusesUnknown(t *testing.T, g generator, obj kinds.Object) {
	path := g.unknownField(c.kind, obj)
	c.refusesText(t, obj, `unknown field "`+path+`"`)
}

func (c *collection) refusesType(t *testing.T, g generator, obj kinds.Object) {
	if path := g.wrongType(c.kind, obj); path != "" {
		c.refusesText(t, obj, path[strings.LastIndexByte(path, '.')+1:]+" of type ")
	}
}

func (c *collection) refusesText(t *testing.T, obj kinds.Object, says string) {
	t.Helper()
	code, answer := c.dryRun("", mustJSON(obj))
	if code != http.StatusBadRequest || !strings.Contains(tree.Str(answer, "message"), says) {
		t.Errorf("%d %s; want %q", code, tree.Str(answer, "message"), says)
	}
}

// refusesMetadata spoils what all kinds have.
func (c *collection) refusesMetadata(t *testing.T, g generator, obj kinds.Object) {
	field := pick(g, "labels", "annotations", "ownerReferences", "finalizers", "name")
	switch field {
	case "labels":
		tree.Set(obj, g.word()+" "+g.word(), "metadata", field, g.word())
	case "annotations":
		tree.Set(obj, "", "metadata", field, g.word()+"/a/b")
	case "ownerReferences":
		tree.Set(obj, []any{map[string]any{"kind": g.word()}}, "metadata", field)
	case "finalizers":
		tree.Set(obj, []any{g.word() + "%"}, "metadata", field)
	case "name":
		tree.Set(obj, g.word()+"%", "metadata", field)
	}
	code, want := c.dryRun("", mustJSON(obj))
	named := false
	for _, cause := range tree.Maps(want, "details", "causes") {
		named = named || strings.HasPrefix(tree.Str(cause, "field"), "metadata."+field)
	}
	if code != http.StatusUnprocessableEntity || !named {
		t.Errorf("%s: %d %v", field, code, want)
	}
	c.refusesMessage(t, obj)
}

// tail is what the envelope of a message has after it, and need not have.
const tail = 4

// refusesTorn sends a protobuf message that ends too early.
func (c *collection) refusesTorn(t *testing.T, g generator, obj kinds.Object) {
	body := c.message(t, obj)
	body = body[:5+g.IntN(len(body)-5-tail)]
	if code, answer := c.dryRun(protobufType, body); code < 400 || code >= 500 {
		t.Errorf("%d %v: %x", code, answer, body)
	}
}
