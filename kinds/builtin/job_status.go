package builtin

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// validateJobStatus checks that a status is one that a Job can have, and come to from the one before.
// What is wrong and was so before is let be, so that a controller can go on from there.
func validateJobStatus(obj, old kinds.Object) field.ErrorList {
	c := jobStatusCheck{obj: obj, old: old, status: check.Root(obj).Child("status")}
	c.counts()
	c.conditions()
	c.times()
	c.finished()
	c.indexes()
	c.steps()
	return c.List()
}

// jobStatusCheck is one such check: a list of errors, and what they are about.
type jobStatusCheck struct {
	check.Errors
	obj, old kinds.Object
	status   check.At
}

func (c *jobStatusCheck) is(condition string) bool  { return hasCondition(c.obj, condition) }
func (c *jobStatusCheck) was(condition string) bool { return hasCondition(c.old, condition) }

// changed says whether one of some fields of the status did.
func (c *jobStatusCheck) changed(fields ...string) bool {
	for _, name := range fields {
		if !tree.Equal(c.status.Get(name), tree.Get(c.old, "status", name)) {
			return true
		}
	}
	return false
}

// flipped says whether one of some conditions became true or ceased to be.
func (c *jobStatusCheck) flipped(conditions ...string) bool {
	for _, name := range conditions {
		if c.is(name) != c.was(name) {
			return true
		}
	}
	return false
}

func (c *jobStatusCheck) done() bool { return c.is("Complete") || c.is("Failed") }

func (c *jobStatusCheck) ended() bool {
	return c.done() != (c.was("Complete") || c.was("Failed"))
}

func (c *jobStatusCheck) counts() {
	for _, name := range []string{"active", "succeeded", "failed", "ready", "terminating"} {
		c.NotNegative(c.status, name)
	}
	uncounted, seen := c.status.Child("uncountedTerminatedPods"), map[string]bool{}
	for _, name := range []string{"succeeded", "failed"} {
		for i, uid := range uncounted.Strings(name) {
			path := uncounted.At(name).Index(i)
			if uid == "" {
				c.Invalid(path, uid, "must not be empty")
			} else if seen[uid] {
				c.Duplicate(path, uid)
			}
			seen[uid] = true
		}
	}
}

// wrong says that the conditions do not go together.
func (c *jobStatusCheck) wrong(why string) {
	c.Invalid(c.status.At("conditions"), field.OmitValueType{}, why)
}

