package setpoint_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
)

// startShared starts a control plane on a store that others may share, and returns a client of it.
func startShared(t *testing.T, options setpoint.Options) (*setpoint.ControlPlane, kubernetes.Interface) {
	t.Helper()
	cp, err := setpoint.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cp.Stop() })
	if err := cp.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return cp, kubernetes.NewForConfigOrDie(cp.RESTConfig())
}

// Two control planes on one etcd are one to their clients, and when the one whose controllers work
// ends, the other's go on.
func TestControlPlanesShareAStore(t *testing.T) {
	at := "etcd://" + etcdtest.Start(t)
	first, a := startShared(t, setpoint.Options{Store: at})
	if _, err := a.AppsV1().Deployments("default").Create(t.Context(), deployment(1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPods(t, a, 1)
	_, b := startShared(t, setpoint.Options{Store: at})
	awaitPods(t, b, 1)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	scale := []byte(`{"spec":{"replicas":3}}`)
	_, err := b.AppsV1().Deployments("default").Patch(t.Context(), "web", "application/merge-patch+json", scale, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitPods(t, b, 3)
}

// awaitPods waits until there are as many pods.
func awaitPods(t *testing.T, c kubernetes.Interface, want int) {
	t.Helper()
	pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for n := len(pods.Items); n != want; {
		e, ok := <-w.ResultChan()
		if !ok {
			t.Fatalf("the watch ended at %d pods, want %d", n, want)
		}
		switch e.Type {
		case "ADDED":
			n++
		case "DELETED":
			n--
		}
	}
}

// Clients of two control planes on one etcd count on one object, make objects of the same names, and
// make services, all at once. No count is lost, nothing is made twice, no address is given out twice,
// and both tell the same story of it.
func TestControlPlanesOnOneStoreAreOne(t *testing.T) {
	const clients, counts, names = 8, 15, 20
	both, at := make([]kubernetes.Interface, 2), "etcd://"+etcdtest.Start(t)
	for i := range both {
		_, both[i] = startShared(t, setpoint.Options{
			Store: at, Controllers: []string{"none"}, ServiceCIDR: netip.MustParsePrefix("10.0.0.0/21"),
		})
	}
	first, err := both[0].CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "count"}, Data: map[string]string{"n": "0"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var made atomic.Int64
	var group errgroup.Group
	for i := range clients {
		c := both[i%2].CoreV1()
		group.Go(func() error {
			for done := 0; done < counts; {
				err := count(t.Context(), c.ConfigMaps("default"))
				if err == nil {
					done++
				} else if !apierrors.IsConflict(err) {
					return err
				}
			}
			for n := range names {
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("name-", n)}}
				_, err := c.ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{})
				if err == nil {
					made.Add(1)
				} else if !apierrors.IsAlreadyExists(err) {
					return err
				}
				s := &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"},
					Spec:       corev1.ServiceSpec{Type: "NodePort", Ports: []corev1.ServicePort{{Port: 80}}},
				}
				if _, err := c.Services("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if made.Load() != names {
		t.Errorf("%d objects were made of %d names", made.Load(), names)
	}
	last, err := both[0].CoreV1().ConfigMaps("default").Get(t.Context(), "count", metav1.GetOptions{})
	if want := fmt.Sprint(clients * counts); err != nil || last.Data["n"] != want {
		t.Errorf("counted to %s, %v, want %s", last.Data["n"], err, want)
	}
	distinct(t, both[1], clients*names)
	stories := make([]string, len(both))
	for i, c := range both {
		stories[i] = story(t, c, first.ResourceVersion, clients*counts+names)
	}
	if diff := cmp.Diff(stories[0], stories[1]); diff != "" {
		t.Errorf("the control planes tell it differently:\n%s", diff)
	}
}

// count adds one to what an object says.
func count(ctx context.Context, c corev1client.ConfigMapInterface) error {
	cm, err := c.Get(ctx, "count", metav1.GetOptions{})
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(cm.Data["n"])
	if err != nil {
		return err
	}
	cm.Data["n"] = strconv.Itoa(n + 1)
	_, err = c.Update(ctx, cm, metav1.UpdateOptions{})
	return err
}

// distinct fails the test if two services have an address or a port in common.
func distinct(t *testing.T, c kubernetes.Interface, want int) {
	t.Helper()
	list, err := c.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]int{}
	for _, s := range list.Items {
		held[s.Spec.ClusterIP]++
		if port := s.Spec.Ports[0].NodePort; port != 0 {
			held[fmt.Sprint(port)]++
		}
	}
	if len(held) != 2*want+1 {
		t.Errorf("%d services have %d addresses and ports, want %d", len(list.Items), len(held), 2*want+1)
	}
}

// story is what a watch tells of so many changes.
func story(t *testing.T, c kubernetes.Interface, after string, changes int) string {
	t.Helper()
	w, err := c.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: after})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var told strings.Builder
	for range changes {
		e := <-w.ResultChan()
		cm, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			t.Fatalf("the watch says %v", e)
		}
		fmt.Fprintln(&told, e.Type, cm.Name, cm.ResourceVersion, cm.Data["n"])
	}
	return told.String()
}

