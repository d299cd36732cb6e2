package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/apiserver/cbor"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/patch"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// patch answers PATCH of an object, or of its status.
func (s *Server) patch(w http.ResponseWriter, r *request) error {
	p, t, err := s.readPatch(w, r)
	if err != nil {
		return err
	}
	c := change{next: func(live kinds.Object) (kinds.Object, error) {
		obj, err := p.apply(t, t.kind.Schema, live)
		if err != nil {
			return nil, err
		}
		if err := p.keepsKind(t, live, obj); err != nil {
			return nil, err
		}
		if err := t.settlePatched(obj); err != nil {
			return nil, err
		}
		t.own(live, obj)
		return obj, nil
	}}
	if p.kind == types.ApplyYAMLPatchType {
		c = s.applyChange(r, t, p)
	}
	value, created, err := t.modify(c)
	if err != nil {
		return err
	}
	return s.respond(w, r, modifiedCode(created), value)
}

// settlePatched makes what a patch left of an object a whole one again.
func (t *write) settlePatched(obj kinds.Object) error {
	gvk := t.kind.GVK()
	obj["apiVersion"], obj["kind"] = gvk.GroupVersion().String(), gvk.Kind
	if err := t.matchNamespace(obj); err != nil {
		return err
	}
	if err := t.matchName(obj); err != nil {
		return err
	}
	t.dedupOwners(obj)
	t.setDefaults(obj)
	return nil
}

// keepsKind refuses a patch that makes another kind of object. What a strategic one says of that is not
// asked, and an apply was before.
func (p *requestPatch) keepsKind(t *write, live, obj kinds.Object) error {
	if p.kind == types.StrategicMergePatchType {
		return nil
	}
	gvk := t.kind.GVK()
	apiVersion, kind := tree.Str(obj, "apiVersion"), tree.Str(obj, "kind")
	said, err := (&body{gvk: gvk}).said(apiVersion, kind)
	switch {
	case err == nil && kind == "" && t.kind.Declared:
		text := p.shown(t, t.kind.Schema, live)
		//lint:ignore ST1005 the text is what clients of Kubernetes know
		err = fmt.Errorf("Object 'Kind' is missing in '%s'", text)
	case err == nil && said == gvk:
		return nil
	case err == nil && t.kind.Declared:
		return otherKind(gvk, said, tree.Str(obj, "metadata", "name"))
	case err == nil:
		err = (&body{gvk: gvk, kinds: t.kinds}).otherKind(said, said.GroupVersion().String())
	}
	return p.invalid(t, t.kind.Schema, live, err)
}

// otherKind refuses an object of a declared kind that says it is of another.
func otherKind(is, said schema.GroupVersionKind, name string) error {
	var wrong field.ErrorList
	if is, said := is.GroupVersion().String(), said.GroupVersion().String(); said != is {
		wrong = append(wrong, field.Invalid(field.NewPath("apiVersion"), said, "must be "+is))
	}
	if said.Kind != is.Kind {
		wrong = append(wrong, field.Invalid(field.NewPath("kind"), said.Kind, "must be "+is.Kind))
	}
	return apierrors.NewInvalid(said.GroupKind(), name, wrong)
}

// requestPatch is a patch as it came: its type, and what it was decoded to.
type requestPatch struct {
	kind types.PatchType
	data []byte // JSON

	ops      patch.Operations // of a JSON patch
	tree     map[string]any   // of the others
	findings []string
	// err is what is wrong with the patch; an object that is not there goes before it.
	err error
}

