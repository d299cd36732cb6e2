package schema

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// formed reads a value that protobuf has not as JSON has it.
func (d *protoDecoder) formed(t *Type, v wireValue) (any, error) {
	if t.proto == protoDouble {
		if v.kind != protowire.Fixed64Type {
			return nil, wrongWire(t, v)
		}
		return number(math.Float64frombits(v.number)), nil
	}
	if !v.isBytes() {
		return nil, wrongWire(t, v)
	}
	c := choice{t: t}
	for data := v.bytes; len(data) > 0; {
		n, v, rest, err := nextField(data)
		if err == nil {
			err = d.choose(&c, n, v)
		}
		if err != nil {
			return nil, err
		}
		data = rest
	}
	return c.value(), nil
}

// number is a double as a tree has it, where reading its JSON again leads to the same.
func number(f float64) any {
	if i := int64(f); float64(i) == f && math.Abs(f) < 1<<53 {
		return i
	}
	return f
}

// choice is a struct, or what else may stand in its place.
type choice struct {
	t      *Type
	object map[string]any
	list   []any
	allows bool
}

func (d *protoDecoder) choose(c *choice, n protowire.Number, v wireValue) (err error) {
	switch {
	case c.t.proto == protoOrBool && n == 1 && v.kind == protowire.VarintType:
		c.allows = v.number != 0
	case c.t.proto == protoOrBool && n == 2 && v.isBytes(),
		c.t.proto != protoOrBool && n == 1 && v.isBytes():
		c.object, err = d.object(c.t, v.bytes, c.object)
	case c.t.proto == protoOrArray && n == 2 && v.isBytes():
		var item map[string]any
		item, err = d.object(c.t, v.bytes, nil)
		c.list = append(c.list, item)
	case c.t.proto == protoOrStrings && n == 2 && v.isBytes():
		c.list = append(c.list, d.text(v.bytes))
	}
	return err
}

// value is what upstream's types write as JSON.
func (c *choice) value() any {
	switch {
	case c.list != nil:
		return c.list
	case c.object != nil:
		return c.object
	case c.t.proto == protoOrBool:
		return c.allows
	}
	return nil
}
