package builtin

import (
	"time"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// componentStatus is there for old clients, which ask for it to see whether a control plane is well. It
// can only be read, and there are none: this one has no components that could be away.
func componentStatus() *kinds.Kind {
	healthy := func(read func(condition map[string]any) string, otherwise string) func(kinds.Object, time.Time) any {
		return func(obj kinds.Object, _ time.Time) any {
			if c := tree.Find(tree.List(obj, "conditions"), "type", "Healthy"); c != nil {
				return read(c)
			}
			return otherwise
		}
	}
	text := func(field string) func(map[string]any) string {
		return func(c map[string]any) string { return tree.Str(c, field) }
	}
	return &kinds.Kind{
		Version: "v1", Kind: "ComponentStatus", Resource: "componentstatuses", Singular: "componentstatus",
		ShortNames: []string{"cs"}, AbsentAs: "componentstatus",
		Schema: schema.Builtin("io.k8s.api.core.v1.ComponentStatus"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("Status", "Status of the component conditions", healthy(func(c map[string]any) string {
				if tree.Str(c, "status") == "True" {
					return "Healthy"
				}
				return "Unhealthy"
			}, "Unknown")),
			table.Column("Message", "Message of the component conditions", healthy(text("message"), "")),
			table.Column("Error", "Error of the component conditions", healthy(text("error"), "")),
		},
		Verbs:              []string{"get", "list"},
		Deprecated:         "v1 ComponentStatus is deprecated in v1.19+",
		DefaultPropagation: "Background",
	}
}
