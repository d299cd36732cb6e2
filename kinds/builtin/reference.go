package builtin

import (
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

// segment checks a name that will be part of a path.
func segment(e *check.Errors, a check.At, field string) {
	if name := a.Str(field); name != "" {
		e.Messages(a.At(field), name, content.IsPathSegmentName(name))
	}
}

// requiredSegment is segment for a field that must be there. That it is not is said in the list missing.
func requiredSegment(e, missing *check.Errors, a check.At, field string) {
	if a.Str(field) == "" {
		missing.Required(a.At(field), "")
	}
	segment(e, a, field)
}

// reference checks what names another object by its group, kind and name.
func reference(e, missing *check.Errors, ref check.At) {
	if ref.Has("apiGroup") {
		e.DNSSubdomain(ref.At("apiGroup"), ref.Str("apiGroup"))
	}
	requiredSegment(e, missing, ref, "kind")
	requiredSegment(e, missing, ref, "name")
}
