// Package controllers_test puts the controllers of the box through trials, each and together.
package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/cronjob"
	"github.com/setpoint-dev/setpoint/controllers/daemonset"
	"github.com/setpoint-dev/setpoint/controllers/deployment"
	"github.com/setpoint-dev/setpoint/controllers/disruption"
	"github.com/setpoint-dev/setpoint/controllers/endpoints"
	"github.com/setpoint-dev/setpoint/controllers/endpointslice"
	"github.com/setpoint-dev/setpoint/controllers/gc"
	"github.com/setpoint-dev/setpoint/controllers/horizontalpodautoscaler"
	"github.com/setpoint-dev/setpoint/controllers/job"
	"github.com/setpoint-dev/setpoint/controllers/namespace"
	"github.com/setpoint-dev/setpoint/controllers/nodelifecycle"
	"github.com/setpoint-dev/setpoint/controllers/persistentvolume"
	"github.com/setpoint-dev/setpoint/controllers/replicaset"
	"github.com/setpoint-dev/setpoint/controllers/serviceaccount"
	"github.com/setpoint-dev/setpoint/controllers/statefulset"
	"github.com/setpoint-dev/setpoint/controllers/volumeprotection"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

//lint:file-ignore SA1019 Endpoints are kept for those who still read them.

// TestEveryControllerConvergesUnderFaults puts each controller of the box through a trial, alone in a
// process that fails and dies, while the others run well.
func TestEveryControllerConvergesUnderFaults(t *testing.T) {
	for name, trial := range trials() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trial.Seeds = []uint64{1, 2}
			trial.Options = []setpointtest.Option{setpointtest.Nodes(2), setpointtest.Controllers("-" + name)}
			trial.Run(t)
		})
	}
}

// TestB158_FailedListDecidesNothing has every list and watch of a controller fail in each way from the start,
// while there is something to do for it: it neither creates nor deletes.
func TestB158_FailedListDecidesNothing(t *testing.T) {
	for name, trial := range trials() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				faults := setpointtest.NewFaults(1)
				cp := setpointtest.Start(t, setpointtest.Nodes(2), setpointtest.Controllers("-"+name), setpointtest.Inject(faults))
				for _, step := range trial.Steps {
					if err := step.Do(t.Context(), cp.Client); err != nil {
						t.Fatal(err)
					}
				}
				decided := watchDecisions(faults)
				for _, failure := range []setpointtest.Effect{
					setpointtest.Refuse(apierrors.NewBadRequest("field label not supported")),
					setpointtest.Refuse(apierrors.NewTimeoutError("too slow", 1)),
					setpointtest.Unreachable(),
				} {
					faults.Add(setpointtest.Rule{Verbs: []string{"list", "watch"}, Times: 50, Effect: failure})
				}
				faults.Add(setpointtest.Rule{
					Verbs: []string{"list", "watch"}, Effect: setpointtest.Refuse(apierrors.NewBadRequest("field label not supported")),
				})
				run(t, cp, io.Discard, func(mgr *controller.Manager) {
					if err := trial.Setup(mgr); err != nil {
						t.Fatal(err)
					}
				})
				<-time.After(20 * time.Minute)
				synctest.Wait()
				if made := decided(); len(made) > 0 {
					t.Errorf("decided without a list: %q", made)
				}
			})
		})
	}
}

