package endpoints_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/endpoints"
)

//lint:file-ignore SA1019 Endpoints are kept for those who still read them.

var (
	ctx     = context.Background()
	request = reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "web"}}
)

func service(change func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "svc", Labels: map[string]string{"team": "a"}},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.0.0.1", Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	change(&s.Spec)
	return s
}

func same(*corev1.ServiceSpec) {}

func pod(name, ip string, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
		},
	}
	if ip != "" {
		p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	}
	return p
}

// text is what subsets say: ready addresses, unready ones after a bar, and the ports.
func text(subsets []corev1.EndpointSubset) (lines []string) {
	for _, s := range subsets {
		line := ""
		for _, a := range s.Addresses {
			line += a.IP + " "
		}
		line += "|"
		for _, a := range s.NotReadyAddresses {
			line += " " + a.IP
		}
		line += " :"
		for _, p := range s.Ports {
			line += fmt.Sprintf(" %s=%d", p.Name, p.Port)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestPlan(t *testing.T) {
	going := pod("going", "10.1.0.9", true)
	going.DeletionTimestamp = ptr.To(metav1.NewTime(controllertest.Start))
	ended := pod("ended", "10.1.0.8", true)
	ended.Status.Phase = corev1.PodSucceeded
	named := pod("named", "10.1.0.2", true)
	named.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "extra", ContainerPort: 9}}}}
	a, b := pod("a", "10.1.0.1", true), pod("b", "10.1.0.3", false)
	two := func(s *corev1.ServiceSpec) {
		s.Ports = append(s.Ports, corev1.ServicePort{Name: "x", Port: 81, TargetPort: intstr.FromString("extra")})
	}
	for name, c := range map[string]struct {
		change func(*corev1.ServiceSpec)
		pods   []*corev1.Pod
		want   []string
	}{
		"ready and not":     {same, []*corev1.Pod{b, a, going, ended, pod("new", "", true)}, []string{"10.1.0.1 | 10.1.0.3 : http=8080"}},
		"none":              {same, nil, nil},
		"not ready ones":    {func(s *corev1.ServiceSpec) { s.PublishNotReadyAddresses = true }, []*corev1.Pod{a, b, going}, []string{"10.1.0.1 10.1.0.3 10.1.0.9 | : http=8080"}},
		"ports of some":     {two, []*corev1.Pod{a, named}, []string{"10.1.0.1 10.1.0.2 | : http=8080", "10.1.0.2 | : x=9"}},
		"ports of all":      {two, []*corev1.Pod{named}, []string{"10.1.0.2 | : http=8080 x=9"}},
		"headless, no port": {func(s *corev1.ServiceSpec) { s.ClusterIP, s.Ports = "None", nil }, []*corev1.Pod{a}, []string{"10.1.0.1 | :"}},
		"another family":    {func(s *corev1.ServiceSpec) { s.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }, []*corev1.Pod{a}, nil},
	} {
		got := endpoints.Plan(endpoints.Snapshot{Service: service(c.change), Pods: c.pods})
		if diff := cmp.Diff(c.want, text(got.Subsets)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if again := endpoints.Plan(endpoints.Snapshot{Service: service(c.change), Pods: c.pods, Current: got}); again != nil {
			t.Errorf("%s: what is right is written again: %+v", name, again)
		}
	}
}

func TestLabelsAreTheServices(t *testing.T) {
	got := endpoints.Plan(endpoints.Snapshot{
		Service: service(func(s *corev1.ServiceSpec) { s.ClusterIP = "None" }),
		Current: &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"old": "x"}, Annotations: map[string]string{"kept": "y"}}},
	})
	want := map[string]string{"team": "a", "endpoints.kubernetes.io/managed-by": "endpoint-controller", "service.kubernetes.io/headless": ""}
	if diff := cmp.Diff(want, got.Labels); diff != "" || got.Annotations["kept"] != "y" {
		t.Errorf("annotations %v, labels (-want +got):\n%s", got.Annotations, diff)
	}
}

// TestTooManyAddressesAreCut has more pods than Endpoints hold: the ready ones are kept.
func TestTooManyAddressesAreCut(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 1200 {
		pods = append(pods, pod(fmt.Sprint("p", i), fmt.Sprintf("10.2.%d.%d", i/250, i%250), i >= 600))
	}
	got := endpoints.Plan(endpoints.Snapshot{Service: service(same), Pods: pods})
	s := got.Subsets[0]
	if len(s.Addresses) != 600 || len(s.NotReadyAddresses) != 400 || got.Annotations[corev1.EndpointsOverCapacity] != "truncated" {
		t.Errorf("%d ready and %d other addresses, annotations %v; want 600, 400, and that it is truncated",
			len(s.Addresses), len(s.NotReadyAddresses), got.Annotations)
	}
	if endpoints.Plan(endpoints.Snapshot{Service: service(same), Pods: pods, Current: got}) != nil {
		t.Error("what is right is written again")
	}
	fewer := endpoints.Plan(endpoints.Snapshot{Service: service(same), Pods: pods[600:], Current: got})
	if _, still := fewer.Annotations[corev1.EndpointsOverCapacity]; still {
		t.Error("600 addresses are said to be cut")
	}
}

