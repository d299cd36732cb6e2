package crd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Resource is what the store keeps definitions under.
const Resource = "customresourcedefinitions.apiextensions.k8s.io"

// Kind makes the record of CustomResourceDefinition itself.
// servedCell lists the versions that are served, and tells in which the objects are kept.
func servedCell(obj kinds.Object, _ time.Time) any {
	var served []string
	for _, v := range tree.Maps(obj, "spec", "versions") {
		name := tree.Str(v, "name")
		if tree.Bool(v, "storage") {
			name += "(storage)"
		}
		if tree.Bool(v, "served") {
			served = append(served, name)
		}
	}
	slices.Sort(served)
	return strings.Join(served, ",")
}

func Kind() *kinds.Kind {
	return &kinds.Kind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		Resource: "customresourcedefinitions", Singular: "customresourcedefinition",
		ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"},
		Schema: schema.Builtin("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("Scope", "Cluster/Namespaced", "spec", "scope"),
			table.Column("Versions", "Served versions", servedCell),
			{
				Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
				Cell: func(obj kinds.Object, _ time.Time) any { return tree.Str(obj, "metadata", "creationTimestamp") },
			},
			table.Wide(table.Text("Group", "API group", "spec", "group"))[0],
			table.Wide(table.Text("Kind", "CustomResource kind", "spec", "names", "kind"))[0],
			table.Wide(table.Column("ShortNames", "Short names", func(obj kinds.Object, _ time.Time) any {
				return strings.Join(tree.Strings(obj, "spec", "names", "shortNames"), ",")
			}))[0],
			{Name: "Established", Type: "boolean", Priority: 1, Description: "Established status",
				Cell: func(obj kinds.Object, _ time.Time) any {
					c := tree.Find(tree.List(obj, "status", "conditions"), "type", "Established")
					return tree.Str(c, "status") == "True"
				}},
		},
		NullRows: true,
		Status:   true, Generation: true, UpdateNamesRevision: true, DefaultPropagation: "Background",
		Metadata: kinds.MetadataAlone, // it is part of validation: the name depends on others
		Strategy: kinds.Strategy{
			Default:              defaultDefinition,
			PrepareForCreate:     prepareDefinition,
			PrepareForUpdate:     prepareDefinitionUpdate,
			PrepareForDelete:     prepareDefinitionDelete,
			ValidateCreate:       func(obj kinds.Object) field.ErrorList { return validateDefinition(obj, nil) },
			ValidateUpdate:       validateDefinition,
			ValidateStatusUpdate: validateDefinitionStatus,
			Warnings:             definitionWarnings,
		},
	}
}

func defaultDefinition(obj kinds.Object) {
	names := tree.Ensure(obj, "spec", "names")
	kind := tree.Str(names, "kind")
	if tree.Str(names, "singular") == "" {
		names["singular"] = strings.ToLower(kind)
	}
	if tree.Str(names, "listKind") == "" && kind != "" {
		names["listKind"] = kind + "List"
	}
	tree.Default(obj, "None", "spec", "conversion", "strategy")
	if tree.Has(obj, "spec", "conversion", "webhook", "clientConfig", "service") {
		tree.Default(obj, int64(443), "spec", "conversion", "webhook", "clientConfig", "service", "port")
	}
	keepStoredVersion(obj)
}

// keepStoredVersion notes in an object that has none that its storage version is stored.
func keepStoredVersion(obj kinds.Object) {
	if len(tree.List(obj, "status", "storedVersions")) == 0 {
		addStoredVersion(obj)
	}
}

func addStoredVersion(obj kinds.Object) {
	stored := tree.List(obj, "status", "storedVersions")
	for _, v := range tree.Maps(obj, "spec", "versions") {
		if !tree.Bool(v, "storage") {
			continue
		}
		if name := v["name"]; !slices.Contains(stored, name) {
			tree.Set(obj, append(slices.Clone(stored), name), "status", "storedVersions")
		}
		return
	}
}

func prepareDefinition(_ *kinds.Env, obj kinds.Object) error {
	obj["status"] = map[string]any{
		"conditions": nil, "acceptedNames": map[string]any{"plural": "", "kind": ""}, "storedVersions": nil,
	}
	addStoredVersion(obj)
	return nil
}

func prepareDefinitionUpdate(_ *kinds.Env, obj, old kinds.Object) error {
	obj["status"] = tree.Copy(old["status"])
	addStoredVersion(obj)
	return nil
}

// prepareDefinitionDelete makes the definition wait until its objects are gone.
func prepareDefinitionDelete(env *kinds.Env, obj kinds.Object) {
	finalizers := tree.List(obj, "metadata", "finalizers")
	if !slices.Contains(finalizers, any(apiextensionsv1.CustomResourceCleanupFinalizer)) {
		tree.Set(obj, append(slices.Clone(finalizers), apiextensionsv1.CustomResourceCleanupFinalizer), "metadata", "finalizers")
	}
	var status apiextensionsv1.CustomResourceDefinitionStatus
	if fromTree(tree.Map(obj, "status"), &status) != nil {
		return
	}
	setCondition(&status, env.Now, apiextensionsv1.Terminating, true, "InstanceDeletionPending",
		"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon")
	SetStatus(obj, &status)
}

