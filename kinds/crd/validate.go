package crd

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apivalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// strategy is what the server does with objects of the version beyond what their type says.
func (f *form) strategy() kinds.Strategy {
	s := kinds.Strategy{
		ValidateCreate: func(obj kinds.Object) field.ErrorList { return f.checker().create(obj) },
		ValidateUpdate: func(obj, old kinds.Object) field.ErrorList { return f.checker().update(obj, old) },
		Warnings:       finalizerWarnings,
	}
	if sub := f.version.Subresources; sub != nil && sub.Status != nil {
		s.PrepareForCreate = func(_ *kinds.Env, obj kinds.Object) error {
			delete(obj, "status")
			return nil
		}
		s.PrepareForStatusUpdate = keepMetadata
		s.ValidateStatusUpdate = func(obj, old kinds.Object) field.ErrorList { return f.checker().status(obj, old) }
	}
	return s
}

// keepMetadata leaves everything about an object but its status as it is.
func keepMetadata(_ *kinds.Env, obj, old kinds.Object) {
	written := tree.Map(obj, "metadata")
	kept := tree.CopyMap(tree.Map(old, "metadata"))
	for _, name := range []string{"managedFields", "resourceVersion"} {
		tree.Move(name, written, kept)
	}
	obj["metadata"] = kept
}

// checker says what is wrong with objects of a version. Expressions are compiled into it.
type checker struct {
	parsed   *parsed
	whole    validation.SchemaValidator
	ofStatus validation.SchemaValidator // nil if nothing is said of the status
	rules    *cel.Validator             // nil if there are none
	scale    *apiextensionsv1.CustomResourceSubresourceScale
	err      error
}

func newChecker(f *form) *checker {
	c := &checker{parsed: f.parsed()}
	if c.err = c.parsed.err; c.err != nil {
		return c
	}
	if c.whole, _, c.err = validation.NewSchemaValidator(c.parsed.props); c.err != nil {
		return c
	}
	if c.parsed.props != nil {
		if status, ok := c.parsed.props.Properties["status"]; ok {
			c.ofStatus, _, c.err = validation.NewSchemaValidator(&status)
		}
	}
	c.rules = cel.NewValidator(c.parsed.structural, true, celconfig.PerCallLimit)
	if s := f.version.Subresources; s != nil {
		c.scale = s.Scale
	}
	return c
}

func (c *checker) create(obj kinds.Object) field.ErrorList {
	if c.err != nil {
		return c.unusable()
	}
	errs := validation.ValidateCustomResource(nil, obj, c.whole)
	errs = append(errs, c.scaleSpec(obj)...)
	errs = append(errs, c.scaleStatus(obj)...)
	errs = append(errs, objectmeta.Validate(context.Background(), nil, obj, c.parsed.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.parsed.structural, obj)...)
	return c.checkRules(errs, obj, nil)
}

// update judges a change. What was wrong before and has not been touched is let through.
func (c *checker) update(obj, old kinds.Object) field.ErrorList {
	if c.err != nil {
		return c.unusable()
	}
	both := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: c.parsed.structural})
	errs := validation.ValidateCustomResourceUpdate(nil, obj, old, c.whole, validation.WithRatcheting(both))
	errs = append(errs, c.scaleSpec(obj)...)
	errs = append(errs, c.scaleStatus(obj)...)
	errs = append(errs, objectmeta.Validate(context.Background(), nil, obj, c.parsed.structural, false)...)
	errs = append(errs, c.lists(obj, old)...)
	return c.checkRules(errs, obj, old, cel.WithRatcheting(both))
}

func (c *checker) status(obj, old kinds.Object) field.ErrorList {
	if c.err != nil {
		return c.unusable()
	}
	both := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: c.parsed.structural})
	var errs field.ErrorList
	if status, there := obj["status"]; there && c.ofStatus != nil {
		errs = validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old["status"], c.ofStatus,
			validation.WithRatcheting(both.Key("status")))
	}
	errs = append(errs, c.scaleStatus(obj)...)
	errs = append(errs, c.lists(obj, old)...)
	return c.checkRules(errs, obj, old, cel.WithRatcheting(both))
}

// lists checks that the items of lists differ where they must, unless some did not before.
func (c *checker) lists(obj, old kinds.Object) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, c.parsed.structural, obj)
	if len(errs) > 0 && len(listtype.ValidateListSetsAndMaps(nil, c.parsed.structural, old)) > 0 {
		return nil
	}
	return errs
}

// blocking are the errors after which the object is not what rules expect.
var blocking = []field.ErrorType{field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong,
	field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid}

// checkRules evaluates the rules, if the object is sound enough for them; old is nil for a new one.
func (c *checker) checkRules(errs field.ErrorList, obj, old kinds.Object, opts ...cel.Option) field.ErrorList {
	if c.rules == nil {
		return errs
	}
	if slices.ContainsFunc(errs, func(e *field.Error) bool { return slices.Contains(blocking, e.Type) }) {
		return append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was "+
			"invalid; correct the existing errors to complete validation"))
	}
	var before any
	if old != nil {
		before = old
	}
	broken, _ := c.rules.Validate(context.Background(), nil, c.parsed.structural, obj, before,
		celconfig.RuntimeCELCostBudget, opts...)
	return append(errs, broken...)
}

func (c *checker) unusable() field.ErrorList {
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("the definition's schema cannot be used: %w", c.err))}
}

func (c *checker) scaleSpec(obj kinds.Object) field.ErrorList {
	if c.scale == nil {
		return nil
	}
	return replicas(obj, c.scale.SpecReplicasPath)
}

func (c *checker) scaleStatus(obj kinds.Object) field.ErrorList {
	if c.scale == nil {
		return nil
	}
	errs := replicas(obj, c.scale.StatusReplicasPath)
	if path := c.scale.LabelSelectorPath; path != nil {
		text, _, err := unstructured.NestedString(obj, strings.Split(strings.TrimPrefix(*path, "."), ".")...)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*path), text, err.Error()))
		}
	}
	return errs
}

// replicas checks a number of replicas; its path is spelled with a dot in front, as upstream does.
func replicas(obj kinds.Object, path string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(obj, strings.Split(strings.TrimPrefix(path, "."), ".")...)
	at := field.NewPath(path)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(at, n, err.Error())}
	case n < 0:
		return field.ErrorList{field.Invalid(at, n, "should be a non-negative integer")}
	case n > math.MaxInt32:
		return field.ErrorList{field.Invalid(at, n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32))}
	}
	return nil
}

// finalizerWarnings warns of finalizers that others might use, too.
func finalizerWarnings(obj, old kinds.Object) []string {
	const advice = "to avoid accidental conflicts with other finalizer writers"
	var warnings []string
	before := tree.Strings(old, "metadata", "finalizers")
	added := tree.Strings(obj, "metadata", "finalizers")
	slices.Sort(added)
	for _, name := range slices.Compact(added) {
		if slices.Contains(before, name) {
			continue
		}
		for _, msg := range apivalidation.IsQualifiedName(name) {
			warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s", name, msg))
		}
		switch {
		case strings.Contains(name, "/"), name == metav1.FinalizerOrphanDependents,
			name == metav1.FinalizerDeleteDependents, name == "kubernetes":
		case strings.Contains(name, "."):
			warnings = append(warnings, fmt.Sprintf(
				"metadata.finalizers: %q: prefer a domain-qualified finalizer name including a path (/) %s", name, advice))
		default:
			warnings = append(warnings, fmt.Sprintf(
				"metadata.finalizers: %q: prefer a domain-qualified finalizer name %s", name, advice))
		}
	}
	return warnings
}
