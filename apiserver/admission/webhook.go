package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	plugin "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/apiserver/webhook"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/expression"
	"github.com/setpoint-dev/setpoint/kinds/patch"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Webhooks asks people's own servers about writes.
type Webhooks struct {
	client     *webhook.Client
	authorizer authz.Authorizer
	uid        func() string

	mutating, validating cache[[]*webhookOf]
}

// NewWebhooks makes it. uid names a question. Conditions may ask what the authorizer decides.
func NewWebhooks(client *webhook.Client, uid func() string, a authz.Authorizer) *Webhooks {
	return &Webhooks{client: client, uid: uid, authorizer: a}
}

// webhookOf is one webhook of a configuration.
type webhookOf struct {
	configuration, name string
	hook                map[string]any
	match               *match
	lenient             bool
	conditions          func() plugin.ConditionEvaluator
}

func readWebhooks(obj kinds.Object) []*webhookOf {
	var all []*webhookOf
	for _, m := range tree.Maps(obj, "webhooks") {
		all = append(all, &webhookOf{
			configuration: tree.Str(obj, "metadata", "name"), name: tree.Str(m, "name"), hook: m,
			match: readMatch(m, "rules", ""), lenient: tree.Str(m, "failurePolicy") == "Ignore",
			conditions: sync.OnceValue(func() plugin.ConditionEvaluator {
				return compileConditions(new(expression.Compiler), m, expression.Scope{Authorizer: true})
			}),
		})
	}
	return all
}

// list returns the webhooks of a kind of configuration, in order of the configurations' names.
func (w *Webhooks) list(a *Attributes, c *cache[[]*webhookOf], kind string) ([]*webhookOf, error) {
	if !admittable(a) {
		return nil, nil
	}
	lists, err := c.list(a.State, kindOf(a.State, admissionGroup, "v1", kind), "", readWebhooks)
	return slices.Concat(lists...), err
}

// question returns the write in the form in which a webhook wants to be asked, or nil if it does not.
func (w *Webhooks) question(ctx context.Context, a *Attributes, h *webhookOf) (*subject, error) {
	if len(h.match.rules) == 0 {
		return nil, nil
	}
	k, err := h.match.find(a)
	if k == nil || err != nil {
		return nil, err
	}
	s, err := newSubject(a, k, w.authorizer)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	ok, err := fulfilled(ctx, h.conditions(), s, nil)
	switch {
	case err != nil && h.lenient:
		return nil, nil
	case err != nil:
		return nil, apierrors.NewForbidden(a.Kind.GroupResource(), a.Name, err)
	case !ok:
		return nil, nil
	}
	return s, nil
}

// Mutate asks the mutating webhooks, one after the other.
func (w *Webhooks) Mutate(ctx context.Context, a *Attributes) error {
	all, err := w.list(a, &w.mutating, "MutatingWebhookConfiguration")
	if err != nil {
		return err
	}
	for i, h := range all {
		key := hook{"webhook", h.configuration, h.name}
		s, err := w.question(ctx, a, h)
		if err != nil {
			return err
		}
		if s == nil || !a.again.due(key) {
			continue
		}
		said, err := w.ask(ctx, a, h, s, true)
		changed := false
		if err == nil && said != nil {
			changed, err = w.change(a, s, h, said)
		}
		if err != nil {
			return err
		}
		a.again.ran(key, changed, tree.Str(h.hook, "reinvocationPolicy") == "IfNeeded")
		a.State.Annotate(fmt.Sprintf("mutation.webhook.admission.k8s.io/round_%d_index_%d", a.again.number(), i),
			fmt.Sprintf(`{"configuration":%q,"webhook":%q,"mutated":%t}`, h.configuration, h.name, changed))
	}
	return nil
}

// askedMax bounds how many webhooks are asked at the same time about one write.
const askedMax = 16

// Validate asks the validating webhooks, all at the same time. If several refuse, the first in order
// has the word.
func (w *Webhooks) Validate(ctx context.Context, a *Attributes) error {
	all, err := w.list(a, &w.validating, "ValidatingWebhookConfiguration")
	if err != nil {
		return err
	}
	type asked struct {
		hook    *webhookOf
		subject *subject
	}
	var due []asked
	for _, h := range all {
		s, err := w.question(ctx, a, h)
		if err != nil {
			return err
		}
		if s != nil {
			due = append(due, asked{h, s})
		}
	}
	errs, room := make([]error, len(due)), make(chan struct{}, askedMax)
	var waiting sync.WaitGroup
	for i, d := range due {
		room <- struct{}{}
		waiting.Go(func() {
			defer func() { <-room }()
			_, errs[i] = w.ask(ctx, a, d.hook, d.subject, false)
		})
	}
	waiting.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ask asks one webhook and returns its answer if it lets the write through; nil if it could not be
// asked and that does not matter.
func (w *Webhooks) ask(ctx context.Context, a *Attributes, h *webhookOf, s *subject, mutates bool) (*answer, error) {
	if effects := tree.Str(h.hook, "sideEffects"); a.DryRun && effects != "None" && effects != "NoneOnDryRun" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.name))
	}
	said, err := w.call(ctx, a, h, s, mutates)
	if err != nil {
		if ctx.Err() != nil {
			return nil, apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
		}
		if h.lenient {
			a.State.Annotate("failed-open.validating.webhook.admission.k8s.io/"+h.name, h.configuration)
			return nil, nil
		}
		return nil, apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: %w", h.name, err))
	}
	for key, value := range said.AuditAnnotations {
		a.State.Annotate(h.name+"/"+key, value)
	}
	for _, text := range said.Warnings {
		a.Warn(text)
	}
	if !said.Allowed {
		return nil, denied(h.name, said.Result)
	}
	return said, nil
}

