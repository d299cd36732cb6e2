package schema

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:generate sh -c "cd ../../tools/schemagen && go generate ."

// builtin.txt describes each built-in type in a few lines; tools/schemagen writes it, and its type
// walker documents the format.
//
//go:embed builtin.txt
var builtinText string

const objectMetaName = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// library compiles types out of their descriptions, each once, when first asked for.
type library struct {
	text string

	mu     sync.Mutex
	blocks map[string]block // nil before the first lookup
	types  map[string]*Type
	queue  []*Type // met, but not compiled yet
	copies []copied
}

// copied is a struct that differs from another in its form in protobuf, or in what server-side apply
// does to it.
type copied struct {
	to, from *Type
	granular bool
}

// block is the description of one struct.
type block struct {
	atomic bool
	loose  bool
	lines  string // each with its leading tab and newline
}

var builtinTypes = &library{text: builtinText}

// lookup returns the complete type, or nil if there is no such struct.
func (l *library) lookup(name string) *Type {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blocks == nil {
		l.split()
	}
	if _, ok := l.blocks[name]; !ok {
		return nil
	}
	t := l.refer(name)
	for len(l.queue) > 0 {
		next := l.queue[len(l.queue)-1]
		l.queue = l.queue[:len(l.queue)-1]
		next.message = l.fields(next, next.Name, "")
		next.index()
	}
	for _, c := range l.copies {
		form := c.to.proto
		*c.to = *c.from
		c.to.proto = form
		c.to.Atomic = c.to.Atomic && !c.granular
	}
	l.copies = nil
	return t
}

// split finds the blocks; their lines are read when they are needed.
func (l *library) split() {
	l.blocks = make(map[string]block, 1500)
	l.types = map[string]*Type{}
	for rest := l.text; rest != ""; {
		head, after, _ := strings.Cut(rest, "\n")
		end := 0
		for end < len(after) && after[end] == '\t' {
			end += strings.IndexByte(after[end:], '\n') + 1
		}
		name, flag, _ := strings.Cut(head, " ")
		l.blocks[name] = block{atomic: flag == "atomic", loose: flag == "loose", lines: after[:end]}
		rest = after[end:]
	}
}

// refer returns the struct of that name; its fields may have to wait in the queue.
func (l *library) refer(name string) *Type {
	if t := l.types[name]; t != nil {
		return t
	}
	b, ok := l.blocks[name]
	if !ok {
		panic(malformed("no block for " + name))
	}
	t := &Type{
		Kind: Struct, Name: name, GoName: shortGoName(name), Atomic: b.atomic, Loose: b.loose,
		EmptyIsNull: !slices.ContainsFunc(emptyStays, func(group string) bool { return strings.HasPrefix(name, group) }),
	}
	l.types[name] = t
	l.queue = append(l.queue, t)
	return t
}

// emptyStays are the groups whose objects upstream keeps as JSON, or does not keep.
var emptyStays = []string{
	"io.k8s.apimachinery.",
	"io.k8s.apiextensions-apiserver.", "io.k8s.kube-aggregator.", "io.k8s.api.authentication.", "io.k8s.api.authorization.",
}

// shortGoName makes "v1.Pod" of "io.k8s.api.core.v1.Pod".
func shortGoName(name string) string {
	return name[strings.LastIndexByte(name[:strings.LastIndexByte(name, '.')], '.')+1:]
}

// fields reads the lines of a block into a struct, which is the block's own or one that embeds it,
// and returns the block as a protobuf message.
func (l *library) fields(t *Type, name, embedded string) []wire {
	var message []wire
	for line := range strings.Lines(l.blocks[name].lines) {
		words := strings.Fields(line)
		if goName, ok := strings.CutPrefix(words[0], "^"); ok {
			inline := l.fields(t, absolute(strings.TrimPrefix(words[1], "@"), name), join(embedded, goName))
			message = addWire(message, words[2], wire{inline: inline})
			continue
		}
		message = addWire(message, words[3], wire{field: len(t.Fields)})
		f := Field{Name: words[0], embedded: embedded}
		f.Optional = strings.Contains(words[1], "o")
		f.OmitZero = strings.Contains(words[1], "z")
		f.Pointer = strings.Contains(words[1], "p")
		f.Required = strings.Contains(words[1], "r")
		if f.Type = l.spelled(words[2], name); f.Name == "fieldsV1" {
			f.Type = fieldsV1
		}
		l.options(&f, line, words[4:])
		t.Fields = append(t.Fields, f)
	}
	return message
}