func TestEndpointsGoWithTheirService(t *testing.T) {
	byHand := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	lock := byHand.DeepCopy()
	lock.Annotations = map[string]string{resourcelock.LeaderElectionRecordAnnotationKey: "{}"}
	for name, c := range map[string]struct {
		there *corev1.Endpoints
		live  []client.Object
		want  []string
	}{
		"gone":              {byHand, nil, []string{"delete Endpoints ns/web"}},
		"not yet heard of":  {byHand, []client.Object{service(same)}, nil},
		"somebody's a lock": {lock, nil, nil},
	} {
		clock := controllertest.NewClock()
		// The cache has heard of the Endpoints, and of no Service.
		cached := controllertest.NewClient(t, clock, nil, c.there)
		live := controllertest.NewClient(t, clock, nil, append(c.live, c.there)...)
		r := endpoints.NewPublisher(cached, live, events.NewFakeRecorder(10))
		if _, err := r.Reconcile(ctx, request); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, cached.Writes()); diff != "" {
			t.Errorf("%s: writes (-want +got):\n%s", name, diff)
		}
	}
}

// TestPublisherWritesOnce makes passes over a Service with a pod.
func TestPublisherWritesOnce(t *testing.T) {
	c := controllertest.NewClient(t, controllertest.NewClock(), nil, service(same), pod("a", "10.1.0.1", true))
	r := endpoints.NewPublisher(c, c, events.NewFakeRecorder(10))
	for _, want := range [][]string{{"create Endpoints ns/web"}, nil, nil} {
		if _, err := r.Reconcile(ctx, request); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Writes()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	}
	other := service(func(s *corev1.ServiceSpec) { s.Selector = nil })
	c = controllertest.NewClient(t, controllertest.NewClock(), nil, other)
	if _, err := endpoints.NewPublisher(c, c, events.NewFakeRecorder(10)).Reconcile(ctx, request); err != nil || len(c.Writes()) > 0 {
		t.Errorf("a Service without a selector: error %v, or something was written", err)
	}
}

// mirrored is what mirrors some Endpoints: family, addresses with whether they are ready, ports.
func mirrored(list []*discoveryv1.EndpointSlice) (lines []string) {
	for _, s := range list {
		line := string(s.AddressType)
		for _, e := range s.Endpoints {
			line += fmt.Sprintf(" %s=%v", e.Addresses[0], *e.Conditions.Ready)
		}
		for _, p := range s.Ports {
			line += fmt.Sprintf(" :%d", *p.Port)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func TestMirror(t *testing.T) {
	port := []corev1.EndpointPort{{Port: 80, Protocol: corev1.ProtocolTCP}}
	from := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web", UID: "ep", Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{"x": "y", corev1.LastAppliedConfigAnnotation: "{}"},
		},
		Subsets: []corev1.EndpointSubset{
			{Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1", Hostname: "h"}, {IP: "fd00::1"}}, NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.0.0.2"}}, Ports: port},
			{Addresses: []corev1.EndpointAddress{{IP: "10.0.0.9"}}, Ports: []corev1.EndpointPort{{Port: 90}}},
		},
	}
	manual := service(func(s *corev1.ServiceSpec) { s.Selector = nil })
	act := endpoints.Mirror(endpoints.Mirrored{Endpoints: from, Service: manual})
	want := []string{"IPv4 10.0.0.1=true 10.0.0.2=false :80", "IPv4 10.0.0.9=true :90", "IPv6 fd00::1=true :80"}
	if diff := cmp.Diff(want, mirrored(act.Create)); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
	labels := map[string]string{
		"a": "b", discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslicemirroring-controller.k8s.io",
	}
	first := act.Create[0]
	if diff := cmp.Diff(labels, first.Labels); diff != "" || len(first.Annotations) != 1 || first.OwnerReferences[0].Kind != "Endpoints" {
		t.Errorf("metadata %+v, labels (-want +got):\n%s", first.ObjectMeta, diff)
	}
	made := act.Create
	if act = endpoints.Mirror(endpoints.Mirrored{Endpoints: from, Service: manual, Slices: made}); len(act.Create)+len(act.Update)+len(act.Delete) > 0 {
		t.Errorf("what is right is written again: %+v", act)
	}
	fewer := from.DeepCopy()
	fewer.Subsets = fewer.Subsets[:1]
	fewer.Subsets[0].Addresses = fewer.Subsets[0].Addresses[:1]
	act = endpoints.Mirror(endpoints.Mirrored{Endpoints: fewer, Service: manual, Slices: made})
	if len(act.Create)+len(act.Update) > 0 || len(act.Delete) != 2 {
		t.Errorf("with one subset of one family: %+v, want two slices deleted", act)
	}
	skip := from.DeepCopy()
	skip.Labels[discoveryv1.LabelSkipMirror] = "true"
	for name, m := range map[string]endpoints.Mirrored{
		"without a service": {Endpoints: from, Slices: made},
		"with a selector":   {Endpoints: from, Service: service(same), Slices: made},
		"not to be":         {Endpoints: skip, Service: manual, Slices: made},
	} {
		if act := endpoints.Mirror(m); len(act.Create) > 0 || len(act.Delete) != 3 {
			t.Errorf("%s: %+v, want three slices deleted", name, act)
		}
	}
}
