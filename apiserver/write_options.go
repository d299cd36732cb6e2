package apiserver

import (
	"strings"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// writeOptions are what the query of a create, an update or a patch asks for.
type writeOptions struct {
	dryRun          bool
	fieldManager    string // as given; "" if it was not
	fieldValidation string // never ""
	force           bool

	patch           bool   // of a patch or an apply
	validationAsked string // fieldValidation as given
}

// parseWriteOptions reads and checks the query. Possible errors: 400 and 422.
func parseWriteOptions(r *request, patch types.PatchType) (writeOptions, error) {
	var (
		dryRun     = r.query["dryRun"]
		manager    = r.query.Get("fieldManager")
		validation = r.query.Get("fieldValidation")
	)
	if len(dryRun) == 0 && manager == "" && validation == "" && patch == "" {
		return writeOptions{fieldValidation: metav1.FieldValidationWarn}, nil
	}
	force := forceParam(r)
	kind, errs := "", field.ErrorList(nil)
	switch r.verb {
	case "create":
		kind, errs = "CreateOptions", checkCreateOptions(dryRun, manager, validation)
	case "update":
		kind, errs = "UpdateOptions", checkUpdateOptions(dryRun, manager, validation)
	default:
		kind, errs = "PatchOptions", checkPatchOptions(dryRun, manager, validation, force, patch)
	}
	if len(errs) > 0 {
		return writeOptions{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
	}
	asked := validation
	if validation == "" {
		validation = metav1.FieldValidationWarn
	}
	return writeOptions{
		dryRun: len(dryRun) > 0, fieldManager: manager, fieldValidation: validation,
		force: force != nil && *force, patch: patch != "", validationAsked: asked,
	}, nil
}

func checkCreateOptions(dryRun []string, manager, fieldValidation string) field.ErrorList {
	return validation.ValidateCreateOptions(&metav1.CreateOptions{
		DryRun: dryRun, FieldManager: manager, FieldValidation: fieldValidation,
	})
}

func checkUpdateOptions(dryRun []string, manager, fieldValidation string) field.ErrorList {
	return validation.ValidateUpdateOptions(&metav1.UpdateOptions{
		DryRun: dryRun, FieldManager: manager, FieldValidation: fieldValidation,
	})
}

func checkPatchOptions(dryRun []string, manager, fieldValidation string, force *bool, patch types.PatchType) field.ErrorList {
	return validation.ValidatePatchOptions(&metav1.PatchOptions{
		DryRun: dryRun, FieldManager: manager, FieldValidation: fieldValidation, Force: force,
	}, patch)
}

func forceParam(r *request) *bool {
	if !r.query.Has("force") {
		return nil
	}
	force := boolParam(r.query, "force")
	return &force
}

// managerOf is the name under which the writer owns fields: what it says, or what its User-Agent
// begins with, without what cannot be printed and no longer than a manager's name may be.
func managerOf(r *request, opts writeOptions) string {
	if opts.fieldManager != "" {
		return opts.fieldManager
	}
	agent, _, _ := strings.Cut(r.http.UserAgent(), "/")
	var name strings.Builder
	for _, c := range agent {
		if !unicode.IsPrint(c) {
			continue
		}
		if name.Len()+utf8.RuneLen(c) > validation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(c)
	}
	return name.String()
}
