package builtin

import (
	"strings"
	"time"

	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const rbacGroup = "rbac.authorization.k8s.io"

func role() *kinds.Kind {
	return &kinds.Kind{
		Group: rbacGroup, Version: "v1", Kind: "Role", Resource: "roles", Singular: "role",
		Namespaced:         true,
		Schema:             schema.Builtin("io.k8s.api.rbac.v1.Role"),
		NullRows:           true,
		DefaultPropagation: "Background",
		CreateOnUpdate:     true,
		NameRule:           rbacName,
		Strategy: kinds.Strategy{Validate: func(obj kinds.Object) field.ErrorList {
			var e check.Errors
			policyRules(&e, check.Root(obj), true)
			return e.List()
		}},
	}
}

func clusterRole() *kinds.Kind {
	return &kinds.Kind{
		Group: rbacGroup, Version: "v1", Kind: "ClusterRole", Resource: "clusterroles", Singular: "clusterrole",
		Schema:             schema.Builtin("io.k8s.api.rbac.v1.ClusterRole"),
		NullRows:           true,
		DefaultPropagation: "Background",
		CreateOnUpdate:     true,
		NameRule:           rbacName,
		Strategy: kinds.Strategy{Validate: func(obj kinds.Object) field.ErrorList {
			var e check.Errors
			policyRules(&e, check.Root(obj), false)
			aggregation(&e, check.Root(obj).Child("aggregationRule"))
			return e.List()
		}},
	}
}

func roleBinding() *kinds.Kind {
	return &kinds.Kind{
		Group: rbacGroup, Version: "v1", Kind: "RoleBinding", Resource: "rolebindings", Singular: "rolebinding",
		Namespaced: true,
		Schema:     schema.Builtin("io.k8s.api.rbac.v1.RoleBinding"),
		Columns: bindingColumns(rbacv1beta1.RoleBinding{}.SwaggerDoc()["roleRef"],
			"in the roleBinding"),
		DefaultPropagation: "Background",
		CreateOnUpdate:     true,
		NameRule:           rbacName,
		Strategy: kinds.Strategy{
			Default: defaultBinding,
			Validate: func(obj kinds.Object) field.ErrorList {
				return validateBinding(obj, true, "Role", "ClusterRole")
			},
			ValidateUpdate: roleKept,
		},
	}
}

func clusterRoleBinding() *kinds.Kind {
	return &kinds.Kind{
		Group: rbacGroup, Version: "v1", Kind: "ClusterRoleBinding",
		Resource: "clusterrolebindings", Singular: "clusterrolebinding",
		Schema: schema.Builtin("io.k8s.api.rbac.v1.ClusterRoleBinding"),
		Columns: bindingColumns(rbacv1beta1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"],
			"in the clusterRoleBinding"),
		DefaultPropagation: "Background",
		CreateOnUpdate:     true,
		NameRule:           rbacName,
		Strategy: kinds.Strategy{
			Default:        defaultBinding,
			Validate:       func(obj kinds.Object) field.ErrorList { return validateBinding(obj, false, "ClusterRole") },
			ValidateUpdate: roleKept,
		},
	}
}

// rbacName lets through whatever can stand in a path: role names have colons and capitals.
func rbacName(name string, _ bool) []string { return content.IsPathSegmentName(name) }

func policyRules(e *check.Errors, role check.At, namespaced bool) {
	for _, rule := range role.Each("rules") {
		if rule.Len("verbs") == 0 {
			e.Later().Required(rule.At("verbs"), "")
		}
		if urls := rule.Strings("nonResourceURLs"); len(urls) > 0 {
			if namespaced {
				e.Invalid(rule.At("nonResourceURLs"), urls,
					"namespaced rules cannot apply to non-resource URLs")
			}
			if rule.Len("apiGroups")+rule.Len("resources")+rule.Len("resourceNames") > 0 {
				e.Invalid(rule.At("nonResourceURLs"), urls,
					"rules cannot apply to both regular resources and non-resource URLs")
			}
			continue
		}
		if rule.Len("apiGroups") == 0 {
			e.Required(rule.At("apiGroups"), "resource rules must supply at least one api group")
		}
		if rule.Len("resources") == 0 {
			e.Required(rule.At("resources"), "resource rules must supply at least one resource")
		}
	}
}

// aggregation checks which other roles' rules a ClusterRole is made of.
func aggregation(e *check.Errors, rule check.At) {
	if !rule.Exists() {
		return
	}
	path := rule.At("clusterRoleSelectors")
	if rule.Len("clusterRoleSelectors") == 0 {
		e.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
	}
	for i, selector := range rule.Each("clusterRoleSelectors") {
		e.Selector(selector)
		if _, err := metav1.LabelSelectorAsSelector(check.LabelSelector(selector.Map)); err != nil {
			e.Invalid(path.Index(i), nil, "invalid label selector.")
		}
	}
}

func defaultBinding(obj kinds.Object) {
	setIfEmpty(tree.Ensure(obj, "roleRef"), "apiGroup", rbacGroup)
	for _, s := range tree.Maps(obj, "subjects") {
		if kind := tree.Str(s, "kind"); kind == "User" || kind == "Group" {
			setIfEmpty(s, "apiGroup", rbacGroup)
		}
	}
}

func validateBinding(obj kinds.Object, namespaced bool, roles ...string) field.ErrorList {
	var e check.Errors
	ref := check.Root(obj).Child("roleRef")
	if group := ref.Str("apiGroup"); group != rbacGroup {
		e.NotSupported(ref.At("apiGroup"), group, rbacGroup)
	}
	e.Among(ref, "kind", roles...)
	name := ref.Str("name")
	if name != "" {
		e.Messages(ref.At("name"), name, rbacName(name, false))
	}
	for _, s := range check.Root(obj).Each("subjects") {
		subject(&e, s, namespaced)
	}
	if name == "" {
		e.Later().Required(ref.At("name"), "")
	}
	return e.List()
}

func subject(e *check.Errors, s check.At, namespaced bool) {
	name, group := s.Str("name"), s.Str("apiGroup")
	if name == "" {
		e.Later().Required(s.At("name"), "")
	}
	switch s.Str("kind") {
	case "ServiceAccount":
		if name != "" {
			e.Messages(s.At("name"), name, apivalidation.ValidateServiceAccountName(name, false))
		}
		if group != "" {
			e.NotSupported(s.At("apiGroup"), group, "")
		}
		if !namespaced && s.Str("namespace") == "" {
			e.Required(s.At("namespace"), "")
		}
	case "User", "Group":
		if group != rbacGroup {
			e.NotSupported(s.At("apiGroup"), group, rbacGroup)
		}
	default:
		e.NotSupported(s.At("kind"), s.Str("kind"), "ServiceAccount", "User", "Group")
	}
}

// roleKept checks that a binding goes on granting what it granted: who may change subjects might not
// be allowed to grant another role.
func roleKept(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	if ref := check.Root(obj).Child("roleRef"); !tree.Equal(ref.Map, old["roleRef"]) {
		e.Invalid(ref.Path, struct{ APIGroup, Kind, Name string }{
			ref.Str("apiGroup"), ref.Str("kind"), ref.Str("name"),
		}, check.Immutable)
	}
	return e.List()
}

func bindingColumns(roleRef, where string) []kinds.Column {
	subjects := func(kind string) func(kinds.Object, time.Time) any {
		return func(obj kinds.Object, _ time.Time) any {
			var names []string
			for _, s := range tree.Maps(obj, "subjects") {
				name := tree.Str(s, "name")
				if kind == "ServiceAccount" {
					name = tree.Str(s, "namespace") + "/" + name
				}
				if tree.Str(s, "kind") == kind {
					names = append(names, name)
				}
			}
			return strings.Join(names, ", ")
		}
	}
	return append([]kinds.Column{
		table.Name(),
		table.Column("Role", roleRef, func(obj kinds.Object, _ time.Time) any {
			return tree.Str(obj, "roleRef", "kind") + "/" + tree.Str(obj, "roleRef", "name")
		}),
		table.Age(),
	}, table.Wide(
		table.Column("Users", "Users "+where, subjects("User")),
		table.Column("Groups", "Groups "+where, subjects("Group")),
		table.Column("ServiceAccounts", "ServiceAccounts "+where, subjects("ServiceAccount")),
	)...)
}
