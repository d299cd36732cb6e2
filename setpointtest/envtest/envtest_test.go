package envtest_test

import (
	"context"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/setpoint-dev/setpoint/setpointtest/envtest"
)

// TestAsInASuite does what the suite that Kubebuilder writes does: start, make a manager with a
// reconciler, see it work, stop.
func TestAsInASuite(t *testing.T) {
	testEnv := &envtest.Environment{ErrorIfCRDPathMissing: true}
	cfg, err := testEnv.Start()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	reconciled := make(chan reconcile.Request, 10)
	err = ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(
		reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			reconciled <- req
			return reconcile.Result{}, mgr.GetClient().Get(ctx, req.NamespacedName, &corev1.ConfigMap{})
		}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()

	k8sClient, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "seen"}}
	if err := k8sClient.Create(ctx, obj); err != nil {
		t.Fatal(err)
	}
	if req := <-reconciled; req.NamespacedName != client.ObjectKeyFromObject(obj) {
		t.Errorf("reconciled %s, want %s", req, client.ObjectKeyFromObject(obj))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("manager: %v", err)
	}
	for range 2 {
		if err := testEnv.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}

// TestControllersRunIfAskedFor has a suite take a built-in one.
func TestControllersRunIfAskedFor(t *testing.T) {
	testEnv := &envtest.Environment{Controllers: []string{"deployment"}, Listen: "127.0.0.1:0"}
	start(t, testEnv)
	cfg, err := clientcmd.RESTConfigFromKubeConfig(testEnv.KubeConfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), &appsv1.ReplicaSetList{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	labels := map[string]string{"app": "web"}
	err = c.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if event := <-w.ResultChan(); event.Object.(*appsv1.ReplicaSet).GenerateName != "" {
		t.Errorf("%s of a replica set with a generated name", event.Type)
	}
}

// TestDefinitionsAreInstalled has a suite name a folder of CustomResourceDefinitions, and declare one
// in Go.
func TestDefinitionsAreInstalled(t *testing.T) {
	testEnv := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "testdata", "crds")},
		ErrorIfCRDPathMissing: true,
		CRDs:                  []*apiextensionsv1.CustomResourceDefinition{definition("gauges", "Gauge")},
	}
	cfg := start(t, testEnv)
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"Valve", "Gauge"} {
		if err := c.Create(t.Context(), object(kind, "main", 40)); err != nil {
			t.Errorf("create: %v", err)
		}
	}
	if err := c.Create(t.Context(), object("Valve", "other", 140)); !apierrors.IsInvalid(err) {
		t.Errorf("a valve that is open by 140%%: %v, want that it is invalid", err)
	}
	var names []string
	for _, crd := range testEnv.CRDs {
		names = append(names, crd.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"gauges.plant.example.dev", "valves.plant.example.dev"}, names); diff != "" {
		t.Errorf("definitions in CRDs (-want +got):\n%s", diff)
	}
}

// TestUsers has somebody else ask, in the process and over a port.
func TestUsers(t *testing.T) {
	testEnv := &envtest.Environment{Listen: "127.0.0.1:0"}
	start(t, testEnv)
	user := envtest.User{Name: "../mallory", Groups: []string{"system:masters", "auditors"}}
	added, err := testEnv.AddUser(user, &rest.Config{UserAgent: "suite", QPS: 7, Burst: 7})
	if err != nil {
		t.Fatal(err)
	}
	if got := added.Config(); got.UserAgent != "suite" || got.QPS != 7 {
		t.Errorf("settings of the base are lost: %q, %v", got.UserAgent, got.QPS)
	}
	kubeconfig, err := added.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	remote, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for where, config := range map[string]*rest.Config{"in process": added.Config(), "by port": remote} {
		review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().
			Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		got := review.Status.UserInfo
		if got.Username != user.Name || !slices.Contains(got.Groups, "auditors") {
			t.Errorf("%s: asked as %s of %v, want %s of %v", where, got.Username, got.Groups, user.Name, user.Groups)
		}
	}
}

// TestMistakesAreNamed has Start say what it cannot do, and leave nothing running.
func TestMistakesAreNamed(t *testing.T) {
	if _, err := (&envtest.Environment{}).AddUser(envtest.User{Name: "early"}, nil); err == nil {
		t.Error("a user was added to what does not run")
	}
	for name, testEnv := range map[string]*envtest.Environment{
		"no/such/folder": {CRDDirectoryPaths: []string{"no/such/folder"}, ErrorIfCRDPathMissing: true},
		"nosuch":         {Controllers: []string{"nosuch"}},
	} {
		_, err := testEnv.Start()
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if testEnv.Stop() != nil {
			t.Errorf("%s: cannot be stopped", name)
		}
	}
}

func start(t *testing.T, testEnv *envtest.Environment) *rest.Config {
	t.Helper()
	cfg, err := testEnv.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := testEnv.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return cfg
}

func definition(plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".plant.example.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "plant.example.dev", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: new(true),
					},
				},
			}},
		},
	}
}

func object(kind, name string, percent int64) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"percentOpen": percent}}}
	obj.SetAPIVersion("plant.example.dev/v1")
	obj.SetKind(kind)
	obj.SetNamespace("default")
	obj.SetName(name)
	return obj
}

// TestWebhooksOfASuite installs a webhook as suites do, and serves it with controller-runtime's server.
func TestWebhooksOfASuite(t *testing.T) {
	fail, none, path := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, "/judge"
	testEnv := &envtest.Environment{WebhookInstallOptions: envtest.WebhookInstallOptions{
		ValidatingWebhooks: []*admissionregistrationv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "judge"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "judge.example.com", FailurePolicy: &fail, SideEffects: &none,
				AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					Service: &admissionregistrationv1.ServiceReference{Namespace: "system", Name: "webhook", Path: &path},
				},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{"CREATE"},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
					},
				}},
			}},
		}},
	}}
	cfg, err := testEnv.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := testEnv.Stop(); err != nil {
			t.Error(err)
		}
	})
	o := &testEnv.WebhookInstallOptions
	hooks := webhook.NewServer(webhook.Options{Host: o.LocalServingHost, Port: o.LocalServingPort, CertDir: o.LocalServingCertDir})
	hooks.Register(path, &webhook.Admission{Handler: admission.HandlerFunc(
		func(_ context.Context, req admission.Request) admission.Response {
			if req.Name == "bad" {
				return admission.Denied("bad is bad")
			}
			return admission.Allowed("")
		})})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- hooks.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	k8sClient, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	}
	for hooks.StartedChecker()(nil) != nil {
		runtime.Gosched()
	}
	if err := k8sClient.Create(ctx, named("good")); err != nil {
		t.Error(err)
	}
	err = k8sClient.Create(ctx, named("bad"))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `admission webhook "judge.example.com" denied the request: bad is bad`) {
		t.Errorf("a bad one: %v", err)
	}
}