func (c *jobStatusCheck) conditions() {
	complete, failed := c.is("Complete"), c.is("Failed")
	target, met := c.is("FailureTarget"), c.is("SuccessCriteriaMet")
	if complete && failed && c.flipped("Complete", "Failed") {
		c.wrong("cannot set Complete=True and Failed=true conditions")
	}
	if complete && target && c.flipped("Complete", "FailureTarget") {
		c.wrong("cannot set Complete=True and FailureTarget=true conditions")
	}
	if failed && !target && (c.flipped("Failed") || c.changed("failedIndexes")) {
		c.wrong("cannot set Failed=True condition without the FailureTarget=true condition")
	}
	if complete && !met && c.flipped("Complete", "SuccessCriteriaMet") {
		c.wrong("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	}
	if met && failed {
		c.wrong("cannot set SuccessCriteriaMet=True and Failed=true conditions")
	}
	if met && target {
		c.wrong("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	}
	if tree.Has(c.obj, "spec", "successPolicy") && !met && complete {
		c.wrong("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	}
}

func (c *jobStatusCheck) times() {
	path, end := c.status.At("completionTime"), c.status.Str("completionTime")
	if c.flipped("Complete") || c.changed("completionTime") {
		if end != "" && !c.is("Complete") {
			c.Invalid(path, end, "cannot set completionTime when there is no Complete=True condition")
		}
		if end == "" && c.is("Complete") {
			c.Required(path, "completionTime is required for Complete jobs")
		}
	}
	start := c.status.Str("startTime")
	if c.changed("startTime", "completionTime") && start != "" && end != "" &&
		table.Time(end).Before(table.Time(start)) {
		c.Invalid(path, end, "must be equal to or after `startTime`")
	}
}

// finished checks that nothing goes on in a Job that is done.
func (c *jobStatusCheck) finished() {
	if n := c.status.Int("ready"); n > c.status.Int("active") && c.changed("ready", "active") {
		c.Invalid(c.status.At("ready"), n, "cannot set more ready pods than active")
	}
	if !c.done() {
		return
	}
	for _, name := range []string{"active", "terminating"} {
		if n := c.status.Int(name); n > 0 && (c.ended() || c.changed(name)) {
			c.Invalid(c.status.At(name), n, name+">0 is invalid for finished job")
		}
	}
	neverRan := tree.Bool(c.obj, "spec", "suspend") && tree.Has(c.obj, "spec", "completions") &&
		tree.Int(c.obj, "spec", "completions") == 0
	if !c.status.Has("startTime") && (c.ended() || c.changed("startTime")) && !neverRan {
		c.Required(c.status.At("startTime"), "startTime is required for finished job")
	}
	uncounted := c.status.Child("uncountedTerminatedPods")
	if uncounted.Len("failed")+uncounted.Len("succeeded") > 0 && (c.ended() || c.changed("uncountedTerminatedPods")) {
		c.Invalid(uncounted.Path, uncounted.Map, "must be empty for finished job")
	}
}

func (c *jobStatusCheck) indexes() {
	spec := check.Root(c.obj).Child("spec")
	n, done, failed := spec.Int("completions"), c.status.Str("completedIndexes"), c.status.Str("failedIndexes")
	if c.changed("completedIndexes") {
		if _, err := countIndexes(done, n); spec.Has("completions") && err != nil {
			c.Invalid(c.status.At("completedIndexes"), done, "error parsing completedIndexes: "+err.Error())
		}
		if done != "" && spec.Str("completionMode") != "Indexed" {
			c.Invalid(c.status.At("completedIndexes"), done,
				"cannot set non-empty completedIndexes when non-indexed completion mode")
		}
	}
	path := c.status.At("failedIndexes")
	if c.changed("failedIndexes") && c.status.Has("failedIndexes") {
		if !spec.Has("backoffLimitPerIndex") {
			c.Invalid(path, failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
		} else if _, err := countIndexes(failed, n); spec.Has("completions") && err != nil {
			c.Invalid(path, failed, "error parsing failedIndexes: "+err.Error())
		}
	}
	if c.changed("failedIndexes", "completedIndexes") && spec.Has("completions") {
		if i, both := commonIndex(done, failed, n); both {
			c.Invalid(path, failed, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", i))
		}
	}
}

// steps checks what may not be taken back.
func (c *jobStatusCheck) steps() {
	for _, name := range []string{"Failed", "Complete", "FailureTarget"} {
		if c.was(name) && !c.is(name) {
			c.wrong("cannot disable the terminal " + name + "=True condition")
		}
	}
	// An Indexed Job whose pods all run at once may have indexes taken away, and with them successes.
	elastic := tree.Str(c.obj, "spec", "completionMode") == "Indexed" &&
		tree.Equal(tree.Get(c.obj, "spec", "completions"), tree.Get(c.obj, "spec", "parallelism"))
	for _, name := range []string{"failed", "succeeded"} {
		n := c.status.Int(name)
		if n < tree.Int(c.old, "status", name) && !(name == "succeeded" && elastic) {
			c.Invalid(c.status.At(name), n, "cannot decrease the "+name+" counter")
		}
	}
	if c.status.Has("completionTime") && tree.Has(c.old, "status", "completionTime") && c.changed("completionTime") {
		c.Invalid(c.status.At("completionTime"), c.status.Get("completionTime"), check.Immutable)
	}
	resumes := c.was("Suspended") && tree.Str(tree.Find(tree.List(c.status.Map, "conditions"), "type", "Suspended"),
		"status") == "False"
	if tree.Has(c.old, "status", "startTime") && c.changed("startTime") && !resumes && !tree.Bool(c.obj, "spec", "suspend") {
		c.Invalid(c.status.At("startTime"), c.status.Get("startTime"),
			"field is immutable for unsuspended job once set")
	}
	if c.was("SuccessCriteriaMet") && !c.is("SuccessCriteriaMet") {
		c.wrong("cannot disable the SuccessCriteriaMet=True condition")
	}
	if c.was("Complete") && !c.was("SuccessCriteriaMet") && c.is("SuccessCriteriaMet") {
		c.wrong("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
	}
}
