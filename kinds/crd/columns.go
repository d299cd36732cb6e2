package crd

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// columns are those of a version; without any of its own it has an age.
func columns(own []apiextensionsv1.CustomResourceColumnDefinition) []kinds.Column {
	if len(own) == 0 {
		own = []apiextensionsv1.CustomResourceColumnDefinition{{
			Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp",
			Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		}}
	}
	out := []kinds.Column{table.Name()}
	for _, c := range own {
		description := c.Description
		if description == "" {
			description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		at, kind := newLocator(c.JSONPath), c.Type
		out = append(out, kinds.Column{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: description, Priority: c.Priority,
			Cell: func(obj kinds.Object, now time.Time) any { return cell(kind, at.find(obj), now) },
		})
	}
	return out
}

// selectable are the fields by which objects can be selected; one that is not there reads as "".
func selectable(fields []apiextensionsv1.SelectableField) map[string]func(kinds.Object) string {
	if len(fields) == 0 {
		return nil
	}
	out := make(map[string]func(kinds.Object) string, len(fields))
	for _, f := range fields {
		at := newLocator(f.JSONPath)
		out[strings.TrimPrefix(f.JSONPath, ".")] = func(obj kinds.Object) string {
			if v := at.find(obj); v != nil {
				return fmt.Sprint(v)
			}
			return ""
		}
	}
	return out
}

// cell is a value as a column of the type shows it; nil if it is of another type, or not there.
func cell(kind string, v any, now time.Time) any {
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		switch kind {
		case "string":
			return v
		case "date":
			if table.Time(v).IsZero() {
				return "<invalid>"
			}
			return table.Since(v, now)
		}
		return nil
	case int64:
		switch kind {
		case "integer":
			return v
		case "number":
			return float64(v)
		}
	case float64:
		switch kind {
		case "integer":
			return int64(v)
		case "number":
			return v
		}
	case bool:
		if kind == "boolean" {
			return v
		}
	}
	if kind != "string" {
		return nil
	}
	var text bytes.Buffer
	if jsonpath.New("").PrintResults(&text, []reflect.Value{reflect.ValueOf(v)}) != nil {
		return nil
	}
	return text.String()
}

// locator finds the value at a JSONPath. Plain paths, which most are, need no evaluator.
type locator struct {
	plain []string
	// evaluators are parsed paths, each used by one goroutine at a time; nil for a plain path.
	evaluators *sync.Pool
}

func newLocator(path string) *locator {
	if rest, ok := strings.CutPrefix(path, "."); ok && rest != "" && !strings.ContainsAny(rest, `[]()*?@'"\{}$`) &&
		!strings.Contains(rest, "..") {
		return &locator{plain: strings.Split(rest, ".")}
	}
	return &locator{evaluators: &sync.Pool{New: func() any {
		e := jsonpath.New("").AllowMissingKeys(true)
		if e.Parse("{"+path+"}") != nil {
			return (*jsonpath.JSONPath)(nil)
		}
		return e
	}}}
}

// find returns the first value at the path, or nil.
func (l *locator) find(obj kinds.Object) any {
	if l.evaluators == nil {
		return tree.Get(obj, l.plain...)
	}
	e := l.evaluators.Get().(*jsonpath.JSONPath)
	if e == nil {
		return nil
	}
	defer l.evaluators.Put(e)
	results, err := e.FindResults(obj)
	if err != nil || len(results) == 0 || len(results[0]) == 0 || !results[0][0].CanInterface() {
		return nil
	}
	return results[0][0].Interface()
}
