package schema

import (
	"strconv"
)

// Conform makes a tree canonical, in place, as DecodeJSON would have made it from the same
// content: it drops unknown fields (each a finding, in order of path), checks types, rewrites
// quantities and times, and fills in what is always written. The error, if any, is an *Error; the
// tree is not fit for use then.
func (s *Schema) Conform(obj map[string]any) (findings []string, err error) {
	var c conformer
	c.object(s.root(), obj)
	if err := c.err(); err != nil {
		return nil, err
	}
	return s.ordered(c.findings), nil
}

type conformer struct {
	report
	scratch []byte
}

func (c *conformer) object(t *Type, m map[string]any) {
	var few [32]string
	c.push(step{owner: t, index: nowhere})
	for _, key := range sortedKeys(m, few[:0]) {
		i := t.find(key)
		if i < 0 {
			if !t.PreserveUnknown {
				c.unknown(key)
				delete(m, key)
			}
			continue
		}
		f := &t.Fields[i]
		c.at(i)
		v := c.value(f.Type, f.Pointer, m[key])
		if f.omits(v) {
			delete(m, key)
		} else {
			m[key] = v
		}
	}
	c.pop()
	t.fill(m)
}

func (c *conformer) value(t *Type, nullable bool, v any) any {
	if v == nil {
		return null(t, nullable, nil)
	}
	switch t.Kind {
	case Struct:
		if m, ok := v.(map[string]any); ok {
			c.object(t, m)
			return v
		}
	case Map:
		if m, ok := v.(map[string]any); ok {
			c.dictionary(t, m)
			return v
		}
	case List:
		if list, ok := v.([]any); ok {
			c.list(t, list)
			return v
		}
	case Any:
		if t.Meant != 0 {
			c.meant(v)
		}
		return v
	}
	if t.Loose {
		return v
	}
	switch t.Kind {
	case Struct, Map, List:
	case String:
		if _, ok := v.(string); ok {
			return v
		}
	case Bool:
		if _, ok := v.(bool); ok {
			return v
		}
	case Int32, Int64:
		if isNumeric(v) {
			return c.integer(t, soft, v)
		}
	default:
		return c.special(t, v)
	}
	c.wrongType(soft, t, v, t.GoName)
	return nil
}

// meant empties what is no scalar.
func (c *conformer) meant(v any) {
	switch v := v.(type) {
	case map[string]any:
		c.object(emptied, v)
	case []any:
		c.list(emptiedList, v)
	}
}

func (c *conformer) dictionary(t *Type, m map[string]any) {
	var few [16]string
	c.push(step{index: nowhere})
	for _, key := range sortedKeys(m, few[:0]) {
		c.atKey(key)
		m[key] = c.value(t.Elem, t.NullableElem, m[key])
	}
	c.pop()
}

func (c *conformer) list(t *Type, list []any) {
	c.push(step{item: true})
	for i, v := range list {
		c.at(i)
		list[i] = c.value(t.Elem, t.NullableElem, v)
	}
	c.pop()
}

// integer takes a float without a fraction, too: its JSON has none.
func (c *conformer) integer(t *Type, g gravity, v any) any {
	bits, goType := 32, t.GoName
	switch t.Kind {
	case Int64:
		bits = 64
	case IntOrString:
		goType = "int32"
	}
	if n, ok := v.(int64); ok && (bits == 64 || n == int64(int32(n))) {
		return v
	}
	text := numberText(v)
	n, err := strconv.ParseInt(text, 10, bits)
	if err == nil {
		return n
	}
	e := c.mismatch(g, "number "+text, goType)
	if _, isFloat := v.(float64); isFloat && e != nil && t.Kind != IntOrString {
		e.converted = conversionError(t, v)
	}
	return n
}

func (c *conformer) special(t *Type, v any) any {
	text, isText := v.(string)
	switch t.Kind {
	case Bytes:
		if list, ok := v.([]any); ok {
			return c.byteList(list)
		}
		if !isText {
			c.wrongType(soft, t, v, t.GoName)
			return nil
		}
		var err error
		if text, c.scratch, err = canonicalBase64(text, c.scratch); err != nil {
			if e := c.fail(soft, err.Error()); e != nil {
				e.converted = "error decoding from json: " + e.text
			}
		}
		return text
	case Quantity:
		if !isText {
			text = numberText(v)
		}
		q, err := canonicalQuantity(text)
		if err != nil {
			c.fail(hard, err.Error())
		}
		return q
	case IntOrString:
		switch {
		case isText:
			return text
		case isNumeric(v):
			return c.integer(t, hard, v)
		}
		c.wrongType(hard, t, v, "int32")
	case Time, MicroTime:
		if isText {
			at, err := canonicalTime(t.Kind, text)
			if err != nil {
				c.fail(hard, err.Error())
			}
			return at
		}
		c.wrongType(hard, t, v, "string")
	}
	return nil
}

// byteList takes numbers for bytes, as DecodeJSON does; null is none.
func (c *conformer) byteList(list []any) any {
	b := make([]byte, 0, len(list))
	for _, v := range list {
		n, err := strconv.ParseUint(numberText(v), 10, 8)
		switch {
		case isNumeric(v) && err != nil:
			c.mismatch(soft, "number "+numberText(v), "uint8")
		case !isNumeric(v) && v != nil:
			c.mismatch(soft, foundValue(v), "uint8")
		}
		b = append(b, byte(n))
	}
	return encodeBase64(b)
}

func isNumeric(v any) bool {
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
}

// numberText is the JSON text of a number, and something that is no number for other values.
func numberText(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		e := encoder{}
		e.float(v)
		return string(e.out)
	}
	return foundValue(v)
}

// foundValue names a value as type errors do.
func foundValue(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case bool:
		return "bool"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	}
	return "number"
}