// SetStatus puts a status into a definition's tree.
func SetStatus(obj kinds.Object, status *apiextensionsv1.CustomResourceDefinitionStatus) {
	text, err := json.Marshal(status)
	if err != nil {
		panic("crd: a status has no JSON form: " + err.Error())
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		panic("crd: a status has no JSON form: " + err.Error())
	}
	obj["status"] = m
}

func fromTree(m map[string]any, into any) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// internal returns a definition in the form that upstream validates. Of the metadata only what its
// rules are about is there: the rest is checked as every object's is.
func internal(obj kinds.Object) (*apiextensions.CustomResourceDefinition, error) {
	var read apiextensionsv1.CustomResourceDefinition
	partial := map[string]any{"spec": obj["spec"], "status": obj["status"]}
	if err := fromTree(partial, &read); err != nil {
		return nil, err
	}
	read.ObjectMeta = metav1.ObjectMeta{Name: tree.Str(obj, "metadata", "name"), ResourceVersion: "1"}
	if approved, ok := tree.StringMap(obj, "metadata", "annotations")[apiextensionsv1.KubeAPIApprovedAnnotation]; ok {
		read.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: approved}
	}
	for i := range read.Spec.Versions {
		if v := &read.Spec.Versions[i]; len(v.SelectableFields) > 0 && !hasFields(v.Schema) {
			v.SelectableFields = nil
		}
	}
	var out apiextensions.CustomResourceDefinition
	err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&read, &out, nil)
	return &out, err
}

// hasFields says whether fields can be looked for in a schema. Upstream's rules look for them in one that
// is missing or not structural, too, and do not survive it; that it is so they say besides.
func hasFields(s *apiextensionsv1.CustomResourceValidation) bool {
	if s == nil || s.OpenAPIV3Schema == nil {
		return false
	}
	var props apiextensions.JSONSchemaProps
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s.OpenAPIV3Schema, &props, nil)
	if err != nil {
		return false
	}
	_, err = structural.NewStructural(&props)
	return err == nil
}

// validateDefinition returns what is wrong with a definition; old is nil for a new one.
func validateDefinition(obj, old kinds.Object) field.ErrorList {
	return bothInternal(obj, old, func(obj, old *apiextensions.CustomResourceDefinition) field.ErrorList {
		if old == nil {
			return crdvalidation.ValidateCustomResourceDefinition(context.Background(), obj)
		}
		return crdvalidation.ValidateCustomResourceDefinitionUpdate(context.Background(), obj, old)
	})
}

func validateDefinitionStatus(obj, old kinds.Object) field.ErrorList {
	return bothInternal(obj, old, func(obj, old *apiextensions.CustomResourceDefinition) field.ErrorList {
		return crdvalidation.ValidateUpdateCustomResourceDefinitionStatus(context.Background(), obj, old)
	})
}

func bothInternal(obj, old kinds.Object, check func(obj, old *apiextensions.CustomResourceDefinition) field.ErrorList) field.ErrorList {
	now, err := internal(obj)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, err.Error())}
	}
	var before *apiextensions.CustomResourceDefinition
	if old != nil {
		if before, err = internal(old); err != nil {
			return field.ErrorList{field.InternalError(nil, fmt.Errorf("the stored definition: %w", err))}
		}
	}
	return check(now, before)
}

// definitionWarnings warns of formats that nothing checks, and of sets whose items are compared by
// nobody; not again of what was there before.
func definitionWarnings(obj, old kinds.Object) []string {
	before := warningsOf(old)
	return slices.DeleteFunc(warningsOf(obj), func(w string) bool { return slices.Contains(before, w) })
}

func warningsOf(obj kinds.Object) (formats []string) {
	if obj == nil {
		return nil
	}
	def, err := internal(obj)
	if err != nil {
		return nil
	}
	var sets []string
	crdvalidation.HasSchemaWith(&def.Spec, func(s *apiextensions.JSONSchemaProps) bool {
		crdvalidation.SchemaHas(s, func(s *apiextensions.JSONSchemaProps) bool {
			formats, sets = append(formats, formatWarnings(s)...), append(sets, setWarnings(s)...)
			return false
		})
		return false
	})
	slices.Sort(sets)
	return append(formats, slices.Compact(sets)...)
}

func formatWarnings(s *apiextensions.JSONSchemaProps) (warnings []string) {
	if s.Format == "" {
		return nil
	}
	one := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
	for _, format := range validation.GetUnrecognizedFormats(one, environment.DefaultCompatibilityVersion()) {
		warnings = append(warnings, fmt.Sprintf("unrecognized format %q", format))
	}
	return warnings
}

func setWarnings(s *apiextensions.JSONSchemaProps) []string {
	if s.XListType == nil || *s.XListType != "set" || s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	if of := s.Items.Schema.Type; of == "object" || of == "array" {
		return []string{fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by "+
			"server-side apply or CEL validation rules", of)}
	}
	return nil
}