// readPatch reads the body and decodes it as far as it can be without the object.
// Possible errors: 400, 406, 413, 415, 422.
func (s *Server) readPatch(w http.ResponseWriter, r *request) (*requestPatch, *write, error) {
	kind, _, _ := strings.Cut(r.http.Header.Get("Content-Type"), ";")
	p := &requestPatch{kind: types.PatchType(kind)}
	switch p.kind {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType,
		types.ApplyCBORPatchType:
	default:
		return nil, nil, withDetails(status(http.StatusUnsupportedMediaType,
			metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type"))
	}
	if p.kind == types.StrategicMergePatchType && r.kind.Declared {
		return nil, nil, errBodyType(strings.Join([]string{string(types.JSONPatchType), string(types.MergePatchType),
			string(types.ApplyYAMLPatchType)}, ", "))
	}
	if _, err := negotiate(r); err != nil {
		return nil, nil, err
	}
	data, err := readBody(r)
	if err != nil {
		return nil, nil, err
	}
	t, err := s.newWrite(w, r, p.kind)
	if err != nil {
		return nil, nil, err
	}
	switch p.kind {
	case types.ApplyYAMLPatchType:
		return p, t, p.decodeYAML(data)
	case types.ApplyCBORPatchType:
		p.kind = types.ApplyYAMLPatchType // from here on they are one
		return p, t, p.decodeCBOR(data)
	}
	p.data = data
	return p, t, p.decode()
}

// decode reads a patch that is JSON. Only what is wrong with one is worth a second reading, which
// finds the words.
func (p *requestPatch) decode() error {
	if p.kind != types.JSONPatchType {
		if obj, ok := compiled.DecodeTree(p.data); ok {
			p.tree = obj
			return nil
		}
	}
	if !json.Valid(p.data) {
		return apierrors.NewBadRequest("invalid JSON patch")
	}
	var findings []error
	if p.kind == types.JSONPatchType {
		p.ops, findings, p.err = patch.ParseJSON(p.data)
	} else {
		findings, p.err = kjson.UnmarshalStrict(p.data, &p.tree)
	}
	switch {
	case errors.Is(p.err, patch.ErrTooLarge):
		p.err = apierrors.NewRequestEntityTooLargeError(p.err.Error())
	case p.err != nil && p.kind == types.StrategicMergePatchType:
		p.err = apierrors.NewBadRequest(p.err.Error())
	case p.err != nil:
		p.err = apierrors.NewBadRequest("error decoding patch: " + p.err.Error())
	}
	for _, finding := range findings {
		text := finding.Error()
		if p.kind == types.JSONPatchType {
			text = "json patch " + text
		}
		p.findings = append(p.findings, text)
	}
	return nil
}

// decodeYAML decodes what is applied. A key that stands twice is a finding.
func (p *requestPatch) decodeYAML(data []byte) error {
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return apierrors.NewBadRequest("error encoding patch: " + strings.TrimPrefix(err.Error(), yamlPrefix))
	}
	p.data = text
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &p.tree); err != nil {
		p.err = apierrors.NewBadRequest("error decoding patch: " + err.Error())
	}
	if _, err := yaml.YAMLToJSONStrict(data); err != nil {
		p.findings = []string{yamlPrefix + strings.TrimPrefix(err.Error(), yamlPrefix)}
	}
	return nil
}

// decodeCBOR decodes what is applied. A key that stands twice is no CBOR.
func (p *requestPatch) decodeCBOR(data []byte) error {
	text, err := cbor.ToJSON(data)
	if err != nil {
		return apierrors.NewBadRequest("error decoding patch: " + err.Error())
	}
	p.data = text
	return kjson.UnmarshalCaseSensitivePreserveInts(text, &p.tree)
}

// apply returns what becomes of an object of the schema, as a new canonical tree.
func (p *requestPatch) apply(t *write, s *compiled.Schema, live kinds.Object) (kinds.Object, error) {
	if p.err != nil {
		return nil, p.err
	}
	aside := p.setsAside()
	obj, err := p.merge(s, copyBut(live, aside))
	if err != nil {
		return nil, err
	}
	forget := saysNobodyOwns(obj)
	findings, err := s.Conform(obj)
	if err != nil {
		return nil, p.invalid(t, s, live, err)
	}
	switch {
	case aside != "":
		tree.Move(aside, tree.Map(live, "metadata"), metadata(obj))
	case forget:
		metadata(obj)["managedFields"] = []any{}
	}
	findings = append(p.findings[:len(p.findings):len(p.findings)], findings...)
	switch {
	case len(findings) == 0 || t.opts.fieldValidation == metav1.FieldValidationIgnore:
	case t.opts.fieldValidation == metav1.FieldValidationStrict:
		return nil, p.invalid(t, s, live, strictError(findings))
	default:
		t.warnFindings(findings)
	}
	return obj, nil
}

