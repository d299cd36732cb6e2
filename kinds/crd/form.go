package crd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
)

// form is one version of a definition's objects.
type form struct {
	definition *Definition
	version    *version
	schema     *compiled.Schema
	shape      *kinds.Form
	// parsed and checker are made when they are first needed.
	parsed  func() *parsed
	checker func() *checker
}

// parsed is a version's schema, once read.
type parsed struct {
	props      *apiextensions.JSONSchemaProps
	structural *structural.Structural
	err        error // the schema cannot be read; nothing is known of the objects then
}

func newForm(d *Definition, v *version) *form {
	f := &form{definition: d, version: v}
	f.parsed = sync.OnceValue(func() *parsed { return parse(v.Schema) })
	f.checker = sync.OnceValue(func() *checker { return newChecker(f) })
	f.schema = compiled.Declared(f.modelName(), func() *compiled.Type { return rootType(f.modelName(), f.parsed().structural) })
	return f
}

// apiVersion is the group and version as objects have them.
func (f *form) apiVersion() string { return f.definition.spec.Group + "/" + f.version.Name }

// modelName is the name of the version's type in OpenAPI documents: "com.example.v1.Widget".
func (f *form) modelName() string {
	parts := strings.Split(f.definition.spec.Group, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + f.version.Name + "." + f.definition.spec.Names.Kind
}

// deprecated is the warning to those who use a deprecated version: the definition's own, or the one
// that upstream makes, which names the best version that is not deprecated.
func (f *form) deprecated() string {
	if !f.version.Deprecated {
		return ""
	}
	if own := f.version.DeprecationWarning; own != nil {
		return *own
	}
	kind := f.definition.spec.Names.Kind
	text := f.apiVersion() + " " + kind + " is deprecated"
	if best := f.definition.successor(f.version.Name); best != "" {
		text += "; use " + f.definition.spec.Group + "/" + best + " " + kind
	}
	return text
}

// convert makes objects of other versions those of this one. By itself it leaves the names of fields as
// they are. What this version does not know is dropped either way.
func (f *form) convert(by *converter) func(context.Context, *kinds.Form, []kinds.Object) ([]kinds.Object, error) {
	return func(ctx context.Context, from *kinds.Form, objs []kinds.Object) (out []kinds.Object, err error) {
		if out = objs; by != nil {
			kind := f.definition.spec.Names.Kind
			was := schema.FromAPIVersionAndKind(from.APIVersion, kind)
			if out, err = by.convert(ctx, was, schema.FromAPIVersionAndKind(f.apiVersion(), kind), objs); err != nil {
				return nil, err
			}
		}
		for _, obj := range out {
			obj["apiVersion"] = f.apiVersion()
			if _, err := f.schema.Conform(obj); err != nil {
				return nil, fmt.Errorf("%s as %s: %w", f.definition.spec.Names.Kind, f.version.Name, err)
			}
		}
		return out, nil
	}
}

// parse reads a version's schema: the text of a CustomResourceValidation.
func parse(text []byte) *parsed {
	p := &parsed{}
	var read apiextensionsv1.CustomResourceValidation
	if p.err = json.Unmarshal(text, &read); p.err != nil || read.OpenAPIV3Schema == nil {
		return p.orAnything()
	}
	p.props = &apiextensions.JSONSchemaProps{}
	p.err = apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(read.OpenAPIV3Schema, p.props, nil)
	if p.err != nil {
		return p.orAnything()
	}
	if p.structural, p.err = structural.NewStructural(p.props); p.err != nil {
		return p.orAnything()
	}
	p.err = defaulting.PruneDefaults(p.structural)
	return p.orAnything()
}

// orAnything keeps every field of objects whose schema cannot be read: nothing is lost.
func (p *parsed) orAnything() *parsed {
	if p.structural == nil || p.err != nil {
		p.structural = &structural.Structural{
			Generic:    structural.Generic{Type: "object"},
			Extensions: structural.Extensions{XPreserveUnknownFields: true},
		}
	}
	return p
}
