// Package helm_test has Helm, as the library that its command is made of, look after a release.
package helm_test

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/conformance/server"
)

// patience is how long Helm waits for what is a matter of a second.
const patience = 3 * time.Minute

// TestReleaseLives follows a release from its installation to its end. The chart holds a definition and
// an object of it, a workload that Helm waits for, and jobs as hooks, whose processes really run.
func TestReleaseLives(t *testing.T) {
	for _, strategy := range []kube.WaitStrategy{kube.StatusWatcherStrategy, kube.LegacyStrategy} {
		t.Run(string(strategy), func(t *testing.T) { live(t, strategy) })
	}
}

func live(t *testing.T, strategy kube.WaitStrategy) {
	h := newHelm(t, strategy)

	h.install("hello", 1)
	h.is("hello", 1)
	h.ran("web-pre-install")
	page := h.page()
	if size, _, _ := unstructured.NestedInt64(page.Object, "spec", "size"); size != 3 {
		t.Errorf("size of the page is %d, want 3, the default of the chart's definition", size)
	}

	h.upgrade(map[string]any{"greeting": "hi", "replicas": 2, "extra": false})
	h.is("hi", 2)
	h.ran("web-post-upgrade")
	h.gone(&corev1.Secret{}, "web-extra")

	// One that the server refuses changes nothing, and is said to have failed.
	upgrade := h.newUpgrade()
	if _, err := upgrade.Run("web", h.chart, map[string]any{"greeting": "longer than twenty letters"}); err == nil {
		t.Error("an upgrade to a page that the definition forbids went through")
	}
	if diff := cmp.Diff([]string{"superseded", "deployed", "failed"}, h.history()); diff != "" {
		t.Errorf("states of the revisions (-want +got):\n%s", diff)
	}

	h.rollback(1)
	h.is("hello", 1)
	h.ran("web-pre-rollback")
	h.get(&corev1.Secret{}, "web-extra")

	uninstall := action.NewUninstall(h.actions)
	uninstall.WaitStrategy, uninstall.Timeout = strategy, patience
	if _, err := uninstall.Run("web"); err != nil {
		t.Fatal(err)
	}
	h.ran("web-post-delete")
	for _, obj := range []client.Object{&corev1.ConfigMap{}, &appsv1.Deployment{}, &corev1.Service{}} {
		h.gone(obj, "web")
	}
	var secrets corev1.SecretList
	if err := h.client.List(t.Context(), &secrets, client.MatchingLabels{"owner": "helm"}); err != nil {
		t.Fatal(err)
	}
	if len(secrets.Items) > 0 {
		t.Errorf("%d revisions are left of a release that is gone", len(secrets.Items))
	}
	h.get(definition(), "pages.web.example.com") // Helm leaves those alone
}

// TestFailedHookStopsAnInstallation has the job before the installation fail.
func TestFailedHookStopsAnInstallation(t *testing.T) {
	h := newHelm(t, kube.StatusWatcherStrategy)
	if _, err := h.newInstall().Run(h.chart, map[string]any{"greeting": "bad"}); err == nil {
		t.Fatal("installed, though its hook failed")
	}
	if diff := cmp.Diff([]string{"failed"}, h.history()); diff != "" {
		t.Errorf("states of the revisions (-want +got):\n%s", diff)
	}
	h.gone(&appsv1.Deployment{}, "web")
}

// helm is Helm at work on the release web.
type helm struct {
	t        *testing.T
	strategy kube.WaitStrategy
	actions  *action.Configuration
	chart    *chart.Chart
	client   client.Client
}

