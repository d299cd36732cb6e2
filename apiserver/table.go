package apiserver

import (
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/kinds"
)

// tabulator writes the rows of a Table, as kubectl get prints them.
type tabulator struct {
	version string
	columns []kinds.Column
	now     time.Time
	object  metav1.IncludeObjectPolicy
}

func (s *Server) newTabulator(media mediaType, r *request) (*tabulator, error) {
	t := &tabulator{version: media.version, columns: r.kind.Columns, now: s.clock.Now()}
	if len(t.columns) == 0 {
		t.columns = plainColumns
	}
	switch t.object = metav1.IncludeObjectPolicy(r.query.Get("includeObject")); t.object {
	case "":
		t.object = metav1.IncludeMetadata
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: includeObject: "+
			"Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty", t.object))
	}
	return t, nil
}

// plainColumns are those of kinds that say nothing of themselves.
var plainColumns = []kinds.Column{
	{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
		Cell: func(obj kinds.Object, _ time.Time) any { return metadataString(obj, "name") }},
	{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		Cell: func(obj kinds.Object, _ time.Time) any { return metadataString(obj, "creationTimestamp") }},
}

func metadataString(obj kinds.Object, name string) string {
	metadata, _ := obj["metadata"].(map[string]any)
	text, _ := metadata[name].(string)
	return text
}

// tableOfOne renders one object, in its own form, as a Table.
func (s *Server) tableOfOne(media mediaType, r *request, value []byte) ([]byte, error) {
	t, err := s.newTabulator(media, r)
	if err != nil {
		return nil, err
	}
	revision, _ := member(metadataOf(value), "resourceVersion")
	metadata := append([]byte(`{"resourceVersion":`), revision...)
	if revision == nil {
		metadata = []byte(`{`)
	}
	out := t.head(nil, append(metadata, '}'), true)
	if out, err = t.row(out, r, value); err != nil {
		return nil, err
	}
	return append(out, "]}"...), nil
}

// head appends a Table up to its first row.
func (t *tabulator) head(dst, metadata []byte, definitions bool) []byte {
	dst = append(dst, `{"kind":"Table","apiVersion":"meta.k8s.io/`...)
	dst = append(dst, t.version...)
	dst = append(dst, `","metadata":`...)
	dst = append(dst, metadata...)
	dst = append(dst, `,"columnDefinitions":`...)
	if definitions {
		dst = t.definitions(dst)
	} else {
		dst = append(dst, "null"...)
	}
	return append(dst, `,"rows":[`...)
}

func (t *tabulator) definitions(dst []byte) []byte {
	all := make([]metav1.TableColumnDefinition, len(t.columns))
	for i, c := range t.columns {
		all[i] = metav1.TableColumnDefinition{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority,
		}
	}
	return append(dst, mustMarshal(all)...)
}

// row appends the row of an object that is in its own form.
func (t *tabulator) row(dst []byte, r *request, value []byte) ([]byte, error) {
	decoded, err := r.kind.Schema.DecodeJSON(value)
	if err != nil {
		return nil, fmt.Errorf("a stored %s cannot be read: %w", r.kind.Kind, err)
	}
	cells := make([]any, len(t.columns))
	for i, c := range t.columns {
		cells[i] = c.Cell(decoded.Object, t.now)
	}
	text, err := json.Marshal(cells)
	if err != nil {
		return nil, fmt.Errorf("table of %s: %w", r.kind.Resource, err)
	}
	dst = append(dst, `{"cells":`...)
	dst = append(dst, text...)
	dst = append(dst, `,"object":`...)
	switch t.object {
	case metav1.IncludeObject:
		dst = append(dst, value...)
	case metav1.IncludeMetadata:
		dst = appendPartial(dst, t.version, value)
	default:
		dst = append(dst, "null"...)
	}
	return append(dst, '}'), nil
}
