// Package check helps to write the rules that objects must keep: a place in an object that knows
// its path, and a list that what breaks a rule is added to.
//
//	func ports(errs *check.Errors, spec check.At) {
//		for _, port := range spec.Each("ports") {
//			errs.PortNumber(port.At("port"), port.Int("port"))
//		}
//	}
//
// What is wrong is worded as Kubernetes words it, because clients show it and some read it. Most
// objects are right, so paths are made only when something is said about them.
package check

import (
	"iter"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Path is where something is in an object. It is cheap to make and to pass on; Field makes the form
// that messages have.
type Path struct {
	up   *field.Path // the path itself, if there is no step
	name string
	at   int
	step step
}

// step is how the last part of a path leads on.
type step uint8

const (
	none step = iota
	child
	index
	key
)

// NewPath is the path of a field of the object, or of one further down.
func NewPath(name string, more ...string) Path { return Path{up: field.NewPath(name, more...)} }

// Field returns the path as errors have it.
func (p Path) Field() *field.Path {
	switch p.step {
	case child:
		return p.up.Child(p.name)
	case index:
		return p.up.Index(p.at)
	case key:
		return p.up.Key(p.name)
	}
	return p.up
}

// String writes the path out: "spec.containers[0].name".
func (p Path) String() string { return p.Field().String() }

// Child is the path of a field.
func (p Path) Child(name string) Path { return Path{up: p.Field(), name: name, step: child} }

// Index is the path of an item of a list.
func (p Path) Index(i int) Path { return Path{up: p.Field(), at: i, step: index} }

// Key is the path of a value of a map.
func (p Path) Key(name string) Path { return Path{up: p.Field(), name: name, step: key} }

// At is a map in an object, and the path to it. A nil Map reads as an empty one, so that a rule can
// go down without asking at each step; Exists asks.
type At struct {
	Map  map[string]any
	Path Path
}

// Root is the object itself; its fields have paths of one name.
func Root(obj map[string]any) At { return At{Map: obj} }

// Exists says whether there is such a map.
func (a At) Exists() bool { return a.Map != nil }

// At returns the path of a field of the map.
func (a At) At(name string) Path { return a.Path.Child(name) }

// Child is the map in a field.
func (a At) Child(name string) At {
	m := tree.Map(a.Map, name)
	path := a.At(name)
	if m != nil { // more will be asked of it
		path = Path{up: path.Field()}
	}
	return At{m, path}
}

// Each goes through the maps in the list in a field.
func (a At) Each(name string) iter.Seq2[int, At] {
	return func(yield func(int, At) bool) {
		list := tree.List(a.Map, name)
		if len(list) == 0 {
			return
		}
		path := a.At(name).Field()
		for i, v := range list {
			if m, ok := v.(map[string]any); ok && !yield(i, At{m, Path{up: path.Index(i)}}) {
				return
			}
		}
	}
}

// Get returns the value of a field, or nil.
func (a At) Get(name string) any { return a.Map[name] }

// Has says whether a field has a value that is not nil.
func (a At) Has(name string) bool { return a.Map[name] != nil }

// Str returns the string in a field, or "".
func (a At) Str(name string) string { return tree.Str(a.Map, name) }

// Int returns the integer in a field, or 0.
func (a At) Int(name string) int64 { return tree.Int(a.Map, name) }

// Bool returns the boolean in a field, or false.
func (a At) Bool(name string) bool { return tree.Bool(a.Map, name) }

// Len returns how many items the list in a field has, or 0.
func (a At) Len(name string) int { return len(tree.List(a.Map, name)) }

// Strings returns the strings in the list in a field, or nil.
func (a At) Strings(name string) []string { return tree.Strings(a.Map, name) }

// StringMap returns the strings in the map in a field, or nil.
func (a At) StringMap(name string) map[string]string { return tree.StringMap(a.Map, name) }

// Errors is a list of what is wrong, in the order in which it was found. The zero value is ready.
type Errors struct {
	list  field.ErrorList
	later *Errors
}

// List returns what was added, nil if nothing was.
func (e *Errors) List() field.ErrorList {
	if e.later == nil {
		return e.list
	}
	return append(e.list[:len(e.list):len(e.list)], e.later.List()...)
}

// OK says that nothing has been added.
func (e *Errors) OK() bool { return len(e.list) == 0 && (e.later == nil || e.later.OK()) }

// Later returns a list whose errors come behind all of this one's. Kubernetes has some rules in its
// types' declarations and applies them after those that it has in code.
func (e *Errors) Later() *Errors {
	if e.later == nil {
		e.later = &Errors{}
	}
	return e.later
}

// Add adds errors made elsewhere; nil ones are left out.
func (e *Errors) Add(errs ...*field.Error) {
	for _, err := range errs {
		if err != nil {
			e.list = append(e.list, err)
		}
	}
}

// Required says that a field has no value. The detail may be "".
func (e *Errors) Required(path Path, detail string) { e.Add(field.Required(path.Field(), detail)) }

// Invalid says that a field's value breaks a rule.
func (e *Errors) Invalid(path Path, value any, detail string) {
	e.Add(field.Invalid(path.Field(), value, detail))
}

// Messages adds an Invalid for each message that one of apimachinery's checks returned.
func (e *Errors) Messages(path Path, value any, messages []string) {
	for _, msg := range messages {
		e.Invalid(path, value, msg)
	}
}

// Forbidden says that a field may not be set, or changed, as things are.
func (e *Errors) Forbidden(path Path, detail string) { e.Add(field.Forbidden(path.Field(), detail)) }

// Duplicate says that something else has the value already.
func (e *Errors) Duplicate(path Path, value any) { e.Add(field.Duplicate(path.Field(), value)) }

// NotFound says that there is nothing of the name that the field gives.
func (e *Errors) NotFound(path Path, value any) { e.Add(field.NotFound(path.Field(), value)) }

// TooMany says that a list of n items may have no more than most.
func (e *Errors) TooMany(path Path, n, most int) { e.Add(field.TooMany(path.Field(), n, most)) }

// TooLong says that a value may have no more than most bytes.
func (e *Errors) TooLong(path Path, most int) { e.Add(field.TooLong(path.Field(), "", most)) }

// NotSupported says that a value is none of those allowed.
func (e *Errors) NotSupported(path Path, value any, allowed ...string) {
	e.Add(field.NotSupported(path.Field(), value, allowed))
}
