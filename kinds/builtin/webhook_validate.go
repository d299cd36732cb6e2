package builtin

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/expression"
)

// webhookSecondsMax is the longest that a webhook may hold up a request.
const webhookSecondsMax = 30

// reviewVersions are the versions of AdmissionReview that can be sent.
var reviewVersions = []string{"v1", "v1beta1"}

func anyReviewVersion(versions []string) bool {
	return slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(reviewVersions, v) })
}

// harmless says whether a hook may be called for a request that changes nothing.
func harmless(sideEffects string) bool { return sideEffects == "None" || sideEffects == "NoneOnDryRun" }

func checkWebhooks(obj kinds.Object, rules webhookRules) field.ErrorList {
	var e check.Errors
	var names []string
	for _, hook := range check.Root(obj).Each("webhooks") {
		webhook(&e, hook, rules)
		reviews(&e, hook, rules)
		name := hook.Str("name")
		if rules.distinctNames && name != "" && slices.Contains(names, name) {
			e.Duplicate(hook.At("name"), name)
		}
		names = append(names, name)
	}
	return e.List()
}

func webhook(e *check.Errors, hook check.At, rules webhookRules) {
	e.Add(validation.IsFullyQualifiedName(hook.At("name").Field(), hook.Str("name"))...)
	for _, rule := range hook.Each("rules") {
		operationRule(e, rule)
	}
	e.OptionalOneOf(hook, "failurePolicy", "Fail", "Ignore")
	e.OptionalOneOf(hook, "matchPolicy", "Equivalent", "Exact")
	effects := []string{"None", "NoneOnDryRun"}
	if !rules.noSideEffects {
		effects = append(effects, "Some", "Unknown")
	}
	if !hook.Has("sideEffects") {
		e.Required(hook.At("sideEffects"), "must specify one of "+strings.Join(effects, ", "))
	}
	e.OptionalOneOf(hook, "sideEffects", effects...)
	if n := hook.Int("timeoutSeconds"); hook.Has("timeoutSeconds") && (n < 1 || n > webhookSecondsMax) {
		e.Invalid(hook.At("timeoutSeconds"), n, "the timeout value must be between 1 and 30 seconds")
	}
	e.LabelSelector(hook, "namespaceSelector")
	e.LabelSelector(hook, "objectSelector")
	e.OptionalOneOf(hook, "reinvocationPolicy", "IfNeeded", "Never")
	client, service := hook.Child("clientConfig"), hook.Child("clientConfig").Child("service")
	switch {
	case client.Has("url") == service.Exists():
		e.Required(hook.At("clientConfig"), "exactly one of url or service is required")
	case service.Exists():
		webhookService(e, service)
	default:
		webhookURL(e, client.At("url"), client.Str("url"))
	}
	matchConditions(e, hook, expression.Scope{Authorizer: true})
}

func reviews(e *check.Errors, hook check.At, rules webhookRules) {
	versions, path := hook.Strings("admissionReviewVersions"), hook.At("admissionReviewVersions")
	known := strings.Join(reviewVersions, ", ")
	if len(versions) == 0 {
		e.Required(path, "must specify one of "+known)
		return
	}
	for i, v := range versions {
		if slices.Index(versions, v) < i {
			e.Invalid(path.Index(i), v, "duplicate version")
			continue
		}
		e.Messages(path.Index(i), v, validation.IsDNS1035Label(v))
	}
	if rules.knownVersions && !anyReviewVersion(versions) {
		e.Invalid(path, versions, "must include at least one of "+known)
	}
}

func webhookURL(e *check.Errors, path check.Path, text string) {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		e.Required(path, "url must be a valid URL: "+err.Error()+form)
		return
	}
	if u.Scheme != "https" {
		e.Invalid(path, u.Scheme, "'https' is the only allowed URL scheme"+form)
	}
	if u.Host == "" {
		e.Invalid(path, u.Host, "host must be specified"+form)
	}
	if u.User != nil {
		e.Invalid(path, u.User.String(), "user information is not permitted in the URL")
	}
	if u.Fragment != "" {
		e.Invalid(path, u.Fragment, "fragments are not permitted in the URL")
	}
	if u.RawQuery != "" {
		e.Invalid(path, u.RawQuery, "query parameters are not permitted in the URL")
	}
}

// webhookService mixes name and namespace up where one is missing, as upstream does.
func webhookService(e *check.Errors, service check.At) {
	if service.Str("namespace") == "" {
		e.Required(service.At("name"), "")
	}
	if service.Str("name") == "" {
		e.Required(service.At("namespace"), "")
	}
	if messages := validation.IsValidPortNum(int(service.Int("port"))); len(messages) > 0 {
		e.Invalid(service.At("port"), service.Int("port"), "port is not valid: "+strings.Join(messages, ", "))
	}
	urlPath(e, service.At("path"), service.Str("path"))
}

func urlPath(e *check.Errors, path check.Path, text string) {
	switch text {
	case "", "/":
		return
	case "//":
		e.Invalid(path, text, "segment[0] may not be empty")
		return
	}
	if !strings.HasPrefix(text, "/") {
		e.Invalid(path, text, "must start with a '/'")
	}
	for i, segment := range strings.Split(strings.TrimSuffix(text[1:], "/"), "/") {
		if segment == "" {
			e.Invalid(path, text, fmt.Sprintf("segment[%d] may not be empty", i))
			continue
		}
		for _, msg := range validation.IsDNS1123Subdomain(segment) {
			e.Invalid(path, text, fmt.Sprintf("segment[%d]: %s", i, msg))
		}
	}
}
