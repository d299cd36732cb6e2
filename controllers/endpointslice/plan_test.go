package endpointslice_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/endpointslice"
)

func newService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "service"},
		Spec: corev1.ServiceSpec{
			Selector:   map[string]string{"app": "web"},
			ClusterIP:  "10.0.0.1",
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP}},
		},
	}
}

func newPod(i int, options ...func(*corev1.Pod)) *corev1.Pod {
	name := fmt.Sprintf("p%03d", i)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			PodIPs:     []corev1.PodIP{{IP: fmt.Sprintf("127.1.%d.%d", i/250, i%250+1)}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func notReady(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
func leaving(p *corev1.Pod)  { p.DeletionTimestamp = ptr.To(metav1.NewTime(controllertest.Start)) }

// world keeps the slices that plans make.
type world struct {
	service *corev1.Service
	pods    []*corev1.Pod
	slices  []*discoveryv1.EndpointSlice
	made    int
}

// pass plans, does what was planned, and returns it.
func (w *world) pass() endpointslice.Actions {
	act := endpointslice.Plan(endpointslice.Snapshot{Service: w.service, Pods: w.pods, Slices: w.slices, Zones: map[string]string{"n1": "z1"}})
	for _, slice := range act.Create {
		w.made++
		slice.Name = fmt.Sprintf("web-%d", w.made)
		w.slices = append(w.slices, slice)
	}
	for _, next := range act.Update {
		for i := range w.slices {
			if w.slices[i].Name == next.Name {
				w.slices[i] = next
			}
		}
	}
	for _, gone := range act.Delete {
		for i := range w.slices {
			if w.slices[i].Name == gone.Name {
				w.slices = append(w.slices[:i:i], w.slices[i+1:]...)
				break
			}
		}
	}
	return act
}

func (w *world) sizes() []int {
	var sizes []int
	for _, slice := range w.slices {
		sizes = append(sizes, len(slice.Endpoints))
	}
	return sizes
}

func idle(act endpointslice.Actions) bool {
	return len(act.Create)+len(act.Update)+len(act.Delete) == 0
}

func TestSliceOfAReadyPod(t *testing.T) {
	w := &world{service: newService(), pods: []*corev1.Pod{newPod(0)}}
	w.pass()
	want := []*discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", GenerateName: "web-", Namespace: "ns",
			Labels: map[string]string{
				"kubernetes.io/service-name":             "web",
				"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: "web", UID: "service", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080)), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{"127.1.0.1"},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			NodeName:   ptr.To("n1"), Zone: ptr.To("z1"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p000", UID: "p000"},
		}},
	}}
	if diff := cmp.Diff(want, w.slices); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
	if act := w.pass(); !idle(act) {
		t.Errorf("a second pass plans %+v", act)
	}
}

