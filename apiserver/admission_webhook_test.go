package apiserver_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// hooks is a server of webhooks: each path answers as its function does.
type hooks struct {
	*httptest.Server
	mu    sync.Mutex
	asked []admissionv1.AdmissionRequest
}

func newHooks(t *testing.T, paths map[string]func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse)) *hooks {
	h := &hooks{}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer := paths[r.URL.Path]
		if answer == nil {
			http.NotFound(w, r)
			return
		}
		h.mu.Lock()
		h.asked = append(h.asked, *review.Request)
		h.mu.Unlock()
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		answer(review.Request, review.Response)
		review.Request = nil
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hooks) bundle() string {
	block := &pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(block))
}

// hook is a webhook for config maps at a path of the server; more is the rest of it.
func (h *hooks) hook(name, path, more string) string {
	return fmt.Sprintf(`{"name":"%s.example.com","clientConfig":{"url":"%s%s","caBundle":%q},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}],
		"admissionReviewVersions":["v1"],"sideEffects":"None"%s}`, name, h.URL, path, h.bundle(), more)
}

// register makes a configuration of webhooks.
func (a *api) register(kind, name string, all ...string) {
	a.t.Helper()
	a.want(201, "POST "+registration+kind+"webhookconfigurations", "",
		fmt.Sprintf(`{"metadata":{"name":%q},"webhooks":[%s]}`, name, strings.Join(all, ",")))
}

func patched(ops string) func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) {
	return func(_ *admissionv1.AdmissionRequest, r *admissionv1.AdmissionResponse) {
		kind := admissionv1.PatchTypeJSONPatch
		r.Patch, r.PatchType = []byte(ops), &kind
	}
}

