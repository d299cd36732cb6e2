package pod

import "github.com/setpoint-dev/setpoint/kinds/check"

// CheckClass checks what a RuntimeClass adds to the pods that are of it: what they need beside their
// containers, as if it were limits of one, and which nodes they can be on.
func CheckClass(e *check.Errors, class check.At) {
	overhead, scheduling := class.Child("overhead"), class.Child("scheduling")
	fixed := check.At{Map: map[string]any{"limits": overhead.Get("podFixed")}, Path: class.At("overhead")}
	resources(e, fixed, nil, containerResourceName)
	e.Labels(scheduling, "nodeSelector")
	tolerations(e, scheduling)
	seen := map[toleration]bool{}
	for _, t := range scheduling.Each("tolerations") {
		found := toleration{
			Key: t.Str("key"), Operator: t.Str("operator"), Value: t.Str("value"), Effect: t.Str("effect"),
		}
		if seen[found] {
			e.Duplicate(t.Path, found)
		}
		seen[found] = true
	}
}

// toleration is one in the form that messages show; two of the same are one too many.
type toleration struct {
	Key, Operator, Value, Effect string
	TolerationSeconds            *int64
}