func TestConditions(t *testing.T) {
	for _, c := range []struct {
		name                        string
		pod                         *corev1.Pod
		publish                     bool
		ready, serving, terminating bool
	}{
		{"ready", newPod(0), false, true, true, false},
		{"not ready", newPod(0, notReady), false, false, false, false},
		{"leaving but serving", newPod(0, leaving), false, false, true, true},
		{"not ready, published all the same", newPod(0, notReady), true, true, false, false},
	} {
		w := &world{service: newService(), pods: []*corev1.Pod{c.pod}}
		w.service.Spec.PublishNotReadyAddresses = c.publish
		w.pass()
		got := w.slices[0].Endpoints[0].Conditions
		want := discoveryv1.EndpointConditions{Ready: &c.ready, Serving: &c.serving, Terminating: &c.terminating}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestEndedPodsAndThoseWithoutAddressAreLeftOut(t *testing.T) {
	w := &world{service: newService(), pods: []*corev1.Pod{
		newPod(0, func(p *corev1.Pod) { p.Status.PodIPs = nil }),
		newPod(1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		newPod(2, func(p *corev1.Pod) { p.Status.PodIPs[0].IP = "fd00::1" }),
	}}
	w.pass()
	if diff := cmp.Diff([]int{0}, w.sizes()); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	if w.slices[0].Ports != nil {
		t.Errorf("a slice without endpoints has ports %v", w.slices[0].Ports)
	}
}

func TestB098_OneSliceForEachHundredEndpoints(t *testing.T) {
	w := &world{service: newService()}
	for i := range 250 {
		w.pods = append(w.pods, newPod(i))
	}
	w.pass()
	if diff := cmp.Diff([]int{100, 100, 50}, w.sizes()); diff != "" {
		t.Fatalf("sizes (-want +got):\n%s", diff)
	}
	if act := w.pass(); !idle(act) {
		t.Errorf("a second pass plans %+v", act)
	}
	w.pods = append(w.pods[:3:3], w.pods[4:]...) // one goes: one slice changes
	if act := w.pass(); len(act.Update) != 1 || len(act.Create)+len(act.Delete) != 0 {
		t.Errorf("one pod fewer plans %d updates, %d creates, %d deletes; want one update", len(act.Update), len(act.Create), len(act.Delete))
	}
	w.pods = w.pods[:90]
	w.pass()
	if diff := cmp.Diff([]int{90}, w.sizes()); diff != "" {
		t.Errorf("with 90 pods left, sizes (-want +got):\n%s", diff)
	}
}

// TestB098_DuplicateSlicesAreMerged starts from what two controllers at once could have left.
func TestB098_DuplicateSlicesAreMerged(t *testing.T) {
	w := &world{service: newService(), pods: []*corev1.Pod{newPod(0), newPod(1)}}
	w.pass()
	twin := w.slices[0].DeepCopy()
	twin.Name = "web-twin"
	w.slices = append(w.slices, twin)
	act := w.pass()
	if len(act.Delete) != 1 || act.Delete[0].Name != "web-twin" || len(act.Update)+len(act.Create) != 0 {
		t.Errorf("plan %+v, want that the twin is deleted and nothing else", act)
	}
}

func TestNamedTargetPortsAreResolvedPerPod(t *testing.T) {
	named := func(port int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: port}}}}
		}
	}
	w := &world{service: newService(), pods: []*corev1.Pod{newPod(0, named(8080)), newPod(1, named(9090)), newPod(2, named(8080))}}
	w.service.Spec.Ports[0].TargetPort = intstr.FromString("web")
	w.pass()
	got := map[int32]int{}
	for _, slice := range w.slices {
		got[*slice.Ports[0].Port] = len(slice.Endpoints)
	}
	if diff := cmp.Diff(map[int32]int{8080: 2, 9090: 1}, got); diff != "" {
		t.Errorf("endpoints by port (-want +got):\n%s", diff)
	}
}

func TestHeadless(t *testing.T) {
	w := &world{service: newService(), pods: []*corev1.Pod{newPod(0, func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "db-0", "web" })}}
	w.service.Spec.ClusterIP, w.service.Spec.Ports = corev1.ClusterIPNone, nil
	w.pass()
	slice := w.slices[0]
	if _, ok := slice.Labels[corev1.IsHeadlessService]; !ok || ptr.Deref(slice.Endpoints[0].Hostname, "") != "db-0" {
		t.Errorf("labels %v, hostname %v; want the headless label and db-0", slice.Labels, slice.Endpoints[0].Hostname)
	}
}

func TestServiceWithoutSelectorIsLeftAlone(t *testing.T) {
	w := &world{service: newService(), pods: []*corev1.Pod{newPod(0)}}
	w.service.Spec.Selector = nil
	if act := w.pass(); !idle(act) {
		t.Errorf("plan %+v, want nothing", act)
	}
}

func TestReconcileRests(t *testing.T) {
	c := controllertest.NewClient(t, controllertest.NewClock(), nil, newService(), newPod(0), newPod(1),
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "foreign", Namespace: "ns", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}})
	r := endpointslice.NewReconciler(c)
	request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "web"}}
	pass := func() []string {
		t.Helper()
		if _, err := r.Reconcile(context.Background(), request); err != nil {
			t.Fatal(err)
		}
		return c.Writes()
	}
	if writes := pass(); len(writes) != 1 || !strings.HasPrefix(writes[0], "create EndpointSlice ns/web-") {
		t.Errorf("first pass wrote %v, want one slice", writes)
	}
	if writes := pass(); len(writes) != 0 {
		t.Errorf("second pass wrote %v, want nothing", writes)
	}
}