// Those controllers that lead are heard no more, and others take over and do what there is to do, once.
// What the first had sent still arrives, long after, and changes nothing; and they have ended by then.
func TestControllersOfOneControlPlaneHaveEffects(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a lease has run out")
	}
	at := "etcd://" + etcdtest.Start(t)
	way := newWay(t, strings.TrimPrefix(at, "etcd://"))
	anew := make(chan struct{})
	_, a := startShared(t, setpoint.Options{
		Store: "etcd://" + way.address(), Log: slog.New(told{"the controllers begin anew", sync.OnceFunc(func() { close(anew) })}),
	})
	if _, err := a.AppsV1().Deployments("default").Create(t.Context(), deployment(3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPods(t, a, 3)
	_, b := startShared(t, setpoint.Options{Store: at})
	before, err := b.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	way.hold()
	scale := []byte(`{"spec":{"replicas":5}}`)
	_, err = b.AppsV1().Deployments("default").Patch(t.Context(), "web", "application/merge-patch+json", scale, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitPods(t, b, 5)
	way.pass()
	<-anew // those that lost their lease have ended

	marker := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "marker"}, Spec: deployment(1).Spec.Template.Spec}
	if _, err := b.CoreV1().Pods("default").Create(t.Context(), marker, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := b.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	made := 0
	for e := range w.ResultChan() {
		if pod := e.Object.(*corev1.Pod); e.Type == "ADDED" && pod.Name == "marker" {
			break
		}
		if e.Type == "ADDED" {
			made++
		}
	}
	if made != 2 {
		t.Errorf("%d pods were made for two more replicas", made)
	}
}

// told is a log that calls a function at each record of a message.
type told struct {
	message string
	call    func()
}

func (l told) Enabled(context.Context, slog.Level) bool { return true }
func (l told) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l told) WithGroup(string) slog.Handler            { return l }

func (l told) Handle(_ context.Context, r slog.Record) error {
	if r.Message == l.message {
		l.call()
	}
	return nil
}

// way is a way to etcd on which requests can be held up: they arrive later.
type way struct {
	listener net.Listener
	mu       sync.Mutex
	open     *sync.Cond
	held     bool
}

func newWay(t *testing.T, to string) *way {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{listener: listener}
	w.open = sync.NewCond(&w.mu)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		w.pass()
		listener.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			etcd, err := net.Dial("tcp", to)
			if err != nil {
				from.Close()
				continue
			}
			serving.Go(func() { io.Copy(from, etcd); from.Close() })
			serving.Go(func() { io.Copy(etcd, &waiting{from, w}); etcd.Close() })
		}
	})
	return w
}

func (w *way) address() string { return w.listener.Addr().String() }
func (w *way) hold()           { w.set(true) }
func (w *way) pass()           { w.set(false) }

func (w *way) set(held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = held
	w.open.Broadcast()
}

// waiting reads what is said, and returns it when it may pass.
type waiting struct {
	net.Conn
	way *way
}

func (r *waiting) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.way.mu.Lock()
	defer r.way.mu.Unlock()
	for r.way.held {
		r.way.open.Wait()
	}
	return n, err
}

// Somebody takes the lease of the controllers away. Requests are served on, and the controllers go on when
// they have it again.
func TestControllersBeginAnewWhenTheyLoseTheirLease(t *testing.T) {
	cp, c := startShared(t, setpoint.Options{Store: "etcd://" + etcdtest.Start(t)})
	if _, err := c.AppsV1().Deployments("default").Create(t.Context(), deployment(1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPods(t, c, 1)
	leases := c.CoordinationV1().Leases("kube-system")
	steal := []byte(`{"spec":{"holderIdentity":"thief","leaseDurationSeconds":1}}`)
	for range 2 {
		lease, err := leases.Patch(t.Context(), "setpoint-controllers", "application/merge-patch+json", steal, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := leases.Watch(t.Context(), metav1.ListOptions{ResourceVersion: lease.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := <-w.ResultChan(); !ok {
			t.Fatalf("the watch ended before somebody took the lease back: %v", cp.Stop())
		}
		w.Stop()
	}
	scale := []byte(`{"spec":{"replicas":3}}`)
	_, err := c.AppsV1().Deployments("default").Patch(t.Context(), "web", "application/merge-patch+json", scale, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitPods(t, c, 3)
}
