package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	fast "github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	kubejson "sigs.k8s.io/json"
)

// Event is one event of a watch; the object is as the server wrote it.
type Event struct {
	Type   watch.EventType
	Object []byte
}

// Events reads a watch without decoding its objects.
type Events struct{ frames frames }

// NewEvents returns a reader of the JSON that a watch is answered with.
func NewEvents(body io.ReadCloser) *Events { return &Events{frames{source: body}} }

// Next waits for the next event. Its object is good until Next is called again.
// Possible errors: io.EOF, when the server has ended the watch.
func (e *Events) Next() (Event, error) {
	frame, err := e.frames.next()
	if err != nil {
		return Event{}, err
	}
	if kind, object, ok := splitEvent(frame); ok {
		return Event{watch.EventType(kind), object}, nil
	}
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(frame, &event); err != nil {
		return Event{}, fmt.Errorf("wire: read an event of a watch: %w", err)
	}
	return Event{event.Type, event.Object}, nil
}

// Items reads a list and calls fn with each of its items, which are good only during the call. It
// holds one item at a time, however long the list is.
func Items(body io.ReadCloser, fn func(item []byte) error) (metav1.ListMeta, error) {
	var meta metav1.ListMeta
	l := list{frames{source: body}}
	err := l.members(func(name string) error {
		switch name {
		case "metadata":
			text, err := l.value()
			if err != nil {
				return err
			}
			return json.Unmarshal(text, &meta)
		case "items":
			return l.items(fn)
		}
		_, err := l.value()
		return err
	})
	if err != nil {
		return meta, fmt.Errorf("wire: read a list: %w", err)
	}
	return meta, nil
}

// list reads the parts of a list from a stream.
type list struct{ frames }

// members calls fn at each member, which has to read its value.
func (l *list) members(fn func(name string) error) error {
	if err := l.expect('{'); err != nil {
		return err
	}
	for {
		switch c, err := l.peek(); {
		case err != nil:
			return err
		case c == '}':
			return nil
		case c == ',':
			l.buf = l.buf[1:]
			continue
		}
		text, err := l.value()
		if err != nil {
			return err
		}
		name := string(bytes.Trim(text, `"`))
		if err := l.expect(':'); err != nil {
			return err
		}
		if err := fn(name); err != nil {
			return err
		}
	}
}

func (l *list) items(fn func([]byte) error) error {
	c, err := l.peek()
	if err != nil {
		return err
	}
	if c == 'n' { // null
		_, err := l.value()
		return err
	}
	if err := l.expect('['); err != nil {
		return err
	}
	for {
		switch c, err := l.peek(); {
		case err != nil:
			return err
		case c == ']':
			l.buf = l.buf[1:]
			return nil
		case c == ',':
			l.buf = l.buf[1:]
			continue
		}
		item, err := l.value()
		if err != nil {
			return err
		}
		if err := fn(item); err != nil {
			return err
		}
	}
}

// expect goes behind a byte.
func (l *list) expect(want byte) error {
	c, err := l.peek()
	if err != nil {
		return err
	}
	if c != want {
		return fmt.Errorf("found %q, want %q", c, want)
	}
	l.buf = l.buf[1:]
	return nil
}

// peek returns the next byte that is not space.
func (l *list) peek() (byte, error) {
	for {
		if i := space(l.buf, 0); i < len(l.buf) {
			l.buf = l.buf[i:]
			return l.buf[0], nil
		}
		l.buf = l.buf[:0]
		if err := l.more(); err != nil {
			return 0, err
		}
	}
}

// value returns the next value, which is good until more is read.
func (l *list) value() ([]byte, error) {
	c, err := l.peek()
	if err != nil {
		return nil, err
	}
	if c == '{' || c == '[' {
		return l.next()
	}
	for {
		// A number or a word ends with what follows it, so that has to be there.
		if end, err := skip(l.buf, 0); err == nil && (c == '"' || end < len(l.buf)) {
			text := l.buf[:end]
			l.buf = l.buf[end:]
			return text, nil
		}
		if err := l.more(); err != nil {
			return nil, err
		}
	}
}

// more reads more; the end is too early.
func (f *frames) more() error {
	f.makeRoom()
	n, err := f.source.Read(f.buf[len(f.buf):cap(f.buf)])
	f.buf = f.buf[:len(f.buf)+n]
	if n == 0 && err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	if n == 0 {
		return err
	}
	return nil
}

// Decode reads an object as client-go does: names of members in their case, whole numbers as such.
func Decode(text []byte, into runtime.Object) error {
	if loose, ok := into.(runtime.Unstructured); ok {
		content := map[string]any{}
		if err := utiljson.Unmarshal(text, &content); err != nil {
			return err
		}
		loose.SetUnstructuredContent(content)
		return nil
	}
	if strict(reflect.TypeOf(into)) && fast.Unmarshal(text, into) == nil {
		return nil
	}
	reflect.ValueOf(into).Elem().SetZero()
	return kubejson.UnmarshalCaseSensitivePreserveInts(text, into)
}
