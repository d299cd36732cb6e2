package controller_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"net/http"
	"net/http/httptest"
	"os"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/tinyapi"
)

func ownedBy(rs *appsv1.ReplicaSet) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
}

// expose returns the metrics as a scraper gets them.
func expose(w *world, registry *prometheus.Registry) string {
	w.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}

// TestMetricsAreThoseOfThePage has a pass fail, one wait for a finalizer and one be paused, and compares
// the exposed text with what is expected of it, and its names with docs/observability.md.
func TestMetricsAreThoseOfThePage(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	inWorld(t, controller.ManagerOptions{Metrics: registry}, func(w *world) {
		c := w.mgr.GetClient()
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).
			Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				if req.Name == "fails" {
					return reconcile.Result{}, errors.New("no such image")
				}
				if req.Name == "writes" {
					pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "made"}}
					return reconcile.Result{}, cr.IgnoreAlreadyExists(c.Create(ctx, pod))
				}
				return reconcile.Result{}, nil
			})))
		w.start(w.mgr)
		paused, held := replicaSet("paused", 1), replicaSet("held", 1)
		paused.Annotations = map[string]string{controller.PausedAnnotation: ""}
		held.Finalizers = []string{"example.dev/held"}
		at := metav1.Now()
		held.DeletionTimestamp = &at
		for _, rs := range []*appsv1.ReplicaSet{replicaSet("fails", 1), replicaSet("writes", 1), paused, held} {
			w.must(w.live.Create(w.Context(), rs))
		}
		w.pass(time.Minute)
		text := expose(w, registry)
		for _, line := range []string{
			`controller_runtime_reconcile_total{controller="replicaset",result="success"} 2`,
			`controller_runtime_max_concurrent_reconciles{controller="replicaset"} 1`,
			`setpoint_controller_requests_total{code="201",controller="replicaset",verb="post"} 1`,
			`setpoint_controller_request_seconds_count{controller="replicaset",verb="post"} 1`,
			`setpoint_controller_unsynced_keys{controller="replicaset"} 1`,
			`setpoint_controller_unsynced_seconds_max{controller="replicaset"} 60`,
			`setpoint_controller_deleting_objects{controller="replicaset"} 1`,
			`setpoint_controller_deleting_seconds_max{controller="replicaset"} 60`,
			`setpoint_controller_paused_objects{controller="replicaset"} 1`,
			`setpoint_controller_parked_keys{controller="replicaset"} 0`,
			`setpoint_controller_hot_loops_total{controller="replicaset"} 0`,
		} {
			if !strings.Contains(text, line+"\n") {
				w.Errorf("no line %q in\n%s", line, text)
			}
		}
		if regexp.MustCompile(`"(fails|writes|paused|held|made)"`).MatchString(text) {
			w.Error("the name of an object is a label")
		}
		page, err := os.ReadFile("../docs/observability.md")
		w.must(err)
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
			if !bytes.Contains(page, []byte("`"+m[1]+"`")) {
				w.Errorf("docs/observability.md does not name %s", m[1])
			}
		}
	})
}

// TestLogsNameObjectPassAndAction reads what a pass that writes leaves in the log.
func TestLogsNameObjectPassAndAction(t *testing.T) {
	var log strings.Builder
	opts := controller.ManagerOptions{
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	inWorld(t, opts, func(w *world) {
		c := w.mgr.GetClient()
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).
			Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				secret := &corev1.Secret{StringData: map[string]string{"password": "hunter2"}}
				secret.Namespace, secret.Name = "default", "s"
				return reconcile.Result{}, cr.IgnoreAlreadyExists(c.Create(ctx, secret))
			})))
		stop := w.start(w.mgr)
		rs := replicaSet("web", 1)
		rs.Generation = 7
		w.must(w.live.Create(w.Context(), rs))
		w.pass(time.Second)
		w.must(stop())
		for _, want := range []string{
			`msg=wrote controller=replicaset namespace=default name=web reconcileID=[0-9a-f-]{36} generation=7 action=post path=/api/v1/namespaces/default/secrets code=201`,
			`msg=reconciled controller=replicaset namespace=default name=web reconcileID=[0-9a-f-]{36} generation=7 result=success`,
		} {
			if !regexp.MustCompile(want).MatchString(log.String()) {
				w.Errorf("log has no %s:\n%s", want, log.String())
			}
		}
		if strings.Contains(log.String(), "hunter2") {
			w.Error("a secret is in the log")
		}
	})
}

