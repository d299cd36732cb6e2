// Package patch computes what an object becomes under a patch: JSON Patch (RFC 6902), JSON Merge
// Patch (RFC 7396) and Kubernetes' strategic merge patch. All work on trees, not on text.
//
// They change the object they are given, which must belong to the caller alone. Merge and Strategic
// also take the patch apart, so one that is applied again is copied first; Operations are not
// changed. The functions are pure and may be called concurrently.
//
// None checks the result against a schema: a patched tree may hold anything JSON can, and goes
// through Schema.Conform next.
package patch

import (
	"errors"
	"fmt"
)

var (
	// ErrTooLarge says that a patch has too many operations or grows the object too much.
	ErrTooLarge = errors.New("patch is too large")
	// ErrNotApplicable says that an operation names a place that is not there, or a test failed.
	ErrNotApplicable = errors.New("patch does not apply")
	// ErrTestFailed is ErrNotApplicable because a test operation of a JSON patch failed.
	ErrTestFailed = fmt.Errorf("%w: test failed", ErrNotApplicable)
	// ErrAmbiguous says that a strategic patch names a list item by a key that several items have.
	ErrAmbiguous = errors.New("patch is ambiguous")
	// ErrUnordered says that a strategic patch orders a list whose items no key tells apart.
	ErrUnordered = errors.New("items without a merge key cannot be put in order")
)

// size estimates the bytes of a tree's JSON, from below.
func size(v any) int {
	switch v := v.(type) {
	case map[string]any:
		n := 2
		for k, e := range v {
			n += len(k) + 4 + size(e)
		}
		return n
	case []any:
		n := 2
		for _, e := range v {
			n += 1 + size(e)
		}
		return n
	case string:
		return len(v) + 2
	default:
		return 1
	}
}
