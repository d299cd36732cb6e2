package wire

import (
	"encoding/json"
	"reflect"
	"sync"
)

// strict says whether a type leaves no choice of Go types to the decoder: client-go's reads whole
// numbers into an any as int64, ours does not. It is found out once for each type.
func strict(t reflect.Type) bool {
	if known, ok := stricts.Load(t); ok {
		return known.(bool)
	}
	is := !choosy(t, map[reflect.Type]bool{})
	stricts.Store(t, is)
	return is
}

var (
	stricts     sync.Map // reflect.Type to bool
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

// choosy says whether an any, or another interface, is to be decoded somewhere in the type.
func choosy(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] || t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler) {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return choosy(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			field := t.Field(i)
			if (field.IsExported() || field.Anonymous) && field.Tag.Get("json") != "-" && choosy(field.Type, seen) {
				return true
			}
		}
	}
	return false
}
