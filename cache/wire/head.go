package wire

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Head is what is told of an object without decoding it. Its strings share one allocation.
type Head struct {
	Namespace, Name string
	UID             string
	Version         string // metadata.resourceVersion
	Controller      string // uid of the owner that is the controller
	Deleting        bool   // metadata.deletionTimestamp is set

	labels string // name, zero byte, value, zero byte, and so on
	owners string // uids, each followed by a zero byte
}

var errText = errors.New("wire: not the JSON of an object")

// ReadHead reads the metadata of an object, and nothing else: that the rest is well-formed is not
// checked.
// Possible errors: the text does not begin like that of an object with metadata.
func ReadHead(text []byte) (Head, error) {
	p := headParts{buf: make([]byte, 0, 256)} // as much as most have
	found := false
	err := members(text, func(name, value []byte) (bool, error) {
		if string(name) != "metadata" {
			return true, nil
		}
		found = true
		return false, members(value, p.take)
	})
	switch {
	case err != nil:
		return Head{}, err
	case !found:
		return Head{}, fmt.Errorf("%w: it has no metadata", errText)
	}
	return p.head(), nil
}

// headParts are the fields of a head as they are found, in one buffer.
type headParts struct {
	buf                           []byte
	namespace, name, uid, version span
	labels, owners, controller    span
	deleting                      bool
}

type span struct{ from, to int }

func (p *headParts) take(name, value []byte) (more bool, err error) {
	switch string(name) {
	case "namespace":
		p.namespace, err = p.text(value)
	case "name":
		p.name, err = p.text(value)
	case "uid":
		p.uid, err = p.text(value)
	case "resourceVersion":
		p.version, err = p.text(value)
	case "deletionTimestamp":
		p.deleting = value[0] == '"'
	case "labels":
		p.labels.from = len(p.buf)
		err = p.takeLabels(value)
		p.labels.to = len(p.buf)
	case "ownerReferences":
		p.owners.from = len(p.buf)
		err = p.takeOwners(value)
		p.owners.to = len(p.buf)
	}
	return true, err
}

func (p *headParts) text(value []byte) (span, error) {
	from := len(p.buf)
	err := p.append(value)
	return span{from, len(p.buf)}, err
}

// append adds what a string stands for; null is an empty one.
func (p *headParts) append(value []byte) error {
	if string(value) == "null" {
		return nil
	}
	if len(value) < 2 || value[0] != '"' {
		return fmt.Errorf("%w: %.20q is not a string", errText, value)
	}
	if bytes.IndexByte(value, '\\') < 0 {
		p.buf = append(p.buf, value[1:len(value)-1]...)
		return nil
	}
	var err error
	p.buf, err = jsontext.AppendUnquote(p.buf, value)
	return err
}

func (p *headParts) takeLabels(value []byte) error {
	if value[0] != '{' {
		return nil
	}
	return members(value, func(name, value []byte) (bool, error) {
		p.buf = append(append(p.buf, name...), 0)
		err := p.append(value)
		p.buf = append(p.buf, 0)
		return true, err
	})
}

func (p *headParts) takeOwners(value []byte) error {
	if value[0] != '[' {
		return nil
	}
	return elements(value, func(ref []byte) error {
		var uid span
		controls := false
		err := members(ref, func(name, value []byte) (_ bool, err error) {
			switch string(name) {
			case "uid":
				uid, err = p.text(value)
				p.buf = append(p.buf, 0)
			case "controller":
				controls = string(value) == "true"
			}
			return true, err
		})
		if controls {
			p.controller = uid
		}
		return err
	})
}

func (p *headParts) head() Head {
	all := string(p.buf)
	of := func(s span) string { return all[s.from:s.to] }
	return Head{
		Namespace: of(p.namespace), Name: of(p.name), UID: of(p.uid), Version: of(p.version),
		Controller: of(p.controller), Deleting: p.deleting, labels: of(p.labels), owners: of(p.owners),
	}
}

// Label returns the value of a label.
func (h *Head) Label(name string) (value string, ok bool) {
	for rest := h.labels; rest != ""; {
		var k, v string
		k, rest = cutZero(rest)
		v, rest = cutZero(rest)
		if k == name {
			return v, true
		}
	}
	return "", false
}

// Labels is a Head as labels.Labels, for selectors.
type Labels struct{ *Head }

// Has says whether there is a label of the name.
func (l Labels) Has(name string) bool { _, ok := l.Label(name); return ok }

// Get returns the value of a label, "" if there is none.
func (l Labels) Get(name string) string { v, _ := l.Label(name); return v }

// Lookup is Label.
func (l Labels) Lookup(name string) (string, bool) { return l.Label(name) }

// Owners returns the uids of the owners.
func (h *Head) Owners() []string {
	var uids []string
	for rest := h.owners; rest != ""; {
		var uid string
		uid, rest = cutZero(rest)
		uids = append(uids, uid)
	}
	return uids
}

func cutZero(s string) (before, after string) {
	for i := range len(s) {
		if s[i] == 0 {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
