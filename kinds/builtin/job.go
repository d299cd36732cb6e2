package builtin

import (
	"fmt"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// The labels by which a Job finds its pods, and those they had before labels got a prefix.
var (
	jobNameLabels = []string{"job-name", "batch.kubernetes.io/job-name"}
	jobUIDLabels  = []string{"controller-uid", "batch.kubernetes.io/controller-uid"}
)

// jobSelectorLabel is the one that the selector made for a Job asks for.
const jobSelectorLabel = "batch.kubernetes.io/controller-uid"

func job() *kinds.Kind {
	return &kinds.Kind{
		Group: "batch", Version: "v1", Kind: "Job", Resource: "jobs", Singular: "job",
		Categories: []string{"all"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.batch.v1.Job"),
		Columns: append([]kinds.Column{
			table.Name(),
			table.Column("Status", "Status of the job.", jobState),
			table.Column("Completions", batchv1.JobStatus{}.SwaggerDoc()["succeeded"], completions),
			table.Column("Duration", "Time required to complete the job.", jobDuration),
			table.Age(),
		}, templateColumns(batchv1.JobSpec{}.SwaggerDoc()["selector"])...),
		Status:             true,
		Generation:         true,
		DefaultPropagation: "Orphan", // as it was before there was a collector
		OrphanWarning: "child pods are preserved by default when jobs are deleted; " +
			"set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
		UnknownField: "field label %q not supported for Job",
		Fields: map[string]func(kinds.Object) string{
			"status.successful": func(obj kinds.Object) string {
				return strconv.FormatInt(tree.Int(obj, "status", "succeeded"), 10)
			},
		},
		Strategy: kinds.Strategy{
			Default:                defaultJob,
			PrepareForCreate:       prepareJob,
			PrepareForUpdate:       prepareJobUpdate,
			PrepareForStatusUpdate: keepSpec,
			ValidateCreate:         validateNewJob,
			ValidateUpdate:         validateJobUpdate,
			ValidateStatusUpdate:   validateJobStatus,
			Warnings:               jobWarnings,
		},
	}
}

func defaultJob(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	if !tree.Has(spec, "parallelism") {
		tree.Default(spec, int64(1), "completions")
		spec["parallelism"] = int64(1)
	}
	if tree.Has(spec, "backoffLimitPerIndex") {
		tree.Default(spec, int64(math.MaxInt32), "backoffLimit")
	}
	tree.Default(spec, int64(6), "backoffLimit")
	defaultJobLabels(obj)
	tree.Default(spec, "NonIndexed", "completionMode")
	tree.Default(spec, false, "suspend")
	if tree.Has(spec, "podFailurePolicy") {
		tree.Default(spec, "Failed", "podReplacementPolicy")
	}
	tree.Default(spec, "TerminatingOrFailed", "podReplacementPolicy")
	tree.Default(spec, false, "manualSelector")
	defaultJobPods(spec)
}

// defaultJobLabels gives a Job without labels those of its pods. They are one map, so that the labels that
// a new Job's pods get become the Job's too, as they do upstream; labels of its own are left alone.
func defaultJobLabels(obj kinds.Object) {
	labels := tree.Map(obj, "spec", "template", "metadata", "labels")
	if labels != nil && len(tree.Map(obj, "metadata", "labels")) == 0 {
		tree.Set(obj, labels, "metadata", "labels")
	}
}

// defaultJobPods sets what concerns the pods in the spec of a Job, or of a CronJob's template.
func defaultJobPods(spec map[string]any) {
	for _, rule := range tree.Maps(spec, "podFailurePolicy", "rules") {
		for _, pattern := range tree.Maps(rule, "onPodConditions") {
			setIfEmpty(pattern, "status", "True")
		}
	}
	pod.DefaultSpec(tree.Ensure(spec, "template", "spec"))
}

func prepareJob(_ *kinds.Env, obj kinds.Object) error {
	tree.Delete(obj, "spec", "scheduling") // alpha, and off
	if !tree.Bool(obj, "spec", "manualSelector") {
		selectByUID(obj)
	}
	obj["status"] = map[string]any{}
	defaultJobLabels(obj) // as whoever reads it again would
	return nil
}

// selectByUID makes the Job's selector and its pods' labels. What is there already is left alone, and
// refused by validation if it is something else.
func selectByUID(obj kinds.Object) {
	labels := tree.Ensure(obj, "spec", "template", "metadata", "labels")
	for _, key := range jobNameLabels {
		tree.Default(labels, tree.Str(obj, "metadata", "name"), key)
	}
	uid := tree.Str(obj, "metadata", "uid")
	for _, key := range jobUIDLabels {
		tree.Default(labels, uid, key)
	}
	tree.Default(tree.Ensure(obj, "spec", "selector", "matchLabels"), uid, jobSelectorLabel)
}

func prepareJobUpdate(_ *kinds.Env, obj, old kinds.Object) error {
	tree.Move("status", old, obj)
	if !tree.Has(old, "spec", "scheduling") {
		tree.Delete(obj, "spec", "scheduling")
	}
	return nil
}

// What Indexed Jobs of very many completions may ask for, so that their status can hold all indexes.
const (
	manyCompletions    = 100_000
	manyParallel       = 10_000
	manyFailedIndexes  = 10_000
	indexedParallelMax = 100_000
	failedIndexesMax   = 100_000
	tooManyToTrack     = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
)

func jobWarnings(obj, old kinds.Object) []string {
	spec := check.Root(obj).Child("spec")
	if old != nil {
		if tree.Equal(spec.Map, old["spec"]) {
			return nil
		}
		return jobSpecWarnings(spec, tree.Map(old, "spec"))
	}
	return append(nameWarnings(obj), jobSpecWarnings(spec, nil)...)
}

// jobSpecWarnings are those about the spec of a Job, or of a CronJob's template; old is nil if it is new.
func jobSpecWarnings(spec check.At, old map[string]any) []string {
	var w []string
	if spec.Str("completionMode") == "Indexed" &&
		spec.Int("completions") > manyCompletions && spec.Int("parallelism") > manyParallel {
		w = append(w, spec.Path.String()+": "+tooManyToTrack)
	}
	if old == nil || !tree.Equal(spec.Get("template"), old["template"]) {
		w = append(w, pod.Warnings(spec.Child("template"))...)
	}
	return w
}

// hasCondition says whether the first condition of a type is true.
func hasCondition(obj kinds.Object, name string) bool {
	return tree.Str(tree.Find(tree.List(obj, "status", "conditions"), "type", name), "status") == "True"
}

func jobState(obj kinds.Object, _ time.Time) any {
	for _, name := range []string{"Complete", "Failed"} {
		if hasCondition(obj, name) {
			return name
		}
	}
	switch {
	case tree.Has(obj, "metadata", "deletionTimestamp"):
		return "Terminating"
	case hasCondition(obj, "Suspended"):
		return "Suspended"
	case hasCondition(obj, "FailureTarget"):
		return "FailureTarget"
	case hasCondition(obj, "SuccessCriteriaMet"):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func completions(obj kinds.Object, _ time.Time) any {
	done, parallel := tree.Int(obj, "status", "succeeded"), tree.Int(obj, "spec", "parallelism")
	switch {
	case tree.Has(obj, "spec", "completions"):
		return fmt.Sprintf("%d/%d", done, tree.Int(obj, "spec", "completions"))
	case parallel > 1:
		return fmt.Sprintf("%d/1 of %d", done, parallel)
	}
	return fmt.Sprintf("%d/1", done)
}

func jobDuration(obj kinds.Object, now time.Time) any {
	start, end := table.Time(tree.Str(obj, "status", "startTime")), table.Time(tree.Str(obj, "status", "completionTime"))
	if start.IsZero() {
		return ""
	}
	if !end.IsZero() {
		now = end
	}
	return duration.HumanDuration(now.Sub(start))
}