// trials are what each controller is put through.
func trials() map[string]setpointtest.Trial {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "one"}}},
	}
	once := *template.DeepCopy()
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	d := web(3)
	rs := &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](5), Selector: selector, Template: template}}
	sts := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3), Selector: selector, Template: template}}
	ds := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
	j := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](3), Template: once}}
	cj := &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent,
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}},
	}}
	svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Selector: selector.MatchLabels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}},
	}}
	manual := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "manual"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	byHand := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "manual"},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}}, Ports: []corev1.EndpointPort{{Port: 8080}},
		}},
	}
	rc := &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{
		Replicas: ptr.To[int32](4), Selector: selector.MatchLabels, Template: &template,
	}}
	half := intstr.FromString("50%")
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &half, Selector: selector,
	}}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		MinReplicas:    ptr.To[int32](4), MaxReplicas: 6,
	}}
	storage := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: storage, AccessModes: modes, StorageClassName: "by-hand",
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
	}}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("by-hand"), AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: storage},
	}}
	isBound := func(c *corev1.PersistentVolumeClaim) error { return want("phase", corev1.ClaimBound, c.Status.Phase) }
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}

	return map[string]setpointtest.Trial{
		"deployment": {
			Setup: func(m *controller.Manager) error { return deployment.Setup(m, deployment.Options{}) },
			Steps: []setpointtest.Step{
				create(d, func(d *appsv1.Deployment) error {
					return want("ready replicas", 3, d.Status.ReadyReplicas)
				}),
				change(d, "another image", `{"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"c","image":"two"}]}}}}`,
					func(d *appsv1.Deployment) error {
						s := d.Status
						return errors.Join(want("observed generation", d.Generation, s.ObservedGeneration),
							want("replicas", 2, s.Replicas), want("new and available", 2, min(s.UpdatedReplicas, s.AvailableReplicas)))
					}),
			},
		},
		"replicaset": {
			Setup: func(m *controller.Manager) error { return replicaset.Setup(m, replicaset.Options{}) },
			Steps: []setpointtest.Step{
				create(rs, func(rs *appsv1.ReplicaSet) error { return want("ready replicas", 5, rs.Status.ReadyReplicas) }),
				change(rs, "fewer", `{"spec":{"replicas":2}}`, func(rs *appsv1.ReplicaSet) error {
					return errors.Join(want("replicas", 2, rs.Status.Replicas), want("ready replicas", 2, rs.Status.ReadyReplicas))
				}),
				podsLeft(2),
			},
		},
		"statefulset": {
			Setup: func(m *controller.Manager) error { return statefulset.Setup(m, statefulset.Options{}) },
			Steps: []setpointtest.Step{
				create(sts, func(s *appsv1.StatefulSet) error { return want("ready replicas", 3, s.Status.ReadyReplicas) }),
				change(sts, "fewer", `{"spec":{"replicas":1}}`, func(s *appsv1.StatefulSet) error {
					return want("replicas", 1, s.Status.Replicas)
				}),
				podsLeft(1),
			},
		},
		"daemonset": {
			Setup: func(m *controller.Manager) error { return daemonset.Setup(m, daemonset.Options{}) },
			Steps: []setpointtest.Step{
				create(ds, func(s *appsv1.DaemonSet) error { return want("ready", 2, s.Status.NumberReady) }),
				podsLeft(2),
			},
		},
		"job": {
			Setup: func(m *controller.Manager) error { return job.Setup(m, job.Options{}) },
			Steps: []setpointtest.Step{
				create(j, func(j *batchv1.Job) error { return want("ready", 3, ptr.Deref(j.Status.Ready, 0)) }),
				change(j, "suspended", `{"spec":{"suspend":true}}`, func(j *batchv1.Job) error {
					return want("active", 0, j.Status.Active)
				}),
				podsLeft(0),
			},
		},
		"cronjob": {
			Setup: func(m *controller.Manager) error { return cronjob.Setup(m, cronjob.Options{}) },
			Steps: []setpointtest.Step{
				create(cj, func(c *batchv1.CronJob) error { return want("active", 1, len(c.Status.Active)) }),
				change(cj, "suspended", `{"spec":{"suspend":true}}`, func(c *batchv1.CronJob) error {
					return want("active", 1, len(c.Status.Active))
				}),
				podsLeft(1),
			},
		},
		"endpointslice": {
			Setup: func(m *controller.Manager) error { return endpointslice.Setup(m, endpointslice.Options{}) },
			Steps: []setpointtest.Step{
				create(rs.DeepCopy(), func(rs *appsv1.ReplicaSet) error { return want("ready replicas", 5, rs.Status.ReadyReplicas) }),
				{Name: "create a service", Do: creates(svc), Holds: publishes("web", 5)},
				{Name: "fewer", Do: patches(rs, `{"spec":{"replicas":2}}`), Holds: publishes("web", 2)},
			},
		},
		"endpoints": {
			Setup: func(m *controller.Manager) error { return endpoints.Setup(m, endpoints.Options{}) },
			Steps: []setpointtest.Step{
				create(rs.DeepCopy(), func(rs *appsv1.ReplicaSet) error { return want("ready replicas", 5, rs.Status.ReadyReplicas) }),
				{Name: "create a service", Do: creates(svc), Holds: addresses(5)},
				{Name: "fewer", Do: patches(rs, `{"spec":{"replicas":2}}`), Holds: addresses(2)},
				{Name: "create a service without pods", Do: creates(manual), Holds: publishes("manual", 0)},
				{Name: "write its endpoints", Do: creates(byHand), Holds: publishes("manual", 1)},
				{Name: "delete it", Do: deletes(manual), Holds: gone(byHand)},
			},
		},
		"replicationcontroller": {
			Setup: func(m *controller.Manager) error {
				return replicaset.SetupReplicationController(m, replicaset.Options{})
			},
			Steps: []setpointtest.Step{
				create(rc, func(c *corev1.ReplicationController) error { return want("ready replicas", 4, c.Status.ReadyReplicas) }),
				change(rc, "fewer", `{"spec":{"replicas":1}}`, func(c *corev1.ReplicationController) error {
					return errors.Join(want("replicas", 1, c.Status.Replicas), want("ready replicas", 1, c.Status.ReadyReplicas))
				}),
				podsLeft(1),
			},
		},
		"disruption": {
			Setup: func(m *controller.Manager) error { return disruption.Setup(m, disruption.Options{}) },
			Steps: []setpointtest.Step{
				create(rs.DeepCopy(), func(rs *appsv1.ReplicaSet) error { return want("ready replicas", 5, rs.Status.ReadyReplicas) }),
				create(pdb, func(b *policyv1.PodDisruptionBudget) error {
					return errors.Join(want("expected", 5, b.Status.ExpectedPods), want("allowed", 2, b.Status.DisruptionsAllowed))
				}),
				{Name: "fewer", Do: patches(rs, `{"spec":{"replicas":2}}`), Holds: holds(pdb, func(b *policyv1.PodDisruptionBudget) error {
					return errors.Join(want("expected", 2, b.Status.ExpectedPods), want("allowed", 1, b.Status.DisruptionsAllowed))
				})},
			},
		},
		"horizontalpodautoscaler": {
			Setup: func(m *controller.Manager) error {
				return horizontalpodautoscaler.Setup(m, horizontalpodautoscaler.Options{})
			},
			Steps: []setpointtest.Step{
				create(d.DeepCopy(), func(d *appsv1.Deployment) error { return want("ready replicas", 3, d.Status.ReadyReplicas) }),
				{Name: "at least four", Do: creates(hpa), Holds: holds(d, func(d *appsv1.Deployment) error {
					return want("ready replicas", 4, d.Status.ReadyReplicas)
				})},
				change(hpa, "at most two", `{"spec":{"minReplicas":1,"maxReplicas":2}}`, func(h *autoscalingv2.HorizontalPodAutoscaler) error {
					c := h.Status.Conditions
					return errors.Join(want("replicas", 2, h.Status.CurrentReplicas), want("conditions", 2, len(c)),
						want("reason", "FailedGetResourceMetric", c[len(c)-1].Reason))
				}),
				podsLeft(2),
			},
		},
		"persistentvolume": {
			Setup: func(m *controller.Manager) error { return persistentvolume.Setup(m, persistentvolume.Options{}) },
			Steps: []setpointtest.Step{
				create(pv, func(v *corev1.PersistentVolume) error { return want("phase", corev1.VolumeAvailable, v.Status.Phase) }),
				create(pvc, isBound),
				{Name: "delete the claim", Do: deletes(pvc), Holds: holds(pv, func(v *corev1.PersistentVolume) error {
					return want("phase", corev1.VolumeReleased, v.Status.Phase)
				})},
			},
		},
		"volumeprotection": {
			Setup: func(m *controller.Manager) error { return volumeprotection.Setup(m, volumeprotection.Options{}) },
			Steps: []setpointtest.Step{
				create(pv.DeepCopy(), func(v *corev1.PersistentVolume) error { return want("finalizers", 1, len(v.Finalizers)) }),
				create(pvc.DeepCopy(), func(c *corev1.PersistentVolumeClaim) error {
					return errors.Join(isBound(c), want("finalizers", 1, len(c.Finalizers)), want("conditions", 1, len(c.Status.Conditions)))
				}),
				{Name: "delete the claim", Do: deletes(pvc), Holds: gone(pvc)},
				{Name: "delete the volume", Do: deletes(pv), Holds: gone(pv)},
			},
		},
		"namespace": {
			Setup: func(m *controller.Manager) error { return namespace.Setup(m, namespace.Options{}) },
			Steps: []setpointtest.Step{
				{Name: "fill a namespace", Do: fill(other), Holds: func(context.Context, client.Client) error { return nil }},
				{Name: "delete it", Do: deletes(other), Holds: gone(other)},
			},
		},
		"garbagecollector": {
			Setup: func(m *controller.Manager) error { return gc.Setup(m, gc.Options{}) },
			Steps: []setpointtest.Step{
				create(d.DeepCopy(), func(d *appsv1.Deployment) error { return want("ready replicas", 3, d.Status.ReadyReplicas) }),
				{Name: "delete it", Do: deletes(d), Holds: gone(d)},
				podsLeft(0),
			},
		},
		"serviceaccount": {
			Setup: func(m *controller.Manager) error {
				return serviceaccount.Setup(m, serviceaccount.Options{CA: []byte("CA")})
			},
			Steps: []setpointtest.Step{{
				Name: "create a namespace", Do: creates(other),
				Holds: func(ctx context.Context, c client.Client) error {
					return c.Get(ctx, client.ObjectKey{Namespace: "other", Name: "default"}, &corev1.ServiceAccount{})
				},
			}},
		},
		"nodelifecycle": {
			Setup: func(m *controller.Manager) error { return nodelifecycle.Setup(m, nodelifecycle.Options{}) },
			Steps: []setpointtest.Step{{
				Name: "a node that never comes", Do: creates(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "silent"}}),
				Holds: tainted("silent", corev1.TaintNodeUnreachable),
			}},
		},
	}
}

