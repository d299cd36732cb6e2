package builtin

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Events are kept once and seen through two APIs: core/v1, in whose form they are kept, and
// events.k8s.io/v1, which names some fields otherwise.

// eventFields are those, by their names in the two.
var eventFields = []struct{ core, new string }{
	{"involvedObject", "regarding"},
	{"message", "note"},
	{"source", "deprecatedSource"},
	{"firstTimestamp", "deprecatedFirstTimestamp"},
	{"lastTimestamp", "deprecatedLastTimestamp"},
	{"count", "deprecatedCount"},
	{"reportingComponent", "reportingController"},
}

// Upstream's bounds on an event's texts, in bytes.
const (
	eventWordMax = 128
	eventNoteMax = 1024
)

func event() *kinds.Kind {
	return &kinds.Kind{
		Version: "v1", Kind: "Event", Resource: "events", Singular: "event",
		ShortNames: []string{"ev"}, Namespaced: true,
		Schema:             schema.Builtin("io.k8s.api.core.v1.Event"),
		Columns:            eventColumns(),
		CreateOnUpdate:     true,
		DefaultPropagation: "Background",
		Metadata:           kinds.MetadataAlone,
		Fields: eventSelectors("involvedObject", map[string]string{
			"reason": "reason", "type": "type", "reportingComponent": "reportingComponent", "source": "source",
		}),
		Strategy: kinds.Strategy{Validate: func(obj kinds.Object) field.ErrorList {
			var e check.Errors
			eventBasics(&e, check.Root(obj), "reportingComponent")
			return e.List()
		}},
	}
}

func newEvent() *kinds.Kind {
	return &kinds.Kind{
		Group: "events.k8s.io", Version: "v1", Kind: "Event", Resource: "events", Singular: "event",
		ShortNames: []string{"ev"}, Namespaced: true,
		Schema:             schema.Builtin("io.k8s.api.events.v1.Event"),
		Columns:            eventColumns(),
		CreateOnUpdate:     true,
		DefaultPropagation: "Background",
		Metadata:           kinds.MetadataNext,
		Fields: eventSelectors("regarding", map[string]string{
			"reason": "reason", "type": "type", "reportingController": "reportingController",
		}),
		Storage: &kinds.Storage{
			Version: "v1", Kind: "Event", Resource: "events",
			ToStored: toCoreEvent, FromStored: fromCoreEvent,
		},
		Strategy: kinds.Strategy{
			Validate: func(obj kinds.Object) field.ErrorList {
				var e check.Errors
				eventBasics(&e, check.Root(obj), "reportingController")
				return e.List()
			},
			ValidateCreate: validateNewEvent,
			ValidateUpdate: validateNewEventUpdate,
		},
	}
}

func toCoreEvent(obj kinds.Object) {
	for _, f := range eventFields {
		rename(obj, f.new, f.core)
	}
	for _, name := range []string{"source", "involvedObject"} {
		tree.Ensure(obj, name)
	}
	for _, name := range []string{"reportingComponent", "reportingInstance"} {
		tree.Default(obj, "", name)
	}
	for _, name := range []string{"firstTimestamp", "lastTimestamp", "eventTime"} {
		tree.Default(obj, nil, name)
	}
	obj["apiVersion"], obj["kind"] = "v1", "Event"
}

func fromCoreEvent(obj kinds.Object) {
	for _, f := range eventFields {
		rename(obj, f.core, f.new)
	}
	for _, name := range []string{"reportingController", "reportingInstance"} {
		if obj[name] == "" {
			delete(obj, name)
		}
	}
	obj["apiVersion"], obj["kind"] = "events.k8s.io/v1", "Event"
}

func rename(obj map[string]any, from, to string) {
	if v, ok := obj[from]; ok {
		obj[to] = v
		delete(obj, from)
	}
}

// eventField reads a field by its core name from an event of either form.
func eventField(obj kinds.Object, core string) any {
	if v, ok := obj[core]; ok {
		return v
	}
	for _, f := range eventFields {
		if f.core == core {
			return obj[f.new]
		}
	}
	return nil
}

func eventText(obj kinds.Object, core string) string {
	s, _ := eventField(obj, core).(string)
	return s
}

func eventMap(obj kinds.Object, core string) map[string]any {
	m, _ := eventField(obj, core).(map[string]any)
	return m
}

func eventSelectors(object string, others map[string]string) map[string]func(kinds.Object) string {
	fields := map[string]func(kinds.Object) string{}
	for _, name := range []string{"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"} {
		fields[object+"."+name] = func(obj kinds.Object) string {
			return tree.Str(eventMap(obj, "involvedObject"), name)
		}
	}
	for label, name := range others {
		fields[label] = func(obj kinds.Object) string { return tree.Str(obj, name) }
	}
	if _, ok := others["source"]; ok {
		fields["source"] = eventSource
	}
	return fields
}

// eventSource is the component that an event comes from.
func eventSource(obj kinds.Object) string {
	return table.Or(tree.Str(eventMap(obj, "source"), "component"),
		eventText(obj, "reportingComponent"))
}

