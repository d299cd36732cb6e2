// Package operator_test is a suite as Kubebuilder makes them, with ginkgo, gomega and controller-runtime's
// own envtest, which is told to use the server that runs.
package operator_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	bookv1 "github.com/setpoint-dev/setpoint/conformance/operator/api/v1"
	"github.com/setpoint-dev/setpoint/conformance/server"
)

var (
	existing  *rest.Config // of the server that the test has started
	testEnv   *envtest.Environment
	k8sClient client.Client
	cached    client.Client // the manager's, which reads from its cache
	mgr       ctrl.Manager
	ctx       context.Context
	end       func()
)

func TestControllers(t *testing.T) {
	existing = server.Start(t, "server", "--controllers=garbagecollector,namespace").Config
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "Controller Suite")
}

var _ = BeforeSuite(func() {
	ctrl.SetLogger(GinkgoLogr)
	use := true
	testEnv = &envtest.Environment{
		UseExistingCluster: &use, Config: existing,
		CRDDirectoryPaths:     []string{filepath.Join("config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	cfg, err := testEnv.Start()
	Expect(err).NotTo(HaveOccurred())
	Expect(bookv1.AddToScheme(scheme.Scheme)).To(Succeed())
	k8sClient, err = client.New(cfg, client.Options{Scheme: scheme.Scheme})
	Expect(err).NotTo(HaveOccurred())

	mgr, err = ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "guestbook", LeaderElectionNamespace: "default",
		LeaderElectionReleaseOnCancel: true,
	})
	Expect(err).NotTo(HaveOccurred())
	cached = mgr.GetClient()
	Expect((&reconciler{cached}).setUp(mgr)).To(Succeed())

	var cancel context.CancelFunc
	ctx, cancel = context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		defer GinkgoRecover()
		Expect(mgr.Start(ctx)).To(Succeed())
	})
	end = func() {
		cancel()
		running.Wait()
	}
})

var _ = AfterSuite(func() {
	if end != nil {
		end()
	}
	Expect(testEnv.Stop()).To(Succeed())
})
