package patch

// Merge applies an RFC 7396 merge patch: members that are null in the patch go, objects are merged,
// everything else, lists too, is replaced.
func Merge(obj, patch map[string]any) map[string]any {
	for key, p := range patch {
		switch p := p.(type) {
		case nil:
			delete(obj, key)
		case map[string]any:
			if old, ok := obj[key].(map[string]any); ok {
				obj[key] = Merge(old, p)
			} else {
				obj[key] = withoutNulls(p)
			}
		default:
			// A list that replaces an object is taken as it is; one that replaces anything else loses the
			// nulls in its objects. The library that upstream uses makes this difference.
			if _, object := obj[key].(map[string]any); !object {
				p = withoutNulls(p)
			}
			obj[key] = p
		}
	}
	return obj
}

// withoutNulls removes null members of objects, at any depth; elements of lists stay.
func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e == nil {
				delete(v, k)
			} else {
				v[k] = withoutNulls(e)
			}
		}
	case []any:
		for i, e := range v {
			v[i] = withoutNulls(e)
		}
	}
	return v
}