// eventBasics checks what events of both APIs must be. Those with an eventTime say more, and are held
// to more. The paths are the core ones, but for that of the reporter.
func eventBasics(e *check.Errors, ev check.At, reporter string) {
	const mismatch = "does not match event.namespace"
	namespace := tree.Str(ev.Map, "metadata", "namespace")
	of := tree.Str(eventMap(ev.Map, "involvedObject"), "namespace")
	path := ev.At("involvedObject").Child("namespace")
	if !ev.Has("eventTime") {
		if of == "" && namespace != "" && namespace != "default" || of != "" && of != namespace {
			e.Invalid(path, of, mismatch)
		}
		return
	}
	if of == "" && namespace != "default" && namespace != "kube-system" {
		e.Invalid(path, of, mismatch)
	}
	by := eventText(ev.Map, "reportingComponent")
	if by == "" {
		e.Required(ev.At(reporter), "")
	}
	e.QualifiedName(ev.At(reporter), by)
	for _, name := range []string{"reportingInstance", "action", "reason"} {
		if ev.Str(name) == "" {
			e.Required(ev.At(name), "")
		}
		atMost(e, ev.At(name), ev.Str(name), eventWordMax)
	}
	atMost(e, ev.At("message"), eventText(ev.Map, "message"), eventNoteMax)
}

func atMost(e *check.Errors, path check.Path, text string, most int) {
	if len(text) > most {
		e.Invalid(path, "", fmt.Sprintf("can have at most %d characters", most))
	}
}

// validateNewEvent holds a new event of events.k8s.io to what that API was made for.
func validateNewEvent(obj kinds.Object) field.ErrorList {
	var e check.Errors
	ev := check.Root(obj)
	eventSeries(&e, ev)
	if !ev.Has("eventTime") {
		e.Required(ev.At("eventTime"), "")
	}
	if kind := ev.Str("type"); kind != "Normal" && kind != "Warning" {
		e.Invalid(ev.At("type"), "", "has invalid value: "+kind)
	}
	for _, name := range []string{"firstTimestamp", "lastTimestamp"} {
		if eventText(obj, name) != "" {
			e.Invalid(ev.At(name), "", "needs to be unset")
		}
	}
	if n, _ := eventField(obj, "count").(int64); n != 0 {
		e.Invalid(ev.At("count"), "", "needs to be unset")
	}
	if source := eventMap(obj, "source"); tree.Str(source, "component") != "" || tree.Str(source, "host") != "" {
		e.Invalid(ev.At("source"), "", "needs to be unset")
	}
	return e.List()
}

func eventSeries(e *check.Errors, ev check.At) {
	series := ev.Child("series")
	if !series.Exists() {
		return
	}
	if series.Int("count") < 2 {
		e.Invalid(check.NewPath("series.count"), "", "should be at least 2")
	}
	if !series.Has("lastObservedTime") {
		e.Required(check.NewPath("series.lastObservedTime"), "")
	}
}

// validateNewEventUpdate lets only the series of an event change.
func validateNewEventUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	ev := check.Root(obj)
	if !tree.Equal(obj["series"], old["series"]) {
		eventSeries(&e, ev)
	}
	for _, name := range []string{
		"involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type",
		"eventTime", "action", "related", "reportingComponent", "reportingInstance",
	} {
		now, was := eventField(obj, name), eventField(old, name)
		if !tree.Equal(now, was) {
			if _, text := was.(string); text && now == nil {
				now = "" // as a string is in Go that is not there
			}
			path := ev.At(strings.Replace(name, "reportingComponent", "reportingController", 1))
			e.Invalid(path, now, check.Immutable)
		}
	}
	return e.List()
}

func eventColumns() []kinds.Column {
	doc := corev1.Event{}.SwaggerDoc()
	wide := func(c kinds.Column) kinds.Column { return table.Wide(c)[0] }
	name := wide(table.Name())
	return []kinds.Column{
		table.Column("Last Seen", doc["lastTimestamp"], lastSeen),
		table.Text("Type", doc["type"], "type"),
		table.Text("Reason", doc["reason"], "reason"),
		table.Column("Object", doc["involvedObject"], eventObject),
		wide(table.Column("Subobject", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"], func(obj kinds.Object, _ time.Time) any {
			return tree.Str(eventMap(obj, "involvedObject"), "fieldPath")
		})),
		wide(table.Column("Source", doc["source"], func(obj kinds.Object, _ time.Time) any {
			instance := table.Or(tree.Str(eventMap(obj, "source"), "host"),
				tree.Str(obj, "reportingInstance"))
			if instance == "" {
				return eventSource(obj)
			}
			return eventSource(obj) + ", " + instance
		})),
		table.Column("Message", doc["message"], func(obj kinds.Object, _ time.Time) any {
			return strings.TrimSpace(eventText(obj, "message"))
		}),
		wide(table.Column("First Seen", doc["firstTimestamp"], func(obj kinds.Object, now time.Time) any {
			return firstSeen(obj, now)
		})),
		wide(table.Column("Count", doc["count"], eventCount)),
		name,
	}
}

func firstSeen(obj kinds.Object, now time.Time) string {
	return table.Since(table.Or(eventText(obj, "firstTimestamp"), tree.Str(obj, "eventTime")), now)
}

func lastSeen(obj kinds.Object, now time.Time) any {
	if tree.Has(obj, "series") {
		return table.Since(tree.Str(obj, "series", "lastObservedTime"), now)
	}
	if last := eventText(obj, "lastTimestamp"); last != "" {
		return table.Since(last, now)
	}
	return firstSeen(obj, now)
}

func eventObject(obj kinds.Object, _ time.Time) any {
	of := eventMap(obj, "involvedObject")
	kind := strings.ToLower(tree.Str(of, "kind"))
	if name := tree.Str(of, "name"); name != "" {
		return kind + "/" + name
	}
	return kind
}

// eventCount is one for events of the newer API that are no series: they do not count.
func eventCount(obj kinds.Object, _ time.Time) any {
	if tree.Has(obj, "series") {
		return tree.Int(obj, "series", "count")
	}
	n, _ := eventField(obj, "count").(int64)
	return max(n, 1)
}
