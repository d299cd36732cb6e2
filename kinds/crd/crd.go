// Package crd makes records of kinds out of CustomResourceDefinitions, and says what a definition's
// own state should be.
//
// A Definition is read from the stored bytes of a CustomResourceDefinition; Kinds are the records of
// the versions that it serves, which are like those of built-in kinds: nothing that uses them can tell.
// Versions of a definition are converted by its webhook, if it has one, or else by their names alone.
// What a schema says is compiled when a version is first used, so that a thousand definitions cost
// a start little more than reading their names; expressions are compiled at the first write.
//
// The rules of structural schemas, the wording of what breaks them, and the expression language are
// those of k8s.io/apiextensions-apiserver, which is used for validation. Reading, pruning and
// defaulting are done by package kinds/schema in the one pass that all objects go through.
//
// Everything here is a pure function or read-only once made, and may be used concurrently.
package crd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/kinds"
)

// Definition is what is read of a CustomResourceDefinition to serve its objects.
type Definition struct {
	Name     string
	Revision int64 // of the store, that wrote it
	// Deleted says that the definition waits for its objects to go.
	Deleted bool
	Status  apiextensionsv1.CustomResourceDefinitionStatus

	meta metav1.ObjectMeta
	spec definitionSpec
}

// definitionSpec is CustomResourceDefinitionSpec with schemas that have not been read yet.
type definitionSpec struct {
	Group      string
	Scope      apiextensionsv1.ResourceScope
	Names      apiextensionsv1.CustomResourceDefinitionNames
	Versions   []version
	Conversion *apiextensionsv1.CustomResourceConversion
}

type version struct {
	Name                     string
	Served, Storage          bool
	Deprecated               bool
	DeprecationWarning       *string
	Schema                   json.RawMessage
	Subresources             *apiextensionsv1.CustomResourceSubresources
	AdditionalPrinterColumns []apiextensionsv1.CustomResourceColumnDefinition
	SelectableFields         []apiextensionsv1.SelectableField
}

// Read reads a definition from the bytes that the store has of it, as of a revision.
func Read(value []byte, revision int64) (*Definition, error) {
	var read struct {
		Metadata metav1.ObjectMeta
		Spec     definitionSpec
		Status   apiextensionsv1.CustomResourceDefinitionStatus
	}
	if err := json.Unmarshal(value, &read); err != nil {
		return nil, fmt.Errorf("a stored CustomResourceDefinition cannot be read: %w", err)
	}
	return &Definition{
		Name: read.Metadata.Name, Revision: revision, Deleted: read.Metadata.DeletionTimestamp != nil,
		Status: read.Status, meta: read.Metadata, spec: read.Spec,
	}, nil
}

// Established says that the definition's objects are served.
func (d *Definition) Established() bool { return isTrue(&d.Status, apiextensionsv1.Established) }

// Group is the API group of the definition's kinds.
func (d *Definition) Group() string { return d.spec.Group }

// Resource is what the store keeps the definition's objects under.
func (d *Definition) Resource() string { return d.spec.Names.Plural + "." + d.spec.Group }

// SameForm says whether two states of a definition agree on what objects look like: an object that
// was written under one is of the form of the other, too.
func (d *Definition) SameForm(old *Definition) bool {
	return old != nil && d.meta.UID == old.meta.UID && equalJSON(d.spec, old.spec)
}

// SameKinds says whether two states of a definition that agree on the form of objects also serve
// them in the same way: only metadata, or conditions that do not matter, differ.
func (d *Definition) SameKinds(old *Definition) bool {
	return d.Deleted == old.Deleted && d.Established() == old.Established() &&
		equalJSON(d.Status.AcceptedNames, old.Status.AcceptedNames)
}

func equalJSON(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}

// Kinds returns the records of the versions that are served, and that of the version in which objects
// are kept, which may not be; none before the definition's names are accepted. Objects written before
// the revision since may be of another form; ask is for those that a webhook converts; replaced is
// closed when other records come into force. See kinds.Kind.
func (d *Definition) Kinds(since int64, ask Converters, replaced <-chan struct{}) (served []*kinds.Kind, kept *kinds.Kind) {
	if !d.Established() {
		return nil, nil
	}
	forms := d.forms(since, newConverter(d.spec.Conversion, ask))
	for _, f := range forms {
		if !f.version.Served && f.shape != f.shape.Kept {
			continue
		}
		k := d.kind(f, replaced)
		if f.version.Served {
			served = append(served, k)
		}
		if f.shape == f.shape.Kept {
			kept = k
		}
	}
	return served, kept
}

// forms makes the versions known to each other. Validation sees to it that one of them is kept.
func (d *Definition) forms(since int64, by *converter) []*form {
	forms := make([]*form, len(d.spec.Versions))
	all, kept := map[string]*kinds.Form{}, (*kinds.Form)(nil)
	for i := range d.spec.Versions {
		f := newForm(d, &d.spec.Versions[i])
		f.shape = &kinds.Form{
			APIVersion: f.apiVersion(), Schema: f.schema, Since: since, All: all, Asks: by != nil, Convert: f.convert(by),
		}
		if f.version.Storage {
			kept = f.shape
		}
		all[f.apiVersion()], forms[i] = f.shape, f
	}
	for _, f := range all {
		f.Kept = kept
	}
	return forms
}

func (d *Definition) kind(f *form, replaced <-chan struct{}) *kinds.Kind {
	names, v := d.Status.AcceptedNames, f.version
	k := &kinds.Kind{
		Group: d.spec.Group, Version: v.Name, Kind: names.Kind, ListKind: names.ListKind,
		Resource: names.Plural, Singular: names.Singular,
		ShortNames: names.ShortNames, Categories: names.Categories,
		Namespaced: d.spec.Scope == apiextensionsv1.NamespaceScoped,
		Schema:     f.schema, OpenAPI: f.openAPI,
		Columns:    columns(v.AdditionalPrinterColumns),
		Fields:     selectable(v.SelectableFields),
		Generation: true, Declared: true, UpdateNamesRevision: true, DefaultPropagation: "Background",
		Deprecated: f.deprecated(), Replaced: replaced,
		Strategy: f.strategy(),
		Form:     f.shape,
		Verbs:    verbs,
	}
	if s := v.Subresources; s != nil {
		k.Status, k.Scale = s.Status != nil, scale(s.Scale)
	}
	if d.Deleted {
		k.Verbs = slices.DeleteFunc(slices.Clone(verbs), func(verb string) bool { return verb == "create" })
	}
	return k
}

// verbs are kinds.AllVerbs in the order in which discovery has those of declared kinds.
var verbs = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}

func scale(s *apiextensionsv1.CustomResourceSubresourceScale) *kinds.Scale {
	if s == nil {
		return nil
	}
	out := &kinds.Scale{
		SpecReplicas:   strings.TrimPrefix(s.SpecReplicasPath, "."),
		StatusReplicas: strings.TrimPrefix(s.StatusReplicasPath, "."),
		AsField:        true,
	}
	if s.LabelSelectorPath != nil {
		out.LabelSelector = strings.TrimPrefix(*s.LabelSelectorPath, ".")
	}
	return out
}
