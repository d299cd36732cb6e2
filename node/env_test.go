package node_test

import (
	"testing"

	"github.com/setpoint-dev/setpoint/node"
)

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
	for text, want := range map[string]string{
		"":             "",
		"plain":        "plain",
		"$(A)":         "1",
		"-$(A)$(A)-":   "-11-",
		"$(B)":         "$(A)", // values are not expanded again
		"$(EMPTY)x":    "x",
		"$(NONE)":      "$(NONE)",
		"$$(A)":        "$(A)",
		"$$$(A)":       "$1",
		"$$$$":         "$$",
		"$A ${A}":      "$A ${A}",
		"$(A":          "$(A",
		"$":            "$",
		"cost: 5$":     "cost: 5$",
		"$( A )":       "$( A )",
		"$(NONE)-$(A)": "$(NONE)-1",
	} {
		if got := node.Expand(text, values); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
