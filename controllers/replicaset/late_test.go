package replicaset_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/replicaset"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

// TestLateWatchMakesNoPods has the controller see nothing of pods for ten minutes: it makes as many
// as it is asked for, and none for those that it does not see.
func TestLateWatchMakesNoPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := setpointtest.NewFaults(1)
		cp := setpointtest.Start(t, setpointtest.Controllers("none"), setpointtest.Inject(faults))
		mgr, err := controller.NewManager(cp.Config, controller.ManagerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := replicaset.Setup(mgr, replicaset.Options{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		defer func() { cancel(); <-ended }()
		synctest.Wait()

		thaw := faults.FreezeWatches("pods")
		labels := map[string]string{"app": "web"}
		rs := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: ptr.To(int32(5)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				},
			},
		}
		if err := cp.Client.Create(t.Context(), rs); err != nil {
			t.Fatal(err)
		}
		uids := func() (all []string) {
			var pods corev1.PodList
			if err := cp.Client.List(t.Context(), &pods); err != nil {
				t.Fatal(err)
			}
			for _, p := range pods.Items {
				all = append(all, string(p.UID))
			}
			return all
		}
		<-time.After(10 * time.Minute)
		synctest.Wait()
		made := uids()
		if len(made) != 5 {
			t.Errorf("%d pods after ten minutes in which none was seen, want 5", len(made))
		}
		thaw()
		<-time.After(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(made, uids()); diff != "" {
			t.Errorf("pods were made or deleted when they were seen (-before +after):\n%s", diff)
		}
	})
}
