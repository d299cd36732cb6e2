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

	text      string
	converted string // if other words; see Converted
}

func (e *Error) Error() string { return e.text }

// findingsMax is how many findings are kept of one body: upstream's bound, which keeps the answer
// to a hostile body small.
const findingsMax = 100

// findingsTried is how many findings, equal ones included, are looked at: spelling the place of
// each costs time that a hostile body must not have.
const findingsTried = 10 * findingsMax

// report collects what is wrong while a value is walked. Of the errors the first of the gravest
// sort counts.
type report struct {
	steps    []step
	findings []string
	tried    int
	errors   [head + 1]*Error
}

// gravity sorts errors as upstream meets them.
type gravity uint8

const (
	soft gravity = iota // is remembered while reading goes on
	hard                // ends the reading
	head                // is found when the type of the object is read, before everything else
)

// step is one step of the way from the root: through a struct, a map or a list that is being walked.
type step struct {
	owner *Type  // the struct; nil for others
	key   string // the current key of a map
	index int    // the current field or item; none if nowhere
	item  bool   // a list
}

// nowhere is the index of a step that is not inside its struct or map: between two fields.
const nowhere = -1

func (r *report) push(s step)  { r.steps = append(r.steps, s) }
func (r *report) pop()         { r.steps = r.steps[:len(r.steps)-1] }
func (r *report) at(index int) { r.steps[len(r.steps)-1].index = index }

// atKey moves to a key of a map.
func (r *report) atKey(key string) {
	top := &r.steps[len(r.steps)-1]
	top.key, top.index = key, 0
}

func (r *report) err() error {
	for g := head; ; g-- {
		if e := r.errors[g]; e != nil {
			return e
		}
		if g == soft {
			return nil
		}
	}
}

// unknown and duplicate report a name in the innermost struct or map.
func (r *report) unknown(name string)   { r.find(unknownField, name) }
func (r *report) duplicate(name string) { r.find("duplicate field ", name) }

const unknownField = "unknown field "

func (r *report) find(what, name string) {
	r.at(nowhere)
	if r.tried++; r.tried > findingsTried || len(r.findings) >= findingsMax {
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

// fail reports a value that cannot be read, in the words of whoever tried. It returns the error if it
// is the first of its gravity, and else nil.
func (r *report) fail(g gravity, text string) *Error {
	if r.errors[g] != nil {
		return nil
	}
	r.errors[g] = &Error{Head: g == head, Path: r.path(), text: text}
	return r.errors[g]
}

// mismatch reports a value of the wrong type. Upstream decodes into Go types, and its clients know
// the text; found is "string", "number 1.5", "object" and so on. It returns what fail does.
func (r *report) mismatch(g gravity, found, goType string) *Error {
	if len(r.steps) > 1 && r.errors[g] != nil {
		return nil
	}
	owner, fields := r.goPath()
	switch {
	case fields == "":
		return r.fail(g, "json: cannot unmarshal "+found+" into Go value of type "+goType)
	case fields == "TypeMeta.apiVersion", fields == "TypeMeta.kind", fields == "apiVersion", fields == "kind":
		// The root's: read beforehand, into a type without a name.
		g, owner, fields = head, "", strings.TrimPrefix(fields, "TypeMeta.")
	}
	return r.fail(g, "json: cannot unmarshal "+found+
		" into Go struct field "+owner+"."+fields+" of type "+goType)
}

// path is how findings spell the place: "spec.containers[0].ports".
func (r *report) path() string {
	var b strings.Builder
	for _, s := range r.steps {
		if s.index == nowhere {
			continue
		}
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
		if s.owner == nil || s.index == nowhere {
			continue
		}
		f := &s.owner.Fields[s.index]
		if s.owner.Loose && f.Type.Name == objectMetaName {
			continue // upstream reads the metadata of such objects by itself
		}
		if f.embedded != "" {
			fields = join(fields, f.embedded)
		}
		fields = join(fields, f.Name)
		owner = s.owner.GoName[strings.LastIndexByte(s.owner.GoName, '.')+1:]
	}
	return owner, fields
}