// web is a deployment.
func web(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "one"}}},
			},
		},
	}
}

func want[T comparable](what string, want, found T) error {
	if want != found {
		return fmt.Errorf("%s: %v, want %v", what, found, want)
	}
	return nil
}

func creates(obj client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, obj.DeepCopyObject().(client.Object))
	}
}

func deletes(obj client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Delete(ctx, obj.DeepCopyObject().(client.Object), client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
}

func patches(obj client.Object, patch string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Patch(ctx, obj.DeepCopyObject().(client.Object), client.RawPatch("application/strategic-merge-patch+json", []byte(patch)))
	}
}

// holds reads an object and asks what of it is not so.
func holds[T client.Object](obj T, check func(T) error) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		now := obj.DeepCopyObject().(T)
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), now); err != nil {
			return err
		}
		return check(now)
	}
}

func create[T client.Object](obj T, check func(T) error) setpointtest.Step {
	return setpointtest.Step{Name: "create " + obj.GetName(), Do: creates(obj), Holds: holds(obj, check)}
}

func change[T client.Object](obj T, name, patch string, check func(T) error) setpointtest.Step {
	return setpointtest.Step{Name: name, Do: patches(obj, patch), Holds: holds(obj, check)}
}

// podsLeft does nothing, and wants so many pods in the end.
func podsLeft(n int) setpointtest.Step {
	return setpointtest.Step{
		Name: fmt.Sprint(n, " pods"),
		Do:   func(context.Context, client.Client) error { return nil },
		Holds: func(ctx context.Context, c client.Client) error {
			var pods corev1.PodList
			if err := c.List(ctx, &pods); err != nil {
				return err
			}
			return want("pods", n, len(pods.Items))
		},
	}
}

