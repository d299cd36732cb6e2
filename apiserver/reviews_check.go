package apiserver

import (
	"fmt"
	"reflect"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// invalidReview is what a client sees of a question that makes no sense. It names no kind, as upstream.
func invalidReview(errs field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "authorization.k8s.io"}, "", errs)
}

// checkReviewMeta refuses metadata that a question has no use for; may is what it may be.
func checkReviewMeta(meta metav1.ObjectMeta, may string) field.ErrorList {
	said := meta
	said.ManagedFields = nil
	if reflect.DeepEqual(said, metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, may)}
}

// checkSubjectAccess says what is wrong with a question about somebody.
func checkSubjectAccess(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := checkAttributes(spec)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User,
			"at least one of user or group must be specified"))
	}
	return append(errs, checkSelectors(spec.ResourceAttributes)...)
}

// checkAccess does the same where it is known whom the question is about.
func checkAccess(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	return append(checkAttributes(spec), checkSelectors(spec.ResourceAttributes)...)
}

// checkLocalAccess says what is wrong with a question about one namespace.
func checkLocalAccess(review *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	errs := checkSubjectAccess(&review.Spec)
	meta := review.ObjectMeta
	if meta.Namespace = ""; len(checkReviewMeta(meta, "")) > 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata"), review.ObjectMeta, "must be empty except for namespace"))
	}
	if at := review.Spec.ResourceAttributes; at != nil && at.Namespace != review.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), at.Namespace,
			"must match metadata.namespace"))
	}
	if path := review.Spec.NonResourceAttributes; path != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), named(path),
			"disallowed on this kind of request"))
	}
	return errs
}

func checkAttributes(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	resource, path := spec.ResourceAttributes, spec.NonResourceAttributes
	if (resource == nil) != (path == nil) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), named(path),
		"exactly one of nonResourceAttributes or resourceAttributes must be specified")}
}

// named is a path as messages show it.
func named(path *authorizationv1.NonResourceAttributes) *struct{ Path, Verb string } {
	if path == nil {
		return nil
	}
	return &struct{ Path, Verb string }{path.Path, path.Verb}
}

// checkSelectors checks what a question says of the objects that are meant.
func checkSelectors(at *authorizationv1.ResourceAttributes) (errs field.ErrorList) {
	if at == nil {
		return nil
	}
	path := field.NewPath("spec.resourceAttributes")
	if s := at.FieldSelector; s != nil {
		path := path.Child("fieldSelector")
		errs = append(errs, checkSelector(path, s.RawSelector, len(s.Requirements))...)
		opts := metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, requirement := range s.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(requirement, opts,
				path.Child("requirements").Index(i))...)
		}
	}
	if s := at.LabelSelector; s != nil {
		path := path.Child("labelSelector")
		errs = append(errs, checkSelector(path, s.RawSelector, len(s.Requirements))...)
		opts := metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, requirement := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(requirement, opts,
				path.Child("requirements").Index(i))...)
		}
	}
	return errs
}

func checkSelector(path *field.Path, raw string, requirements int) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw,
			"may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"),
			fmt.Sprintf("when %s is specified, requirements or rawSelector is required", path))}
	}
	return nil
}
