package wire

import (
	"reflect"
	"sync"

	fast "github.com/go-json-experiment/json"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// partMin is the shortest text of a part that is shared: about that of a map of one label, which
	// takes ten times its text when it is decoded. Shorter ones cost as much to find as to decode.
	partMin = 24
	// partMax bounds the text of one part, so that a large one does not push out all others.
	partMax = 16 << 10
	// partsMax bounds the texts of the parts that are remembered, twice: those of late, and those
	// before. What was decoded from them takes about three times that.
	partsMax = 256 << 10
)

// Parts decodes objects into Go types, and has those that say the same in some part share it: the
// states of an object before and after a change of its status have one spec, and the pods of a
// deployment one environment. That takes less time than decoding it again, and less memory. Whoever
// has such an object must therefore not change it, but a copy.
//
// A part is a struct, slice, map or pointer within an object. It is known by its type and its text,
// and remembered while it comes up again, within bounds. The zero value is ready for use, by many
// goroutines.
type Parts struct {
	mu       sync.Mutex
	late     map[part]reflect.Value
	before   map[part]reflect.Value
	lateText int // bytes
}

type part struct {
	of   reflect.Type
	text string
}

// Decode is the function Decode with parts that other objects may have, too.
func (p *Parts) Decode(text []byte, into runtime.Object) error {
	if s := shapeOf(reflect.TypeOf(into)); s != nil {
		c := cutters.Get().(*cutter)
		defer c.release()
		c.parts = p
		if c.cutAll(text, s) == nil && fast.Unmarshal(c.out, into) == nil {
			c.fill(reflect.ValueOf(into))
			return nil
		}
		reflect.ValueOf(into).Elem().SetZero()
	}
	return Decode(text, into)
}

// Sweep forgets the parts that have not come up since the last time.
func (p *Parts) Sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.age()
}

func (p *Parts) age() { p.late, p.before, p.lateText = nil, p.late, 0 }

// find returns what a part was decoded to; it is not valid if that is not known.
func (p *Parts) find(of reflect.Type, text []byte) reflect.Value {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v, ok := p.late[part{of, string(text)}]; ok {
		return v
	}
	return p.before[part{of, string(text)}]
}

// use has a part that was found be remembered for longer.
func (p *Parts) use(v reflect.Value, text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.late[part{v.Type(), string(text)}]; !ok {
		p.remember(part{v.Type(), string(text)}, v)
	}
}

// learn remembers what a part was decoded to.
func (p *Parts) learn(decoded reflect.Value, text []byte) {
	v := reflect.New(decoded.Type()).Elem()
	v.Set(decoded)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remember(part{v.Type(), string(text)}, v)
}

func (p *Parts) remember(k part, v reflect.Value) {
	if p.lateText += len(k.text); p.lateText > partsMax {
		p.age()
		p.lateText = len(k.text)
	}
	if p.late == nil {
		p.late = make(map[part]reflect.Value)
	}
	p.late[k] = v
}

// A cutter cuts parts out of a text, so that what is left decodes faster, and puts into what was
// decoded of that what the parts are.
type cutter struct {
	parts *Parts
	out   []byte // the text with null for each known part
	path  []int  // from the object to where it is: fields of structs and elements of slices
	paths []int  // those of places, one behind the other
	found []place
	fresh []place // of parts that are not known
}

// place is where a part belongs.
type place struct {
	from, to int // in paths
	known    reflect.Value
	text     []byte
}

var cutters = sync.Pool{New: func() any { return new(cutter) }}

func (c *cutter) release() {
	clear(c.found[:cap(c.found)])
	clear(c.fresh[:cap(c.fresh)])
	*c = cutter{out: c.out[:0], path: c.path[:0], paths: c.paths[:0], found: c.found[:0], fresh: c.fresh[:0]}
	if cap(c.out) < 16*partMax { // one large text is no reason to hold so much for good
		cutters.Put(c)
	}
}

// cutAll takes in the text of an object.
func (c *cutter) cutAll(text []byte, s *shape) error {
	end, err := c.cut(text, space(text, 0), s)
	if err == nil && space(text, end) != len(text) {
		return errText
	}
	return err
}

// depthMax bounds how deep parts are looked for. Lists of containers with what they mount are at six.
const depthMax = 8

// cut takes in the value that begins at i, and returns where it ends.
func (c *cutter) cut(text []byte, i int, s *shape) (end int, err error) {
	before, found, fresh := len(c.out), len(c.found), len(c.fresh)
	switch {
	case s == nil || i >= len(text) || len(c.path) == depthMax || !s.opens(text[i]):
		if end, err = skip(text, i); err != nil {
			return 0, err
		}
		c.out = append(c.out, text[i:end]...)
	default:
		if end, err = c.cutInside(text, i, s); err != nil {
			return 0, err
		}
	}
	if s == nil || !s.part || end-i < partMin || end-i > partMax {
		return end, nil
	}
	at := place{from: len(c.paths), known: c.parts.find(s.of, text[i:end]), text: text[i:end]}
	c.paths = append(c.paths, c.path...)
	at.to = len(c.paths)
	if !at.known.IsValid() {
		c.fresh = append(c.fresh, at)
		return end, nil
	}
	// What is in it needs no look.
	c.found, c.fresh = append(c.found[:found], at), c.fresh[:fresh]
	c.out = append(c.out[:before], "null"...)
	return end, nil
}

// cutInside takes in an object or an array by its members or elements.
func (c *cutter) cutInside(text []byte, i int, s *shape) (end int, err error) {
	open := text[i]
	c.out = append(c.out, open)
	i = space(text, i+1)
	if i < len(text) && text[i] == open+2 {
		c.out = append(c.out, open+2)
		return i + 1, nil
	}
	for n := 0; ; n++ {
		index, inner := n, s.element
		if open == '{' {
			var f field
			if f, i, err = c.cutName(text, i, s); err != nil {
				return 0, err
			}
			index, inner = f.index, f.shape
		}
		c.path = append(c.path, index)
		if i, err = c.cut(text, i, inner); err != nil {
			return 0, err
		}
		c.path = c.path[:len(c.path)-1]
		if i = space(text, i); i >= len(text) || text[i] != ',' && text[i] != open+2 {
			return 0, errText
		}
		c.out = append(c.out, text[i])
		if text[i] != ',' {
			return i + 1, nil
		}
		i = space(text, i+1)
	}
}

// cutName takes in the name of a member, and returns where its value begins.
func (c *cutter) cutName(text []byte, i int, s *shape) (f field, value int, err error) {
	end, err := skip(text, i)
	if err != nil || text[i] != '"' {
		return f, 0, errText
	}
	c.out = append(append(c.out, text[i:end]...), ':')
	f = s.fields[string(text[i+1:end-1])] // none, if its name is written with escapes
	if i = space(text, end); i >= len(text) || text[i] != ':' {
		return f, 0, errText
	}
	return f, space(text, i+1), nil
}

// fill completes what was decoded, and then learns its parts.
func (c *cutter) fill(object reflect.Value) {
	for _, at := range c.found {
		c.follow(object, at).Set(at.known)
		c.parts.use(at.known, at.text)
	}
	for _, at := range c.fresh {
		c.parts.learn(c.follow(object, at), at.text)
	}
}

func (c *cutter) follow(v reflect.Value, at place) reflect.Value {
	for _, i := range c.paths[at.from:at.to] {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() == reflect.Slice {
			v = v.Index(i)
		} else {
			v = v.Field(i)
		}
	}
	return v
}
