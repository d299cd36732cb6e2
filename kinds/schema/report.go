package schema

import (
	"strconv"
	"strings"
)

// Error says why a body or a tree could not be read. Its text is what the API server puts behind
// `Pod in version "v1" cannot be handled as a Pod: `, or, with Head, behind `couldn't get
// version/kind; json parse error: `.
type Error struct {
	// Head says that not even apiVersion and kind could be read: the body is not JSON, is not an
	// object, or these two are not strings.
	Head bool
	// Path is the field concerned, as in "spec.containers[0].image"; "" for the whole.
	Path string

	text string
}

func (e *Error) Error() string { return e.text }

// findingsMax is how many findings are kept of one body: upstream's bound, which keeps the answer
// to a hostile body small.
const findingsMax = 100

// report collects what is wrong while a value is walked. The first error counts, and a hard one,
// at which upstream stops reading, counts before the others.
type report struct {
	steps    []step
	findings []string
	soft     *Error
	hard     *Error
}

// step is one step of the way from the root: a field of its owner, a key of a map, or an item of a
// list.
type step struct {
	owner *Type  // of a field
	key   string // of a map
	index int    // of the field or the item
	item  bool
}

func (r *report) push(s step) { r.steps = append(r.steps, s) }
func (r *report) pop()        { r.steps = r.steps[:len(r.steps)-1] }

func (r *report) err() error {
	switch {
	case r.hard != nil:
		return r.hard
	case r.soft != nil:
		return r.soft
	}
	return nil
}

func (r *report) unknown(name string)   { r.find("unknown field ", name) }
func (r *report) duplicate(name string) { r.find("duplicate field ", name) }

func (r *report) find(what, name string) {
	if len(r.findings) >= findingsMax {
		return
	}
	text := what + strconv.Quote(join(r.path(), name))
	for _, f := range r.findings {
		if f == text {
			return
		}
	}
	r.findings = append(r.findings, text)
}

// fail reports a value that cannot be read, in the words of whoever tried.
func (r *report) fail(hard bool, text string) {
	r.keep(hard, &Error{Path: r.path(), text: text})
}

// mismatch reports a value of the wrong type. Upstream decodes into Go types, and its clients know
// the text; found is "string", "number 1.5", "object" and so on.
func (r *report) mismatch(hard bool, found, goType string) {
	if hard && r.hard != nil || !hard && r.soft != nil {
		return
	}
	owner, fields := r.goPath()
	if fields == "" {
		r.fail(hard, "json: cannot unmarshal "+found+" into Go value of type "+goType)
		return
	}
	e := &Error{Path: r.path()}
	if len(r.steps) == 1 && (e.Path == "apiVersion" || e.Path == "kind") {
		// These are read beforehand, into a type without a name.
		e.Head, owner, fields = true, "", e.Path
	}
	e.text = "json: cannot unmarshal " + found + " into Go struct field " + owner + "." + fields + " of type " + goType
	r.keep(hard || e.Head, e)
}

func (r *report) keep(hard bool, e *Error) {
	if hard && r.hard == nil {
		r.hard = e
	} else if !hard && r.soft == nil {
		r.soft = e
	}
}

// path is how findings spell the place: "spec.containers[0].ports".
func (r *report) path() string {
	var b strings.Builder
	for _, s := range r.steps {
		if s.item {
			b.WriteByte('[')
			b.WriteString(strconv.Itoa(s.index))
			b.WriteByte(']')
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if s.owner != nil {
			b.WriteString(s.owner.Fields[s.index].Name)
		} else {
			b.WriteString(s.key)
		}
	}
	return b.String()
}

// goPath is how type errors spell the place: the struct that has the innermost field, and the
// fields that lead there, with the Go names of embedded structs and without items and keys.
func (r *report) goPath() (owner, fields string) {
	for _, s := range r.steps {
		if s.owner == nil {
			continue
		}
		f := &s.owner.Fields[s.index]
		if f.embedded != "" {
			fields = join(fields, f.embedded)
		}
		fields = join(fields, f.Name)
		owner = s.owner.GoName[strings.LastIndexByte(s.owner.GoName, '.')+1:]
	}
	return owner, fields
}
