package apiserver_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// generator makes objects of a schema. What it makes fits the types; whether the rules of a kind take
// it is for the server to say.
type generator struct{ *rand.Rand }

// place is where something stands in an object: the struct, and the path to it as messages have it.
type place struct {
	object map[string]any
	of     *schema.Type
	path   string
}

func (p place) child(name string) string {
	if p.path == "" {
		return name
	}
	return p.path + "." + name
}

// places lists the structs in an object that a client may fill as he likes, outermost first.
func places(k *kinds.Kind, obj map[string]any) []place {
	var all []place
	var visit func(p place)
	value := func(t *schema.Type, v any, path string) {
		if m, ok := v.(map[string]any); ok && t.Kind == schema.Struct && !t.Loose {
			visit(place{m, t, path})
		}
	}
	visit = func(p place) {
		if len(p.of.Fields) > 0 {
			all = append(all, p)
		}
		for _, f := range p.of.Fields {
			if p.path == "" && (f.Name == "metadata" || f.Name == "status" && k.Status) {
				continue
			}
			switch v := p.object[f.Name].(type) {
			case map[string]any:
				value(f.Type, v, p.child(f.Name))
			case []any:
				for i, item := range v {
					if f.Type.Kind == schema.List {
						value(f.Type.Elem, item, fmt.Sprintf("%s[%d]", p.child(f.Name), i))
					}
				}
			}
		}
	}
	visit(place{obj, k.Schema.Root(), ""})
	return all
}

// graft adds a field that is not there, somewhere, and returns its path; "" if it found none.
func (g generator) graft(k *kinds.Kind, obj map[string]any) string {
	all := places(k, obj)
	for range 10 {
		p := all[g.IntN(len(all))]
		f := p.of.Fields[g.IntN(len(p.of.Fields))]
		_, there := p.object[f.Name]
		top := p.path == "" && slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, f.Name)
		if there || top || slices.Contains(dropped[k.GroupResource()], f.Name) {
			continue
		}
		p.object[f.Name] = g.value(f.Type, 0)
		return p.child(f.Name)
	}
	return ""
}

// dropped are fields that a server is given and does not keep.
var dropped = map[apischema.GroupResource][]string{
	{Resource: "nodes"}: {"configSource", "podPreemptionPolicy"},
	{Group: "discovery.k8s.io", Resource: "endpointslices"}: {"deprecatedTopology"},
}

// decorate gives an object labels and annotations.
func (g generator) decorate(obj map[string]any) {
	for range 1 + g.IntN(3) {
		tree.Set(obj, g.word(), "metadata", "labels", "example.com/"+g.word())
		tree.Set(obj, g.text(), "metadata", "annotations", "example.com/"+g.word())
	}
}

const depthMost = 4

// value makes a value of a type, in its canonical form.
func (g generator) value(t *schema.Type, depth int) any {
	switch t.Kind {
	case schema.Bool:
		return g.IntN(2) == 0
	case schema.Int32, schema.Int64:
		return int64(1 + g.IntN(50))
	case schema.String:
		if len(t.Enum) > 0 {
			return t.Enum[g.IntN(len(t.Enum))]
		}
		return g.word()
	case schema.Bytes:
		return pick(g, "AAECAw==", "aGVsbG8=")
	case schema.Quantity:
		return pick(g, "1", "100m", "2Gi", "3")
	case schema.IntOrString:
		return pick[any](g, int64(8080), "25%", "http")
	case schema.Time:
		return "2031-02-03T04:05:06Z"
	case schema.MicroTime:
		return "2031-02-03T04:05:06.000007Z"
	case schema.List:
		return []any{g.value(t.Elem, depth+1)}
	case schema.Map:
		return map[string]any{g.word(): g.value(t.Elem, depth+1)}
	case schema.Struct:
		return g.object(t, depth)
	}
	return map[string]any{"a": []any{int64(1), "<b>", nil, true, 1.5}}
}

func (g generator) object(t *schema.Type, depth int) map[string]any {
	obj := map[string]any{}
	for _, f := range t.Fields {
		if depth < depthMost && (f.Required || g.IntN(6) == 0) {
			obj[f.Name] = g.value(f.Type, depth+1)
		}
	}
	return obj
}

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

func (g generator) word() string {
	return pick(g, "a", "web", "x-1", "db") + fmt.Sprintf("%x", g.IntN(1<<12))
}

// text is anything that an annotation may be.
func (g generator) text() string {
	return strings.Repeat(pick(g, "", "<&>", "ü\u2028", "\"\\/\n\t", "😀", "plain"), 1+g.IntN(4))
}

// wrongType puts an object in the place of a plain value, and returns how a message has the path: without
// indexes, and from the name of a Go type on. It is "" if there is no plain value.
func (g generator) wrongType(k *kinds.Kind, obj map[string]any) string {
	all := places(k, obj)
	for range 20 {
		p := all[g.IntN(len(all))]
		f := p.of.Fields[g.IntN(len(p.of.Fields))]
		switch f.Type.Kind {
		case schema.Bool, schema.Int32, schema.Int64, schema.String:
			if p.path == "" && (f.Name == "apiVersion" || f.Name == "kind") {
				continue
			}
			p.object[f.Name] = map[string]any{"wrong": true}
			return p.child(f.Name)
		}
	}
	return ""
}

// unknownField adds a field that no type has, and returns its path.
func (g generator) unknownField(k *kinds.Kind, obj map[string]any) string {
	all := places(k, obj)
	p := all[g.IntN(len(all))]
	p.object["noSuchField"] = g.word()
	return p.child("noSuchField")
}

// lost lists what one tree says and another does not, or says otherwise, by path.
func lost(path string, want, got any) []string {
	switch want := want.(type) {
	case map[string]any:
		var all []string
		m, _ := got.(map[string]any)
		for key, v := range want {
			all = append(all, lost(path+"."+key, v, m[key])...)
		}
		return all
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			return []string{fmt.Sprintf("%s: %d items became %d", path, len(want), len(list))}
		}
		var all []string
		for i, v := range want {
			all = append(all, lost(fmt.Sprintf("%s[%d]", path, i), v, list[i])...)
		}
		return all
	}
	zero := want == nil || want == false || want == int64(0) || want == "" // which may mean that nothing is said
	if !zero && want != got {
		return []string{fmt.Sprintf("%s: %v became %v", path, want, got)}
	}
	return nil
}
