package schema

import (
	"strconv"
	"strings"
)

func (d *decoder) integer(t *Type, g gravity) any {
	bits := 64
	if t.Kind != Int64 {
		bits = 32
	}
	text := d.number()
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		goType := t.GoName
		if t.Kind == IntOrString {
			goType = "int32"
		}
		d.mismatch(g, "number "+text, goType)
	}
	return n
}

// special reads the values that have a reader of their own upstream, whose errors are hard.
func (d *decoder) special(t *Type, c byte) any {
	switch t.Kind {
	case Bytes:
		return d.bytes(t, c)
	case Quantity:
		text := d.skip()
		if c == '"' && !d.bad {
			text = text[1 : len(text)-1] // not unescaped; no quantity has an escape
		}
		q, err := canonicalQuantity(text)
		if err != nil {
			d.fail(hard, err.Error())
		}
		return q
	case IntOrString:
		switch {
		case c == '"':
			return d.string()
		case isNumber(c):
			return d.integer(t, hard)
		}
		d.mismatch(hard, found(c), "int32")
	case Time, MicroTime:
		if c == '"' {
			return d.time(t, d.string())
		}
		d.mismatch(hard, found(c), "string")
	}
	d.skip()
	return nil
}

func (d *decoder) time(t *Type, text string) any {
	v, err := canonicalTime(t.Kind, text)
	if err != nil {
		d.fail(hard, err.Error())
	}
	return v
}

// bytes reads base64, or an array of numbers: what Go's []byte takes.
func (d *decoder) bytes(t *Type, c byte) any {
	switch c {
	case '"':
		text := d.string()
		var v string
		var err error
		v, d.scratch, err = canonicalBase64(text, d.scratch)
		if err != nil {
			d.fail(soft, err.Error())
		}
		return v
	case '[':
		return d.byteArray()
	}
	d.mismatch(soft, found(c), t.GoName)
	d.skip()
	return nil
}

func (d *decoder) byteArray() any {
	b := []byte{}
	d.enter()
	for first := true; d.more(']', first); first = false {
		c := d.space()
		text := d.skip()
		n, err := strconv.ParseUint(text, 10, 8)
		switch {
		case isNumber(c) && err != nil:
			d.mismatch(soft, "number "+text, "uint8")
		case !isNumber(c) && c != 'n':
			d.mismatch(soft, found(c), "uint8")
		}
		b = append(b, byte(n))
	}
	return encodeBase64(b)
}

// tree reads any value. With strict, a key that stands twice is a finding.
func (d *decoder) tree(strict bool) any {
	switch c := d.space(); c {
	case '"':
		return d.string()
	case '{':
		return d.anyObject(strict)
	case '[':
		base := len(d.items)
		d.enter()
		d.push(step{item: true})
		for first := true; d.more(']', first); first = false {
			d.at(len(d.items) - base)
			d.items = append(d.items, d.tree(strict))
		}
		d.pop()
		return d.takeItems(base)
	case 'n':
		d.literal("null")
		return nil
	case 't', 'f':
		return d.bool()
	}
	return d.anyNumber()
}

func (d *decoder) anyObject(strict bool) any {
	base := len(d.entries)
	var seen map[string]bool
	d.enter()
	d.push(step{index: nowhere})
	for first := true; d.more('}', first); first = false {
		key := d.key()
		if strict {
			seen = d.sawKey(base, seen, key)
		}
		d.atKey(key)
		v := d.tree(strict)
		d.entries = append(d.entries, entry{key: key, value: v})
	}
	d.pop()
	return d.takeMap(base, nil)
}

// anyNumber reads an integer as one if it fits.
func (d *decoder) anyNumber() any {
	text := d.number()
	if !strings.Contains(text, ".") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		d.mismatch(soft, "number "+text, "float64")
	}
	return f
}