// recorded is a span that a test can read.
type recorded struct {
	noop.Span
	name, parent string
	attributes   map[string]string
	status       codes.Code
	ended        bool
}

func (s *recorded) SetAttributes(all ...attribute.KeyValue) {
	for _, a := range all {
		s.attributes[string(a.Key)] = a.Value.String()
	}
}
func (s *recorded) SetStatus(code codes.Code, _ string) { s.status = code }
func (s *recorded) End(...trace.SpanEndOption)          { s.ended = true }

// tracer records spans. A test reads them when nothing runs.
type tracer struct {
	embedded.TracerProvider
	spans []*recorded
}

func (t *tracer) Tracer(string, ...trace.TracerOption) trace.Tracer { return recorder{t: t} }

type recorder struct {
	embedded.Tracer
	t *tracer
}

func (t recorder) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &recorded{name: name, attributes: map[string]string{}}
	if above, ok := trace.SpanFromContext(ctx).(*recorded); ok {
		s.parent = above.name
	}
	config := trace.NewSpanStartConfig(opts...)
	s.SetAttributes(config.Attributes()...)
	t.t.spans = append(t.t.spans, s)
	return trace.ContextWithSpan(ctx, s), s
}

func TestEachPassIsASpan(t *testing.T) {
	var spans tracer
	inWorld(t, controller.ManagerOptions{TracerProvider: &spans}, func(w *world) {
		var ids []string
		c := w.mgr.GetClient()
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).
			Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				ids = append(ids, controller.PassFrom(ctx))
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "made"}}
				return reconcile.Result{}, errors.Join(c.Create(ctx, pod), reconcile.TerminalError(errors.New("never")))
			})))
		w.start(w.mgr)
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.pass(time.Second)
		if len(spans.spans) != 2 {
			w.Fatalf("%d spans, want one of the pass and one of its request", len(spans.spans))
		}
		pass, request := spans.spans[0], spans.spans[1]
		want := map[string]string{
			"setpoint.controller": "replicaset", "setpoint.kind": "ReplicaSet",
			"setpoint.namespace": "default", "setpoint.name": "web", "setpoint.generation": "0",
			"setpoint.reconcile_id": ids[0], "setpoint.result": "terminal",
			"setpoint.reasons": `["ReplicaSet default/web added"]`,
		}
		if diff := cmp.Diff(want, pass.attributes); diff != "" {
			w.Errorf("the pass says (-want +got):\n%s", diff)
		}
		if pass.name != "reconcile replicaset" || pass.status != codes.Error || !pass.ended {
			w.Errorf("the pass is %+v", pass)
		}
		want = map[string]string{
			"http.request.method": "POST", "url.path": "/api/v1/namespaces/default/pods",
			"http.response.status_code": "201",
		}
		if diff := cmp.Diff(want, request.attributes); diff != "" {
			w.Errorf("the request says (-want +got):\n%s", diff)
		}
		if request.parent != pass.name || !request.ended {
			w.Errorf("the request is %+v", request)
		}
	})
}

// TestWritesCarryTheControllersName looks at what the server is told.
func TestWritesCarryTheControllersName(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		var agents []string
		w.server.Fail(tinyapi.Faults{Before: func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				agents = append(agents, r.UserAgent())
			}
			return nil, nil
		}})
		c := w.mgr.GetClient()
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).
			WithOptions(controller.Options{FieldOwner: "web-operator"}).
			Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				if owner := controller.FieldOwnerFrom(ctx); owner != "web-operator" {
					w.Errorf("FieldOwnerFrom() = %q", owner)
				}
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "made"}}
				return reconcile.Result{}, c.Create(ctx, pod)
			})))
		w.start(w.mgr)
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.pass(time.Second)
		if !slices.Contains(agents, "web-operator/setpoint") {
			w.Errorf("writes came from %q", agents)
		}
	})
}