func TestWebhooks_ChangeAndRefuse(t *testing.T) {
	a := newAPI(t)
	h := newHooks(t, map[string]func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse){
		"/add": patched(`[{"op":"add","path":"/data/added","value":"yes"}]`),
		"/count": func(r *admissionv1.AdmissionRequest, w *admissionv1.AdmissionResponse) {
			var obj map[string]any
			_ = json.Unmarshal(r.Object.Raw, &obj)
			patched(fmt.Sprintf(`[{"op":"add","path":"/metadata/labels","value":{"seen":"%d"}}]`,
				len(tree.Map(obj, "data"))))(r, w)
		},
		"/judge": func(r *admissionv1.AdmissionRequest, w *admissionv1.AdmissionResponse) {
			w.Warnings = []string{"looked at " + string(r.Operation)}
			w.Allowed = !strings.Contains(string(r.Object.Raw), `"bad"`)
		},
	})
	a.register("mutating", "m",
		h.hook("count", "/count", `,"reinvocationPolicy":"IfNeeded"`), h.hook("add", "/add", ""))
	a.register("validating", "v", h.hook("judge", "/judge",
		`,"matchConditions":[{"name":"not-mine","expression":"request.name != 'mine'"}]`))
	got := a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	if tree.Str(got.body, "data", "added") != "yes" || got.str("metadata", "labels", "seen") != "2" {
		t.Errorf("got %s", got.text)
	}
	if len(got.warnings) != 1 || !strings.Contains(got.warnings[0], "looked at CREATE") {
		t.Errorf("warnings %q", got.warnings)
	}
	got = a.want(400, "PUT "+cms+"/a", "", `{"metadata":{"name":"a"},"data":{"k":"bad"}}`)
	const said = `admission webhook "judge.example.com" denied the request without explanation`
	if got.str("message") != said {
		t.Errorf("got %s, want %s", got.str("message"), said)
	}
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"mine"},"data":{"k":"bad"}}`)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.asked {
		if r.Operation == admissionv1.Update && !strings.Contains(string(r.OldObject.Raw), `"k":"v"`) {
			t.Errorf("oldObject is %s", r.OldObject.Raw)
		}
		if r.UserInfo.Username != "admin" || r.Resource.Resource != "configmaps" || r.Namespace != "default" {
			t.Errorf("asked %+v", r)
		}
	}
}

func TestWebhooks_Mistakes(t *testing.T) {
	a := newAPI(t)
	h := newHooks(t, map[string]func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse){
		"/fine":  func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) {},
		"/other": func(_ *admissionv1.AdmissionRequest, w *admissionv1.AdmissionResponse) { w.UID = "other" },
		"/patch": patched(`[]`),
	})
	service := `{"name":"nosuch.example.com","clientConfig":{"service":{"namespace":"default","name":"nosuch"}},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}],
		"admissionReviewVersions":["v1"],"sideEffects":"None"}`
	for name, c := range map[string]struct{ hook, said string }{
		"missing":   {h.hook("missing", "/nosuch", ""), "failed to call webhook: the server could not find the requested resource"},
		"untrusted": {strings.Replace(h.hook("untrusted", "/fine", ""), `"caBundle"`, `"caBundle":"","was"`, 1), "certificate signed by unknown authority"},
		"other":     {h.hook("other", "/other", ""), `received invalid webhook response: expected response.uid=`},
		"patch":     {h.hook("patch", "/patch", ""), "validating webhook may not return response.patch"},
		"service":   {service, `service "nosuch" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			a.register("validating", name, c.hook)
			got := a.want(500, "POST "+cms, "", `{"metadata":{"name":"a"}}`)
			if !strings.Contains(got.str("message"), "failed calling webhook") || !strings.Contains(got.str("message"), c.said) {
				t.Errorf("got %s, want %s", got.str("message"), c.said)
			}
			a.want(200, "DELETE "+registration+"validatingwebhookconfigurations/"+name, "", "")
		})
	}
	a.register("validating", "lenient", h.hook("lenient", "/nosuch", `,"failurePolicy":"Ignore"`))
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"lenient"}}`)
}

func TestWebhooks_ThroughAService(t *testing.T) {
	a := newAPI(t)
	h := newHooks(t, map[string]func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse){
		"/judge": func(_ *admissionv1.AdmissionRequest, w *admissionv1.AdmissionResponse) { w.Allowed = false },
	})
	_, port, _ := net.SplitHostPort(h.Listener.Addr().String())
	a.want(201, "POST "+svcs, "", `{"metadata":{"name":"hook"},"spec":{"ports":[{"name":"https","port":443}]}}`)
	a.want(201, "POST /apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "",
		`{"metadata":{"name":"hook-1","labels":{"kubernetes.io/service-name":"hook"}},"addressType":"IPv4",
		"ports":[{"name":"https","port":`+port+`}],"endpoints":[{"addresses":["192.0.2.1"],"conditions":{"ready":false}},
		{"addresses":["127.0.0.1"]}]}`)
	a.register("validating", "v", fmt.Sprintf(`{"name":"s.example.com",
		"clientConfig":{"service":{"namespace":"default","name":"hook","path":"/judge"},"caBundle":%q},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}],
		"admissionReviewVersions":["v1"],"sideEffects":"None"}`, h.bundle()))
	// The endpoint is reached; its certificate is of another name than the service's.
	got := a.want(500, "POST "+cms, "", `{"metadata":{"name":"a"}}`)
	if !strings.Contains(got.str("message"), "not hook.default.svc") {
		t.Errorf("got %s", got.str("message"))
	}
}

func TestWebhooks_DryRunAndSelectors(t *testing.T) {
	a := newAPI(t)
	h := newHooks(t, map[string]func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse){
		"/judge": func(_ *admissionv1.AdmissionRequest, w *admissionv1.AdmissionResponse) { w.Allowed = false },
	})
	a.register("validating", "v", h.hook("judge", "/judge", `,
		"objectSelector":{"matchLabels":{"judge":"me"}},"namespaceSelector":{"matchLabels":{"judged":"yes"}}`))
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"a","labels":{"judge":"me"}}}`)
	a.want(200, "PATCH /api/v1/namespaces/default", merge, `{"metadata":{"labels":{"judged":"yes"}}}`)
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"b"}}`)
	a.want(400, "POST "+cms, "", `{"metadata":{"name":"c","labels":{"judge":"me"}}}`)
	// A change of an object that is judged is judged, even if it leaves the selector.
	a.want(400, "PATCH "+cms+"/a", merge, `{"metadata":{"labels":null}}`)
	a.want(400, "DELETE "+cms+"/a", "", "")
}