func newHelm(t *testing.T, strategy kube.WaitStrategy) *helm {
	t.Helper()
	s := server.Start(t, "up", "--no-service-proxy")
	h := &helm{t: t, strategy: strategy, actions: action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))}
	flags := genericclioptions.NewConfigFlags(false)
	namespace := "default"
	flags.KubeConfig, flags.Namespace = &s.Kubeconfig, &namespace
	if err := h.actions.Init(flags, namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.chart, err = loader.LoadDir(filepath.Join("testdata", "web")); err != nil {
		t.Fatal(err)
	}
	if h.client, err = client.New(s.Config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *helm) newInstall() *action.Install {
	install := action.NewInstall(h.actions)
	install.ReleaseName, install.Namespace = "web", "default"
	install.WaitStrategy, install.WaitForJobs, install.Timeout = h.strategy, true, patience
	return install
}

func (h *helm) install(greeting string, replicas int) {
	h.t.Helper()
	if _, err := h.newInstall().Run(h.chart, map[string]any{"greeting": greeting, "replicas": replicas}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *helm) newUpgrade() *action.Upgrade {
	upgrade := action.NewUpgrade(h.actions)
	upgrade.Namespace = "default"
	upgrade.WaitStrategy, upgrade.Timeout = h.strategy, patience
	return upgrade
}

func (h *helm) upgrade(values map[string]any) {
	h.t.Helper()
	if _, err := h.newUpgrade().Run("web", h.chart, values); err != nil {
		h.t.Fatal(err)
	}
}

func (h *helm) rollback(to int) {
	h.t.Helper()
	rollback := action.NewRollback(h.actions)
	rollback.Version, rollback.WaitStrategy, rollback.Timeout = to, h.strategy, patience
	if err := rollback.Run("web"); err != nil {
		h.t.Fatal(err)
	}
}

// is fails the test unless the release says a greeting everywhere, with as many replicas available: that
// is what Helm has waited for.
func (h *helm) is(greeting string, replicas int32) {
	h.t.Helper()
	var config corev1.ConfigMap
	var deployment appsv1.Deployment
	h.get(&config, "web")
	h.get(&deployment, "web")
	title, _, _ := unstructured.NestedString(h.page().Object, "spec", "title")
	got := []string{config.Data["greeting"], deployment.Spec.Template.Spec.Containers[0].Env[0].Value, title}
	if diff := cmp.Diff([]string{greeting, greeting, greeting}, got); diff != "" {
		h.t.Errorf("greetings of the config map, the deployment and the page (-want +got):\n%s", diff)
	}
	if got := deployment.Status.AvailableReplicas; got != replicas || deployment.Status.UpdatedReplicas != replicas {
		h.t.Errorf("%d replicas are available, want %d; status: %+v", got, replicas, deployment.Status)
	}
}

// ran fails the test unless a job has completed.
func (h *helm) ran(job string) {
	h.t.Helper()
	var got batchv1.Job
	h.get(&got, job)
	if !slices.ContainsFunc(got.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	}) {
		h.t.Errorf("job %s has not completed: %+v", job, got.Status)
	}
}

func (h *helm) page() *unstructured.Unstructured {
	h.t.Helper()
	page := &unstructured.Unstructured{}
	page.SetAPIVersion("web.example.com/v1")
	page.SetKind("Page")
	h.get(page, "web")
	return page
}

func definition() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion("apiextensions.k8s.io/v1")
	obj.SetKind("CustomResourceDefinition")
	return obj
}

func (h *helm) get(obj client.Object, name string) {
	h.t.Helper()
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, obj); err != nil {
		h.t.Fatal(err)
	}
}

func (h *helm) gone(obj client.Object, name string) {
	h.t.Helper()
	err := h.client.Get(h.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, obj)
	if !apierrors.IsNotFound(err) {
		h.t.Errorf("%T %s is there, or: %v", obj, name, err)
	}
}

// history is the state of each revision of the release.
func (h *helm) history() (states []string) {
	h.t.Helper()
	revisions, err := action.NewHistory(h.actions).Run("web")
	if err != nil {
		h.t.Fatal(err)
	}
	byVersion := map[int]string{}
	for _, revision := range revisions {
		r, err := release.NewAccessor(revision)
		if err != nil {
			h.t.Fatal(err)
		}
		byVersion[r.Version()] = r.Status()
	}
	for version := 1; version <= len(byVersion); version++ {
		states = append(states, byVersion[version])
	}
	return states
}
