package builtin

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // a time zone means the same on every machine, those without a database of them too

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/robfig/cron/v3"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// cronJobNameMax leaves room in a Job's name for the eleven bytes that say which run it is.
const cronJobNameMax = 63 - 11

func cronJob() *kinds.Kind {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return &kinds.Kind{
		Group: "batch", Version: "v1", Kind: "CronJob", Resource: "cronjobs", Singular: "cronjob",
		ShortNames: []string{"cj"}, Categories: []string{"all"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.batch.v1.CronJob"),
		Columns: append([]kinds.Column{
			table.Name(),
			table.Text("Schedule", spec["schedule"], "spec", "schedule"),
			table.Column("Timezone", spec["timeZone"], func(obj kinds.Object, _ time.Time) any {
				return table.Or(tree.Str(obj, "spec", "timeZone"), table.None)
			}),
			{Name: "Suspend", Type: "boolean", Description: spec["suspend"], Cell: func(obj kinds.Object, _ time.Time) any {
				if tree.Bool(obj, "spec", "suspend") {
					return "True"
				}
				return "False"
			}},
			{Name: "Active", Type: "integer", Description: status["active"], Cell: func(obj kinds.Object, _ time.Time) any {
				return int64(len(tree.List(obj, "status", "active")))
			}},
			table.Column("Last Schedule", status["lastScheduleTime"], lastSchedule),
			table.Age(),
		}, templateColumnsAt(batchv1.JobSpec{}.SwaggerDoc()["selector"], "spec", "jobTemplate", "spec")...),
		Status:             true,
		Generation:         true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default:                defaultCronJob,
			PrepareForCreate:       prepareCronJob,
			PrepareForUpdate:       prepareCronJobUpdate,
			PrepareForStatusUpdate: keepSpec,
			ValidateCreate:         validateNewCronJob,
			ValidateUpdate: func(obj, old kinds.Object) field.ErrorList {
				return validateCronJob(obj, tree.Map(old, "spec"))
			},
			Warnings: cronJobWarnings,
		},
	}
}

func lastSchedule(obj kinds.Object, now time.Time) any {
	if last := tree.Str(obj, "status", "lastScheduleTime"); last != "" {
		return table.Since(last, now)
	}
	return table.None
}

func defaultCronJob(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	setIfEmpty(spec, "concurrencyPolicy", "Allow")
	tree.Default(spec, false, "suspend")
	tree.Default(spec, int64(3), "successfulJobsHistoryLimit")
	tree.Default(spec, int64(1), "failedJobsHistoryLimit")
	defaultJobPods(tree.Ensure(spec, "jobTemplate", "spec"))
}

func prepareCronJob(_ *kinds.Env, obj kinds.Object) error {
	tree.Delete(obj, "spec", "jobTemplate", "spec", "scheduling") // alpha, and off
	obj["status"] = map[string]any{}
	return nil
}

func prepareCronJobUpdate(_ *kinds.Env, obj, old kinds.Object) error {
	tree.Move("status", old, obj)
	if path := []string{"spec", "jobTemplate", "spec", "scheduling"}; !tree.Has(old, path...) {
		tree.Delete(obj, path...)
	}
	return nil
}

func validateNewCronJob(obj kinds.Object) field.ErrorList {
	e := check.Errors{}
	e.Add(validateCronJob(obj, nil)...)
	if name := tree.Str(obj, "metadata", "name"); len(name) > cronJobNameMax {
		e.Invalid(check.NewPath("metadata", "name"), name, "must be no more than 52 characters")
	}
	return e.List()
}

// validateCronJob checks a CronJob whose spec was another, or nil.
func validateCronJob(obj kinds.Object, old map[string]any) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	if text := spec.Str("schedule"); text == "" {
		e.Later().Required(spec.At("schedule"), "")
	} else {
		cronSchedule(&e, spec, strings.Contains(tree.Str(old, "schedule"), "TZ"))
	}
	e.NotNegative(spec, "startingDeadlineSeconds")
	if spec.Has("timeZone") && (old == nil || spec.Get("timeZone") != old["timeZone"]) {
		timeZone(&e, spec.At("timeZone"), spec.Str("timeZone"))
	}
	e.OneOf(spec, "concurrencyPolicy", "Allow", "Forbid", "Replace")
	inner := spec.Child("jobTemplate").Child("spec")
	jobSpec(&e, inner)
	if selector := check.LabelSelector(inner.Child("selector").Map); selector != nil {
		e.Invalid(inner.At("selector"), selector, "`selector` will be auto-generated")
	}
	if inner.Bool("manualSelector") {
		e.NotSupported(inner.At("manualSelector"), true, "nil", "false")
	}
	e.NotNegative(spec, "successfulJobsHistoryLimit")
	e.NotNegative(spec, "failedJobsHistoryLimit")
	return e.List()
}

// cronSchedule checks a schedule. One that had its time zone in it before there was a field for that
// may keep it there.
func cronSchedule(e *check.Errors, spec check.At, zoned bool) {
	path, text := spec.At("schedule"), spec.Str("schedule")
	if err := parseSchedule(text); err != nil {
		e.Invalid(path, text, err.Error())
	}
	switch {
	case !strings.Contains(text, "TZ"):
	case !zoned:
		e.Invalid(path, text, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	case spec.Has("timeZone"):
		e.Invalid(path, text, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
	}
}

// parseSchedule says what is wrong with a schedule. The parser panics on some that are cut short.
func parseSchedule(text string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	_, err = cron.ParseStandard(text)
	return err
}

// timeZonePart is a part of the name of a time zone, as the database of the IANA writes them, and as it
// once did.
var timeZonePart = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z\.\-_0-9+]{1,14}$`)
})

func timeZone(e *check.Errors, path check.Path, zone string) {
	if zone == "" {
		e.Invalid(path, zone, "timeZone must be nil or non-empty string")
		return
	}
	for part := range strings.SplitSeq(zone, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !timeZonePart().MatchString(part) {
			e.Invalid(path, zone, "unknown time zone "+zone)
			return
		}
	}
	if strings.EqualFold(zone, "Local") {
		e.Invalid(path, zone,
			"timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	if _, err := time.LoadLocation(zone); err != nil {
		e.Invalid(path, zone, err.Error())
	}
}

func cronJobWarnings(obj, old kinds.Object) []string {
	spec := check.Root(obj).Child("spec")
	inner := spec.Child("jobTemplate").Child("spec")
	if old == nil {
		return append(nameWarnings(obj), jobSpecWarnings(inner, nil)...)
	}
	var w []string
	if !tree.Equal(spec.Map, old["spec"]) {
		w = jobSpecWarnings(inner, tree.Map(old, "spec", "jobTemplate", "spec"))
	}
	if strings.Contains(spec.Str("schedule"), "TZ") {
		w = append(w, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return w
}
