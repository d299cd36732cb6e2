package job

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// indexVariable is where a container finds the index of its pod.
const indexVariable = "JOB_COMPLETION_INDEX"

var kind = batchv1.SchemeGroupVersion.WithKind("Job")

// Reconciler brings one Job nearer to its end. It may be called concurrently for different keys.
type Reconciler struct {
	client client.Client
	clock  clock.PassiveClock
	events events.EventRecorder
	pods   podcontrol.Control
}

func newReconciler(c client.Client, live client.Reader, clk clock.PassiveClock, rec events.EventRecorder) *Reconciler {
	return &Reconciler{
		client: c, clock: clk, events: rec,
		pods: podcontrol.Control{Client: c, Live: live, Events: rec},
	}
}

// Reconcile makes one pass over the Job that the request names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	job := &batchv1.Job{}
	if err := r.client.Get(ctx, req.NamespacedName, job); err != nil {
		if apierrors.IsNotFound(err) {
			r.pods.Forget(req.NamespacedName)
			return reconcile.Result{}, r.releaseOrphans(ctx, req.NamespacedName)
		}
		return reconcile.Result{}, err
	}
	if by := job.Spec.ManagedBy; by != nil && *by != batchv1.JobControllerName {
		return reconcile.Result{}, nil // somebody else's
	}
	pods, err := r.pods.Claim(ctx, podcontrol.Owner{Object: job, Kind: kind, Selector: job.Spec.Selector})
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.clock.Now()
	act := plan(snapshot{Job: job, Pods: pods, Now: now})
	failure := r.apply(ctx, job, &act)
	if err := r.writeStatus(ctx, job, act.Status); err != nil {
		return reconcile.Result{}, errors.Join(failure, err)
	}
	// What these pods came to is in the status now, so they may be forgotten.
	if err := r.release(ctx, act.Release); err != nil {
		failure = errors.Join(failure, err)
	}
	wait, err := r.expire(ctx, job, now)
	return reconcile.Result{RequeueAfter: podfacts.Sooner(act.Wait, wait)}, errors.Join(failure, err)
}

// apply creates and deletes what the plan says, and puts into its status what did not work out.
func (r *Reconciler) apply(ctx context.Context, job *batchv1.Job, act *actions) error {
	made, createErr := r.pods.CreateAll(ctx, job, len(act.Create), func(i int) error {
		pod := newPod(job, act.Create[i])
		if n, ok := act.Tries[act.Create[i]]; ok {
			n.write(pod)
		}
		return r.pods.Create(ctx, job, pod)
	})
	// How many of the last batch came to be is not known; the next pass, which comes, counts.
	act.Status.Active -= int32(len(act.Create) - made)
	killErr := r.pods.DeleteAll(ctx, job, act.Kill)
	// What is not to be counted must have no finalizer when it ends.
	discardErr := r.release(ctx, act.Discard)
	if discardErr == nil {
		discardErr = r.pods.DeleteAll(ctx, job, act.Discard)
	}
	return errors.Join(createErr, killErr, discardErr)
}

// newPod makes a pod of a Job; index is noIndex if the Job has none.
func newPod(job *batchv1.Job, index int) *corev1.Pod {
	pod := podcontrol.FromTemplate(job, kind, &job.Spec.Template)
	controllerutil.AddFinalizer(pod, batchv1.JobTrackingFinalizer)
	if index == noIndex {
		return pod
	}
	text := strconv.Itoa(index)
	pod.GenerateName = job.Name + "-" + text + "-"
	if pod.Spec.Hostname == "" {
		pod.Spec.Hostname = job.Name + "-" + text
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, text)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, text)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			tellIndex(&containers[i])
		}
	}
	return pod
}

// tellIndex gives a container the variable that says its pod's index, unless it has one of the name.
func tellIndex(c *corev1.Container) {
	for _, v := range c.Env {
		if v.Name == indexVariable {
			return
		}
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation),
		},
	}})
}

// release takes the finalizer from pods.
func (r *Reconciler) release(ctx context.Context, pods []*corev1.Pod) error {
	pods = tracked(pods)
	return podcontrol.Together(len(pods), func(i int) error {
		pod := pods[i].DeepCopy()
		base := pods[i].DeepCopy()
		controllerutil.RemoveFinalizer(pod, batchv1.JobTrackingFinalizer)
		err := r.client.Patch(ctx, pod, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take the finalizer from pod %s: %w", pod.Name, err)
		}
		return nil
	})
}

// releaseOrphans takes the finalizer from the pods of a Job that is gone: nobody counts them any more.
func (r *Reconciler) releaseOrphans(ctx context.Context, name types.NamespacedName) error {
	pods, err := podcontrol.List(ctx, r.client, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	return r.release(ctx, podfacts.Filter(pods, func(pod *corev1.Pod) bool {
		owner := metav1.GetControllerOfNoCopy(pod)
		return owner != nil && owner.Kind == kind.Kind && owner.Name == name.Name
	}))
}

func (r *Reconciler) writeStatus(ctx context.Context, job *batchv1.Job, next batchv1.JobStatus) error {
	if equality.Semantic.DeepEqual(job.Status, next) {
		return nil
	}
	before := job.Status
	job.Status = next
	if err := r.client.Status().Update(ctx, job); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.tell(job, &before)
	return nil
}

// tell records events about what has become true of a Job.
func (r *Reconciler) tell(job *batchv1.Job, before *batchv1.JobStatus) {
	for _, e := range []struct {
		condition              batchv1.JobConditionType
		level, reason, message string
	}{
		{batchv1.JobComplete, corev1.EventTypeNormal, "Completed", "Job completed"},
		{batchv1.JobSuspended, corev1.EventTypeNormal, "Suspended", "Job suspended"},
		{batchv1.JobFailed, corev1.EventTypeWarning, "", ""},
	} {
		if !conditionTrue(&job.Status, e.condition) || conditionTrue(before, e.condition) {
			continue
		}
		if c := condition(&job.Status, e.condition); e.reason == "" {
			e.reason, e.message = c.Reason, c.Message
		}
		r.events.Eventf(job, nil, e.level, e.reason, "Reconcile", "%s", e.message)
	}
}

// expire deletes a Job that has been done for as long as it is to be kept, and says how long it still is.
func (r *Reconciler) expire(ctx context.Context, job *batchv1.Job, now time.Time) (time.Duration, error) {
	if job.Spec.TTLSecondsAfterFinished == nil || job.DeletionTimestamp != nil || !finished(&job.Status) {
		return 0, nil
	}
	end := condition(&job.Status, batchv1.JobComplete)
	if end == nil || end.Status != corev1.ConditionTrue {
		end = condition(&job.Status, batchv1.JobFailed)
	}
	keep := time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second
	if left := end.LastTransitionTime.Add(keep).Sub(now); left > 0 {
		return left, nil
	}
	err := r.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground),
		client.Preconditions{UID: &job.UID, ResourceVersion: ptr.To(job.ResourceVersion)})
	return 0, client.IgnoreNotFound(err)
}