// addresses wants so many addresses in the Endpoints of the service web.
func addresses(n int) func(context.Context, client.Client) error {
	web := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	return holds(web, func(e *corev1.Endpoints) error {
		found := 0
		for _, s := range e.Subsets {
			found += len(s.Addresses)
		}
		return want("addresses", n, found)
	})
}

// publishes wants so many endpoints of a service.
func publishes(service string, n int) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		var slices discoveryv1.EndpointSliceList
		err := c.List(ctx, &slices, client.MatchingLabels{discoveryv1.LabelServiceName: service})
		if err != nil {
			return err
		}
		found := 0
		for _, s := range slices.Items {
			found += len(s.Endpoints)
		}
		return want("endpoints", n, found)
	}
}

// fill makes a namespace and some things in it, one of which waits for a finalizer for a while.
func fill(ns *corev1.Namespace) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		if err := c.Create(ctx, ns.DeepCopy()); err != nil {
			return err
		}
		for i := range 10 {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: fmt.Sprint("cm-", i)}}
			if err := c.Create(ctx, cm); err != nil {
				return err
			}
		}
		return nil
	}
}

func gone(obj client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj.DeepCopyObject().(client.Object))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	}
}

func tainted(node, taint string) func(context.Context, client.Client) error {
	obj := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	return holds(obj, func(n *corev1.Node) error {
		for _, t := range n.Spec.Taints {
			if t.Key == taint && t.TimeAdded != nil && t.TimeAdded.Before(ptr.To(metav1.NewTime(time.Now()))) {
				return nil
			}
		}
		return fmt.Errorf("taints: %v, want %s", n.Spec.Taints, taint)
	})
}
