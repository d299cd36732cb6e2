package patch

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// OperationsMax bounds the operations of one JSON patch, as upstream does. Each is cheap; the bound
// keeps a body of three megabytes from holding a hundred thousand list insertions.
const OperationsMax = 10000

// copiedBytesMax bounds what the copy operations of one patch may add, since a few of them can
// double a document again and again. It equals the largest body a request may have.
const copiedBytesMax = 3 << 20

// jsonPatchOp is one operation as it stands in a patch. The name shows in decoding errors.
type jsonPatchOp struct {
	Op    string  `json:"op"`
	Path  *string `json:"path"`
	From  *string `json:"from"`
	Value any     `json:"value"`
}

// Operations is a decoded JSON patch. It is read-only and may be applied any number of times.
type Operations []jsonPatchOp

// ParseJSON decodes a JSON patch. The findings name duplicate and unknown members of operations; it
// is for the caller to refuse them or to warn.
// Possible errors: ErrTooLarge, and those of decoding.
func ParseJSON(data []byte) (ops Operations, findings []error, err error) {
	findings, err = kjson.UnmarshalStrict(data, &ops)
	if err != nil {
		// Upstream prints the name of its own Go type here.
		text := strings.ReplaceAll(err.Error(), "patch.Operations", "[]handlers.jsonPatchOp")
		return nil, nil, errors.New(strings.ReplaceAll(text, "patch.jsonPatchOp", "handlers.jsonPatchOp"))
	}
	if len(ops) > OperationsMax {
		return nil, nil, fmt.Errorf("%w: the allowed maximum operations in a JSON patch is %d, got %d",
			ErrTooLarge, OperationsMax, len(ops))
	}
	return ops, findings, nil
}

// Apply applies the operations in order. A list index may be negative, counting from the end, and
// replacing a member that is not there adds it: both are what upstream's library does.
// Possible errors: ErrNotApplicable, ErrTooLarge. The tree is then half changed.
func (ops Operations) Apply(obj map[string]any) (map[string]any, error) {
	var doc any = obj
	copied := 0
	for i, op := range ops {
		var err error
		if doc, err = op.apply(doc, &copied); err != nil {
			return nil, fmt.Errorf("operation %d (%s %s): %w", i, op.Op, deref(op.Path), err)
		}
	}
	obj, ok := doc.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: the result is a list, not an object", ErrNotApplicable)
	}
	return obj, nil
}

func (op jsonPatchOp) apply(doc any, copied *int) (any, error) {
	if op.Path == nil || (op.From == nil && (op.Op == "move" || op.Op == "copy")) {
		return nil, fmt.Errorf("%w: path or from is missing", ErrNotApplicable)
	}
	switch op.Op {
	case "add":
		return add(doc, *op.Path, tree.Copy(op.Value))
	case "remove":
		return remove(doc, *op.Path)
	case "replace":
		if *op.Path == "" {
			return replaceRoot(tree.Copy(op.Value))
		}
		return edit(doc, *op.Path, func(c any, key string) (any, error) { return set(c, key, tree.Copy(op.Value)) })
	case "move":
		v, err := lookup(doc, *op.From)
		if err != nil {
			return nil, err
		}
		if doc, err = remove(doc, *op.From); err != nil {
			return nil, err
		}
		return add(doc, *op.Path, v)
	case "copy":
		v, err := lookup(doc, *op.From)
		if err != nil {
			return nil, err
		}
		if *copied += size(v); *copied > copiedBytesMax {
			return nil, fmt.Errorf("%w: copies may add at most %d bytes", ErrTooLarge, copiedBytesMax)
		}
		return add(doc, *op.Path, tree.Copy(v))
	case "test":
		v, err := doc, error(nil)
		if *op.Path != "" {
			v, err = lookup(doc, *op.Path)
		}
		if err == nil && !reflect.DeepEqual(v, op.Value) {
			err = ErrTestFailed
		}
		return doc, err
	default:
		return nil, fmt.Errorf("%w: unexpected kind: %q", ErrNotApplicable, op.Op)
	}
}

// edit walks to the container of the path's last element, lets change replace the container, and
// returns the document that holds the replacement.
func edit(doc any, path string, change func(container any, key string) (any, error)) (any, error) {
	tokens := strings.Split(path, "/")
	if len(tokens) < 2 {
		return nil, fmt.Errorf("%w: %q is not a path", ErrNotApplicable, path)
	}
	return editAt(doc, tokens[1:], change)
}

func editAt(node any, tokens []string, change func(any, string) (any, error)) (any, error) {
	key := unescape(tokens[0])
	if len(tokens) == 1 {
		return change(node, key)
	}
	child, err := member(node, key)
	if err != nil {
		return nil, err
	}
	if child, err = editAt(child, tokens[1:], change); err != nil {
		return nil, err
	}
	return set(node, key, child)
}

func lookup(doc any, path string) (value any, err error) {
	_, err = edit(doc, path, func(c any, key string) (any, error) {
		value, err = member(c, key)
		return c, err
	})
	return value, err
}

func add(doc any, path string, v any) (any, error) {
	return edit(doc, path, func(c any, key string) (any, error) {
		list, ok := c.([]any)
		if !ok {
			return set(c, key, v)
		}
		if key == "-" {
			return append(list, v), nil
		}
		i, err := index(key, len(list)+1)
		if err != nil {
			return nil, err
		}
		list = append(list, nil)
		copy(list[i+1:], list[i:])
		list[i] = v
		return list, nil
	})
}

func remove(doc any, path string) (any, error) {
	return edit(doc, path, func(c any, key string) (any, error) {
		switch c := c.(type) {
		case map[string]any:
			if _, ok := c[key]; !ok {
				return nil, fmt.Errorf("%w: there is no member %q", ErrNotApplicable, key)
			}
			delete(c, key)
			return c, nil
		case []any:
			i, err := index(key, len(c))
			if err != nil {
				return nil, err
			}
			return append(c[:i], c[i+1:]...), nil
		default:
			return nil, notContainer(key)
		}
	})
}

// member returns a member of an object, nil if there is none, or an element of a list.
func member(c any, key string) (any, error) {
	switch c := c.(type) {
	case map[string]any:
		return c[key], nil
	case []any:
		i, err := index(key, len(c))
		if err != nil {
			return nil, err
		}
		return c[i], nil
	default:
		return nil, notContainer(key)
	}
}

// set puts a member into an object, or replaces an element of a list.
func set(c any, key string, v any) (any, error) {
	switch c := c.(type) {
	case map[string]any:
		c[key] = v
		return c, nil
	case []any:
		i, err := index(key, len(c))
		if err != nil {
			return nil, err
		}
		c[i] = v
		return c, nil
	default:
		return nil, notContainer(key)
	}
}

func replaceRoot(v any) (any, error) {
	switch v.(type) {
	case map[string]any, []any:
		return v, nil
	default:
		return nil, fmt.Errorf("%w: only an object or a list can replace the whole", ErrNotApplicable)
	}
}

// index reads a list index below n; -1 is the last of the n.
func index(key string, n int) (int, error) {
	i, err := strconv.Atoi(key)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is not a list index", ErrNotApplicable, key)
	}
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return 0, fmt.Errorf("%w: index %s is outside a list of %d", ErrNotApplicable, key, n)
	}
	return i, nil
}

func notContainer(key string) error {
	return fmt.Errorf("%w: nothing that could have a member %q", ErrNotApplicable, key)
}

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")

func unescape(token string) string { return unescaper.Replace(token) }

func deref(s *string) string {
	if s == nil {
		return "(no path)"
	}
	return *s
}
