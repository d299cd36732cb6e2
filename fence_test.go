package setpoint_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/lease"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
)

// A term ends at one control plane while many write in it at the other: new objects, which no revision
// guards. Nothing is committed after the end, and who is refused is told why.
func TestFencesHoldBetweenControlPlanes(t *testing.T) {
	const terms, writers = 10, 8
	at := "etcd://" + etcdtest.Start(t)
	_, a := startShared(t, setpoint.Options{Store: at, Controllers: []string{"none"}})
	second, _ := startShared(t, setpoint.Options{Store: at, Controllers: []string{"none"}})
	leases := a.CoordinationV1().Leases("default")
	l, err := leases.Create(t.Context(), leaseIn(0), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for epoch := range int32(terms) {
		b := fencedClient(second, l)
		began := make(chan struct{}, writers)
		var group errgroup.Group
		for w := range writers {
			group.Go(func() error {
				for n := 0; ; n++ {
					cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cm-%d-%d-%d", epoch, w, n)}}
					_, err := b.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{})
					if n == 0 {
						began <- struct{}{}
					}
					if lease.IsLost(err) {
						return nil
					}
					if err != nil {
						return err
					}
				}
			})
		}
		for range writers {
			<-began
		}
		next := leaseIn(epoch + 1)
		next.ResourceVersion = l.ResourceVersion
		if l, err = leases.Update(t.Context(), next, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		newest(t, a, fmt.Sprintf("cm-%d-", epoch), l.ResourceVersion)
	}
}

// newest fails the test if an object whose name begins so was written after a revision, or none was.
func newest(t *testing.T, c kubernetes.Interface, prefix, end string) {
	t.Helper()
	over, err := strconv.Atoi(end)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	written := 0
	for _, cm := range all.Items {
		if !strings.HasPrefix(cm.Name, prefix) {
			continue
		}
		written++
		if at, err := strconv.Atoi(cm.ResourceVersion); err != nil || at > over {
			t.Errorf("%s was written at %s, and the term ended at %s", cm.Name, cm.ResourceVersion, end)
		}
	}
	if written == 0 {
		t.Errorf("nothing was written in the term that ended at %s", end)
	}
}

func leaseIn(epoch int32) *coordinationv1.Lease {
	holder := fmt.Sprint("holder ", epoch)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "term"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &epoch},
	}
}

// fencedClient is a client whose writes belong to the term that a lease is in.
func fencedClient(cp *setpoint.ControlPlane, l *coordinationv1.Lease) kubernetes.Interface {
	term := lease.Term{
		Lease: types.NamespacedName{Namespace: l.Namespace, Name: l.Name}, UID: l.UID,
		Holder: *l.Spec.HolderIdentity, Epoch: int64(*l.Spec.LeaseTransitions),
	}
	config := rest.CopyConfig(cp.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.Header.Set(apiserver.FenceHeader, term.Fence())
			return next.RoundTrip(req)
		})
	})
	return kubernetes.NewForConfigOrDie(config)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
