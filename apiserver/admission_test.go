package apiserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/admission"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

type mutator func(a *admission.Attributes) error

func (m mutator) Mutate(_ context.Context, a *admission.Attributes) error { return m(a) }

type validator func(a *admission.Attributes) error

func (v validator) Validate(_ context.Context, a *admission.Attributes) error { return v(a) }

func TestAdmission_SeesEveryWrite(t *testing.T) {
	var seen []string
	a := newAPI(t, func(o *apiserver.Options) {
		o.Mutators = append(o.Mutators, mutator(func(a *admission.Attributes) error {
			if a.Kind.Kind == "ConfigMap" && a.Object != nil {
				tree.Set(a.Object, "mutator", "metadata", "labels", "by")
				a.Object["nosuch"] = "is dropped"
				a.Warn("mutated")
			}
			return nil
		}))
		o.Validators = append(o.Validators, validator(func(a *admission.Attributes) error {
			if a.Kind.Kind != "ConfigMap" {
				return nil
			}
			seen = append(seen, fmt.Sprintf("%s %s dry=%v old=%v", a.Operation, a.Name, a.DryRun, a.Old != nil))
			if tree.Str(a.Object, "data", "k") == "bad" {
				return apierrors.NewForbidden(a.Kind.GroupResource(), a.Name, fmt.Errorf("k is bad"))
			}
			return nil
		}))
	})
	got := a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"}}`)
	if got.str("metadata", "labels", "by") != "mutator" || len(got.warnings) != 1 || strings.Contains(got.text, "nosuch") {
		t.Errorf("got %s, warnings %q", got.text, got.warnings)
	}
	a.want(403, "PATCH "+cms+"/a", merge, `{"data":{"k":"bad"}}`)
	a.want(200, "PUT "+cms+"/a?dryRun=All", "", `{"metadata":{"name":"a"},"data":{"k":"good"}}`)
	a.want(201, "PATCH "+cms+"/b?fieldManager=m", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`)
	a.want(200, "DELETE "+cms+"/a", "", "")
	want := `[CREATE a dry=false old=false UPDATE a dry=false old=true UPDATE a dry=true old=true CREATE b dry=false old=false DELETE a dry=false old=true]`
	if got := fmt.Sprint(seen); got != want {
		t.Errorf("validators saw %s, want %s", got, want)
	}
}
