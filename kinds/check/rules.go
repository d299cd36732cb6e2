package check

import (
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Messages that several kinds use.
const (
	Immutable   = "field is immutable"
	notNegative = "must be greater than or equal to 0"
)

// OneOf adds a NotSupported unless the field has one of the values. An absent field is an error
// too, a Required.
func (e *Errors) OneOf(a At, name string, allowed ...string) {
	if a.Str(name) == "" {
		e.Required(a.At(name), "")
		return
	}
	e.OptionalOneOf(a, name, allowed...)
}

// OptionalOneOf is OneOf for a field that may be absent.
func (e *Errors) OptionalOneOf(a At, name string, allowed ...string) {
	if v := a.Str(name); a.Has(name) && !slices.Contains(allowed, v) {
		e.NotSupported(a.At(name), v, allowed...)
	}
}

// Among adds a NotSupported unless the field has one of the values; nothing, or "", is none of them.
func (e *Errors) Among(a At, name string, allowed ...string) {
	if v := a.Str(name); !slices.Contains(allowed, v) {
		e.NotSupported(a.At(name), v, allowed...)
	}
}

// NotNegative checks the integer in a field.
func (e *Errors) NotNegative(a At, name string) {
	if n := a.Int(name); n < 0 {
		e.Invalid(a.At(name), n, notNegative)
	}
}

// Unchanged checks that a field is what it was.
func (e *Errors) Unchanged(a, old At, name string) {
	if !tree.Equal(a.Get(name), old.Get(name)) {
		e.Invalid(a.At(name), Changed(a.Get(name)), Immutable)
	}
}

// notOfTemplates are the parts of metadata that what is made from a template gets in another way, as upstream
// names them.
var notOfTemplates = []struct{ field, said string }{
	{"name", "name"}, {"generateName", "generateName"}, {"namespace", "namespace"}, {"selfLink", "selfLink"},
	{"uid", "uID"}, {"resourceVersion", "resourceVersion"}, {"generation", "generation"},
	{"creationTimestamp", "creationTimestamp"}, {"deletionTimestamp", "deletionTimestamp"},
	{"deletionGracePeriodSeconds", "deletionGracePeriodSeconds"}, {"ownerReferences", "ownerReferences"},
	{"finalizers", "finalizers"}, {"managedFields", "managedFields"},
}

// TemplateMeta checks the metadata of a template, which is labels and annotations alone.
func (e *Errors) TemplateMeta(meta At) {
	e.Add(apivalidation.ValidateAnnotations(meta.StringMap("annotations"), meta.At("annotations").Field())...)
	e.Add(metavalidation.ValidateLabels(meta.StringMap("labels"), meta.At("labels").Field())...)
	for _, part := range notOfTemplates {
		if v := meta.Get(part.field); v != nil && v != "" {
			e.Forbidden(meta.At(part.said), "cannot be set")
		}
	}
}

// DNSLabel checks a string to be a lower-case DNS label.
func (e *Errors) DNSLabel(path Path, value string) {
	e.Messages(path, value, validation.IsDNS1123Label(value))
}

// DNSSubdomain checks a string to be a lower-case DNS name.
func (e *Errors) DNSSubdomain(path Path, value string) {
	e.Messages(path, value, validation.IsDNS1123Subdomain(value))
}

// QualifiedName checks a string to be a name with an optional DNS prefix, as labels' keys are.
func (e *Errors) QualifiedName(path Path, value string) {
	e.Messages(path, value, validation.IsQualifiedName(value))
}

// Labels checks the keys and values of the labels in a field.
func (e *Errors) Labels(a At, name string) {
	if labels := a.StringMap(name); len(labels) > 0 {
		e.Add(metavalidation.ValidateLabels(labels, a.At(name).Field())...)
	}
}

// Port checks a port that may be given by its number or by its name.
func (e *Errors) Port(path Path, value any) {
	if name, ok := value.(string); ok {
		e.Messages(path, name, validation.IsValidPortName(name))
		return
	}
	n, _ := value.(int64)
	e.PortNumber(path, n)
}

// PortNumber checks a port's number.
func (e *Errors) PortNumber(path Path, n int64) {
	e.Messages(path, n, validation.IsValidPortNum(int(n)))
}

// IP checks an address in its strict form: no leading zeros, no IPv4 in IPv6. It says whether that is
// right, for rules that go on from there.
func (e *Errors) IP(path Path, value string) bool {
	errs := validation.IsValidIPForLegacyField(path.Field(), value, true, nil)
	e.Add(errs...)
	return len(errs) == 0
}

// CIDR checks a block of addresses in its strict form.
func (e *Errors) CIDR(path Path, value string) {
	e.Add(validation.IsValidCIDRForLegacyField(path.Field(), value, true, nil)...)
}

// LocalPath checks a path to be relative and not to lead out of where it starts.
func (e *Errors) LocalPath(path Path, value string) {
	if strings.HasPrefix(value, "/") {
		e.Invalid(path, value, "must be a relative path")
	}
	e.NoBacksteps(path, value)
}

// NoBacksteps checks that no element of a path is "..".
func (e *Errors) NoBacksteps(path Path, value string) {
	if slices.Contains(strings.Split(value, "/"), "..") {
		e.Invalid(path, value, "must not contain '..'")
	}
}

// LabelSelector checks the selector in a field, if there is one.
func (e *Errors) LabelSelector(a At, name string) { e.Selector(a.Child(name)) }

// Selector checks a selector at its place, if there is one.
func (e *Errors) Selector(a At) {
	if sel := LabelSelector(a.Map); sel != nil {
		opts := metavalidation.LabelSelectorValidationOptions{}
		e.Add(metavalidation.ValidateLabelSelector(sel, opts, a.Path.Field())...)
	}
}

// LabelSelector reads a selector; nil for nil.
func LabelSelector(m map[string]any) *metav1.LabelSelector {
	if m == nil {
		return nil
	}
	sel := &metav1.LabelSelector{MatchLabels: tree.StringMap(m, "matchLabels")}
	for _, expr := range tree.Maps(m, "matchExpressions") {
		sel.MatchExpressions = append(sel.MatchExpressions, metav1.LabelSelectorRequirement{
			Key:      tree.Str(expr, "key"),
			Operator: metav1.LabelSelectorOperator(tree.Str(expr, "operator")),
			Values:   tree.Strings(expr, "values"),
		})
	}
	return sel
}