// answer is the part of an AdmissionReview that a webhook sends.
type answer = admissionv1.AdmissionResponse

// call makes the request.
func (w *Webhooks) call(ctx context.Context, a *Attributes, h *webhookOf, s *subject, mutates bool) (*answer, error) {
	version := ""
	for _, v := range tree.Strings(h.hook, "admissionReviewVersions") {
		if version == "" && (v == "v1" || v == "v1beta1") {
			version = v
		}
	}
	if version == "" {
		return nil, errors.New("could not create admission objects: webhook does not accept known " +
			"AdmissionReview versions (v1, v1beta1)")
	}
	r := review{APIVersion: "admission.k8s.io/" + version, Kind: "AdmissionReview", Request: w.request(a, s)}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("could not create admission objects: %w", err)
	}
	timeout := time.Duration(max(tree.Int(h.hook, "timeoutSeconds"), 1)) * time.Second
	text, err := w.client.Post(ctx, tree.Map(h.hook, "clientConfig"), body, timeout)
	if err != nil {
		return nil, fmt.Errorf("failed to call webhook: %w", err)
	}
	var back struct {
		APIVersion string  `json:"apiVersion"`
		Kind       string  `json:"kind"`
		Response   *answer `json:"response"`
	}
	if err := json.Unmarshal(text, &back); err != nil {
		return nil, fmt.Errorf("failed to call webhook: %w", err)
	}
	said := back.Response
	if err := sound(said, r, back.APIVersion, back.Kind, mutates); err != nil {
		return nil, fmt.Errorf("received invalid webhook response: %w", err)
	}
	return said, nil
}

// sound says what is wrong with an answer. The old version asked for less.
func sound(said *answer, r review, apiVersion, kind string, mutates bool) error {
	switch {
	case said == nil:
		return errors.New("webhook response was absent")
	case !mutates && len(said.Patch) > 0:
		return errors.New("validating webhook may not return response.patch")
	case !mutates && said.PatchType != nil:
		return errors.New("validating webhook may not return response.patchType")
	case strings.HasSuffix(r.APIVersion, "/v1beta1"):
		return nil
	case string(said.UID) != r.Request["uid"]:
		return fmt.Errorf("expected response.uid=%q, got %q", r.Request["uid"], said.UID)
	case apiVersion != r.APIVersion || kind != r.Kind:
		return fmt.Errorf("expected webhook response of %s, Kind=%s, got %s, Kind=%s", r.APIVersion, r.Kind, apiVersion, kind)
	case len(said.Patch) > 0 && said.PatchType == nil:
		return errors.New("webhook returned response.patch but not response.patchType")
	case len(said.Patch) == 0 && said.PatchType != nil:
		return errors.New("webhook returned response.patchType but not response.patch")
	case said.PatchType != nil && *said.PatchType != admissionv1.PatchTypeJSONPatch:
		return fmt.Errorf("webhook returned invalid response.patchType of %q", *said.PatchType)
	}
	return nil
}

// change applies a webhook's patch.
func (w *Webhooks) change(a *Attributes, s *subject, h *webhookOf, said *answer) (bool, error) {
	if len(said.Patch) == 0 {
		return false, nil
	}
	ops, _, err := patch.ParseJSON(said.Patch)
	if err != nil {
		return false, w.unusable(h, fmt.Errorf("received undecodable patch in webhook response: %w", err))
	}
	if len(ops) == 0 {
		return false, nil
	}
	if a.Object == nil {
		return false, apierrors.NewInternalError(fmt.Errorf(
			"admission webhook %q attempted to modify the object, which is not supported for this operation", h.name))
	}
	obj, _, err := form(a, s.kind)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	patched, err := ops.Apply(tree.CopyMap(obj))
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	before := tree.CopyMap(a.Object)
	if err := a.put(s.kind, patched); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	return !reflect.DeepEqual(before, a.Object), nil
}

func (w *Webhooks) unusable(h *webhookOf, err error) error {
	if h.lenient {
		return nil
	}
	return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: %w", h.name, err))
}
