package builtin

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const admissionGroup = "admissionregistration.k8s.io"

// extensions is the category of kinds that extend the API.
const extensions = "api-extensions"

// webhookSeconds is how long a webhook may take unless it says otherwise.
const webhookSeconds = 10

func mutatingWebhooks() *kinds.Kind {
	k := webhooks("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "mutatingwebhookconfiguration")
	k.Strategy.Default = func(obj kinds.Object) {
		defaultWebhooks(obj)
		for _, hook := range tree.Maps(obj, "webhooks") {
			tree.Default(hook, "Never", "reinvocationPolicy")
		}
	}
	return k
}

func validatingWebhooks() *kinds.Kind {
	return webhooks("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "validatingwebhookconfiguration")
}

func webhooks(kind, resource, singular string) *kinds.Kind {
	return &kinds.Kind{
		Group: admissionGroup, Version: "v1", Kind: kind, Resource: resource, Singular: singular,
		Categories: []string{extensions},
		Schema:     schema.Builtin("io.k8s.api.admissionregistration.v1." + kind),
		Columns: []kinds.Column{
			table.Name(),
			countItems("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration", "webhooks"),
			table.Age(),
		},
		Generation:          true,
		UpdateNamesRevision: true,
		DefaultPropagation:  "Background",
		Strategy: kinds.Strategy{
			Default:        defaultWebhooks,
			ValidateCreate: func(obj kinds.Object) field.ErrorList { return checkWebhooks(obj, allWebhookRules) },
			ValidateUpdate: func(obj, old kinds.Object) field.ErrorList {
				return checkWebhooks(obj, webhookRulesOf(old))
			},
		},
	}
}

func defaultWebhooks(obj kinds.Object) {
	for _, hook := range tree.Maps(obj, "webhooks") {
		tree.Default(hook, "Fail", "failurePolicy")
		tree.Default(hook, "Equivalent", "matchPolicy")
		tree.Default(hook, map[string]any{}, "namespaceSelector")
		tree.Default(hook, map[string]any{}, "objectSelector")
		tree.Default(hook, int64(webhookSeconds), "timeoutSeconds")
		defaultScopes(hook, "rules")
		if service := tree.Map(hook, "clientConfig", "service"); service != nil {
			tree.Default(service, int64(443), "port")
		}
	}
}

// defaultScopes makes rules apply to resources in namespaces and outside of them.
func defaultScopes(m map[string]any, field string) {
	for _, rule := range tree.Maps(m, field) {
		tree.Default(rule, "*", "scope")
	}
}

// webhookRules are those rules that an update need not keep if the old object did not.
type webhookRules struct{ noSideEffects, knownVersions, distinctNames bool }

var allWebhookRules = webhookRules{true, true, true}

func webhookRulesOf(old kinds.Object) webhookRules {
	rules, names := allWebhookRules, map[string]bool{}
	for _, hook := range check.Root(old).Each("webhooks") {
		rules.noSideEffects = rules.noSideEffects && harmless(hook.Str("sideEffects"))
		versions := hook.Strings("admissionReviewVersions")
		rules.knownVersions = rules.knownVersions && (len(versions) == 0 || anyReviewVersion(versions))
		rules.distinctNames = rules.distinctNames && !names[hook.Str("name")]
		names[hook.Str("name")] = true
	}
	return rules
}