// absolute completes a reference of the form ".Container" inside a block.
func absolute(ref, block string) string {
	if ref[0] == '.' {
		return block[:strings.LastIndexByte(block, '.')] + ref
	}
	return ref
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func addWire(message []wire, number string, w wire) []wire {
	n, err := strconv.Atoi(number)
	if err != nil || n > maxFieldNumber {
		panic(malformed("field number " + number))
	}
	if n == 0 {
		return message
	}
	for len(message) <= n {
		message = append(message, wire{field: noField})
	}
	message[n] = w
	return message
}

func (l *library) options(f *Field, line string, words []string) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "patch":
			f.PatchStrategy = strings.Split(value, ",")
		case "key":
			f.PatchMergeKey = value
		case "list":
			f.Type.ListType = value
		case "keys":
			f.Type.ListKeys = strings.Split(value, ",")
		case "atomic":
			if f.Type.Kind == Struct {
				panic(malformed("atomic on a struct that others share: " + line))
			}
			f.Type.Atomic = true
		case "granular":
			from := f.Type
			f.Type = &Type{}
			l.copies = append(l.copies, copied{to: f.Type, from: from, granular: true})
		case "proto":
			l.setProto(f, value)
		case "default":
			f.Default = constant(value)
		case "enum":
			_, values, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " enum=")
			leaf := f.Type
			if leaf.Kind == List {
				leaf = leaf.Elem
			}
			leaf.Enum = strings.Split(values, "|")
			return // to the end of the line
		}
	}
}

var protoForms = map[string]protoForm{
	"double": protoDouble, "orbool": protoOrBool, "orarray": protoOrArray, "orstrings": protoOrStrings,
}

// setProto gives a field's type, or that of its items, its form in protobuf.
func (l *library) setProto(f *Field, form string) {
	if form == "repeated" {
		f.Type.wrapped = false
		return
	}
	leaf := &f.Type
	if f.Type.Elem != nil {
		leaf = &f.Type.Elem
	}
	if base := *leaf; base.Kind == Struct {
		*leaf = &Type{}
		l.copies = append(l.copies, copied{to: *leaf, from: base})
	}
	(*leaf).proto = protoForms[form]
}

// constant reads a default. It is shared and must be copied before it becomes part of an object.
func constant(text string) any {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(malformed("default " + text))
	}
	if f, ok := v.(float64); ok {
		return int64(f)
	}
	return v
}

var scalars = map[string]Kind{
	"bool": Bool, "int32": Int32, "int64": Int64, "string": String, "bytes": Bytes,
	"quantity": Quantity, "intorstring": IntOrString, "time": Time, "microtime": MicroTime, "any": Any,
}

// goNames are how messages name the scalars whose name is not their Go type's.
var goNames = map[string]string{
	"bytes": "[]uint8", "quantity": "resource.Quantity", "intorstring": "intstr.IntOrString",
	"time": "v1.Time", "microtime": "v1.MicroTime", "any": "interface {}",
}

// spelled reads the spelling of a type inside a block. The type is new, except for a struct.
func (l *library) spelled(text, block string) *Type {
	switch text[0] {
	case '@':
		return l.refer(absolute(text[1:], block))
	case '[':
		return l.container(List, "[]", text, block)
	case '{':
		return l.container(Map, "map[string]", text, block)
	}
	name, own, named := strings.Cut(strings.TrimSuffix(text, ">"), "<")
	t := &Type{Kind: scalars[name], GoName: name}
	if t.Kind == 0 {
		panic(malformed("type " + text))
	}
	if goName := goNames[name]; goName != "" {
		t.GoName = goName
	}
	if named {
		t.GoName = own
	}
	return t
}

func (l *library) container(kind Kind, goPrefix, text, block string) *Type {
	t := &Type{Kind: kind}
	text = text[1:]
	if text[0] == '*' {
		t.NullableElem, text = true, text[1:]
		goPrefix += "*"
	}
	text = text[1:] // the closing bracket
	if text[0] == '<' {
		own, rest, _ := strings.Cut(text[1:], ">")
		t.GoName, text = own, rest
		t.wrapped = kind == List
	}
	t.Elem = l.spelled(text, block)
	if t.GoName == "" {
		t.GoName = goPrefix + t.Elem.GoName
	}
	return t
}

// malformed is what a damaged builtin.txt panics with; the tests read all of it.
func malformed(what string) string {
	return fmt.Sprintf("schema: builtin.txt: %s", what)
}
