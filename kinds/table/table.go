// Package table makes the cells that kubectl get prints: columns that many kinds have, and the words
// for ages, selectors and what is not there.
package table

import (
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// What is printed where there is nothing, and where something should be but is not known.
const (
	None    = "<none>"
	Unknown = "<unknown>"
	Unset   = "<unset>"
)

// Name is the first column of every kind.
func Name() kinds.Column {
	return kinds.Column{
		Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
		Cell: func(obj kinds.Object, _ time.Time) any { return tree.Str(obj, "metadata", "name") },
	}
}

// Age is how long ago the object was created.
func Age() kinds.Column {
	return kinds.Column{
		Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		Cell: func(obj kinds.Object, now time.Time) any {
			return Since(tree.Str(obj, "metadata", "creationTimestamp"), now)
		},
	}
}

// Text is a column with the string at a path, "" if there is none.
func Text(name, description string, path ...string) kinds.Column {
	return kinds.Column{
		Name: name, Type: "string", Description: description,
		Cell: func(obj kinds.Object, _ time.Time) any { return tree.Str(obj, path...) },
	}
}

// Count is a column with the integer at a path, 0 if there is none.
func Count(name, description string, path ...string) kinds.Column {
	return kinds.Column{
		Name: name, Type: "integer", Description: description,
		Cell: func(obj kinds.Object, _ time.Time) any { return tree.Int(obj, path...) },
	}
}

// Column is a column of strings that a function makes.
func Column(name, description string, cell func(obj kinds.Object, now time.Time) any) kinds.Column {
	return kinds.Column{Name: name, Type: "string", Description: description, Cell: cell}
}

// Wide makes columns appear only in -o wide.
func Wide(columns ...kinds.Column) []kinds.Column {
	for i := range columns {
		columns[i].Priority = 1
	}
	return columns
}

// Since is how long ago a time of the wire was, as people say it: "5m", "3d2h"; <unknown> if it is
// "" or no time.
func Since(timestamp string, now time.Time) string {
	t := Time(timestamp)
	if t.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(now.Sub(t))
}

// Time reads a time of the wire, in seconds or with a fraction; zero if it is "" or no time.
func Time(timestamp string) time.Time {
	if timestamp == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, timestamp)
	if err != nil {
		return time.Time{}
	}
	return t
}

// Or returns the text, or what to print instead of "".
func Or(text, instead string) string {
	if text == "" {
		return instead
	}
	return text
}

// Selector writes the label selector at a path as people write it: "app=web,tier!=db".
func Selector(obj kinds.Object, path ...string) string {
	return metav1.FormatLabelSelector(check.LabelSelector(tree.Map(obj, path...)))
}

// Joined returns one field of each map in a list, with commas between them.
func Joined(list []any, field string) string {
	parts := make([]string, 0, len(list))
	for _, item := range list {
		m, _ := item.(map[string]any)
		parts = append(parts, tree.Str(m, field))
	}
	return strings.Join(parts, ",")
}

// AtMost joins the first few words and says how many more there are: "a,b,c + 2 more...".
func AtMost(most int, words []string) string {
	if len(words) == 0 {
		return Unset
	}
	if len(words) <= most {
		return strings.Join(words, ",")
	}
	return strings.Join(words[:most], ",") + " + " + strconv.Itoa(len(words)-most) + " more..."
}
