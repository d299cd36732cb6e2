package builtin

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// unchanged makes ValidateUpdate of a kind some of whose fields may not change; the paths are dotted.
func unchanged(paths ...string) func(obj, old kinds.Object) field.ErrorList {
	return fixed(check.Changed, paths)
}

// declaredImmutable is unchanged where Kubernetes declares it with the type. Then it does not say what was found.
func declaredImmutable(paths ...string) func(obj, old kinds.Object) field.ErrorList {
	return fixed(func(any) any { return nil }, paths)
}

func fixed(found func(v any) any, paths []string) func(obj, old kinds.Object) field.ErrorList {
	return func(obj, old kinds.Object) field.ErrorList {
		var e check.Errors
		for _, path := range paths {
			keys := split(path)
			v, was := tree.Get(obj, keys...), tree.Get(old, keys...)
			if !tree.Equal(v, was) {
				if _, text := was.(string); text && v == nil {
					v = "" // as a string is in Go that is not there
				}
				e.Invalid(check.NewPath(keys[0], keys[1:]...), found(v), check.Immutable)
			}
		}
		return e.List()
	}
}

// split returns the keys of a dotted path.
func split(path string) []string { return strings.Split(path, ".") }