// setsAside names what a patch can be applied without, of metadata: most say nothing of managedFields,
// which are the larger part of many an object, and need not copy and check them.
func (p *requestPatch) setsAside() string {
	if p.kind != types.MergePatchType && p.kind != types.StrategicMergePatchType {
		return ""
	}
	for key := range tree.Map(p.tree, "metadata") {
		if strings.HasSuffix(key, "managedFields") { // or a directive about them
			return ""
		}
	}
	return "managedFields"
}

// copyBut returns a deep copy of an object without a field of its metadata.
func copyBut(obj kinds.Object, aside string) kinds.Object {
	out := make(kinds.Object, len(obj))
	for key, v := range obj {
		m, isMap := v.(map[string]any)
		if key != "metadata" || !isMap {
			out[key] = tree.Copy(v)
			continue
		}
		kept := make(map[string]any, len(m))
		for key, v := range m {
			if key != aside {
				kept[key] = tree.Copy(v)
			}
		}
		out[key] = kept
	}
	return out
}

func (p *requestPatch) merge(s *compiled.Schema, obj kinds.Object) (kinds.Object, error) {
	var err error
	switch p.kind {
	case types.JSONPatchType:
		obj, err = p.ops.Apply(obj)
	case types.MergePatchType:
		obj = patch.Merge(obj, tree.CopyMap(p.tree))
	default:
		obj, err = patch.Strategic(obj, tree.CopyMap(p.tree), s.Root())
	}
	return obj, patchError(err)
}

// patchError is what a client sees of a patch that could not be applied.
func patchError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, patch.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	case errors.Is(err, patch.ErrAmbiguous):
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
			field.Forbidden(field.NewPath("patch"), err.Error())})
	case errors.Is(err, patch.ErrNotApplicable), err == mergepatch.ErrNoListOfLists,
		err == mergepatch.ErrPatchContentNotMatchRetainKeys:
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "",
			err.Error(), 0, false)
	case errors.Is(err, patch.ErrUnordered), slices.Contains(malformed, err):
		return apierrors.NewBadRequest(err.Error())
	default:
		return unreasoned(err)
	}
}

// malformed are the mistakes in a strategic patch that upstream tells clients of as theirs.
var malformed = []error{mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList,
	mergepatch.ErrBadPatchFormatForRetainKeys, mergepatch.ErrBadPatchFormatForSetElementOrderList,
	mergepatch.ErrUnsupportedStrategicMergePatchFormat}

// invalid words what is wrong with a patched object, and shows it as upstream does: the object for
// a JSON or merge patch, the patch for a strategic one.
func (p *requestPatch) invalid(t *write, s *compiled.Schema, live kinds.Object, err error) error {
	var shown, text string
	if p.kind == types.StrategicMergePatchType {
		shown, text = fmt.Sprintf("%+v", p.tree), convertedText(err)
	} else {
		shown, text = p.shown(t, s, live), err.Error()
		if wrong := (*compiled.Error)(nil); errors.As(err, &wrong) && wrong.Head {
			text = "couldn't get version/kind; json parse error: " + text
		}
	}
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), shown, text)})
}

// convertedText words what is wrong with a tree as Kubernetes' converter does.
func convertedText(err error) string {
	if wrong := (*compiled.Error)(nil); errors.As(err, &wrong) {
		return wrong.Converted()
	}
	return err.Error()
}

// shown is the patched object as text. The library is used for it, and only here, because it leaves
// what the patch does not touch in its order, which of declared kinds is that of names.
func (p *requestPatch) shown(t *write, s *compiled.Schema, live kinds.Object) string {
	var op store.Op
	op.Value, op.RevisionAt = s.Append(nil, live)
	text := stamped(op, revisionText(t.base))
	var err error
	if t.kind.Declared {
		if text, err = sortedJSON(text); err != nil {
			return ""
		}
	}
	if p.kind == types.MergePatchType {
		text, err = jsonpatch.MergePatch(text, p.data)
	} else {
		var ops jsonpatch.Patch
		if ops, err = jsonpatch.DecodePatch(p.data); err == nil {
			text, err = ops.Apply(text)
		}
	}
	if err != nil {
		return ""
	}
	return string(text)
}

// sortedJSON sorts the names of an object.
func sortedJSON(text []byte) ([]byte, error) {
	var obj map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &obj); err != nil {
		return nil, err
	}
	return json.Marshal(obj)
}
