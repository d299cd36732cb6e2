package table_test

import (
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/kinds/table"
)

func TestSince(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for in, want := range map[string]string{
		"2026-03-04T05:06:02Z":        "5s",
		"2026-03-04T05:01:07Z":        "5m",
		"2026-03-04T03:01:07.000500Z": "124m",
		"2026-03-01T05:06:07Z":        "3d",
		"2026-03-04T07:06:07+02:00":   "0s",
		"":                            table.Unknown,
		"yesterday":                   table.Unknown,
	} {
		if got := table.Since(in, now); got != want {
			t.Errorf("Since(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	obj := map[string]any{
		"sel":   map[string]any{"matchLabels": map[string]any{"app": "web"}, "matchExpressions": []any{map[string]any{"key": "tier", "operator": "NotIn", "values": []any{"db"}}}},
		"empty": map[string]any{},
		"list":  []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}},
	}
	for _, c := range []struct{ got, want string }{
		{table.Selector(obj, "sel"), "app=web,tier notin (db)"},
		{table.Selector(obj, "empty"), table.None},
		{table.Selector(obj, "absent"), table.None},
		{table.Joined(obj["list"].([]any), "name"), "a,b"},
		{table.AtMost(3, nil), table.Unset},
		{table.AtMost(3, []string{"1", "2", "3"}), "1,2,3"},
		{table.AtMost(3, []string{"1", "2", "3", "4", "5"}), "1,2,3 + 2 more..."},
		{table.Or("", table.None), table.None},
		{table.Or("x", table.None), "x"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
