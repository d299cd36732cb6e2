package apiserver

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/apiserver/cbor"
	"github.com/setpoint-dev/setpoint/kinds"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// bodyBytesMax bounds a request's body, as upstream does. An object is stored and sent whole, so
// this also bounds what one object can cost every reader.
const bodyBytesMax = 3 << 20

// readBody reads the whole body. Possible errors: 413.
func readBody(r *request) ([]byte, error) {
	if r.http.ContentLength > bodyBytesMax {
		return nil, errBodyTooLarge()
	}
	// Room for what is said to come, and one more to meet the end without growing; but not for much
	// that only was promised.
	const promised = 64 << 10
	buf := make([]byte, 0, min(max(r.http.ContentLength, 0), promised)+1)
	body := io.LimitReader(r.http.Body, bodyBytesMax+1)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if len(buf) > bodyBytesMax {
			return nil, errBodyTooLarge()
		}
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, apierrors.NewBadRequest("the body could not be read: " + err.Error())
		}
	}
}

func errBodyTooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", bodyBytesMax))
}

// bodyType returns the media type of the body; none given is JSON. Possible errors: 415.
func bodyType(r *request) (string, error) {
	header := r.http.Header.Get("Content-Type")
	if header == "" || header == jsonType {
		return jsonType, nil
	}
	kind, _, err := mime.ParseMediaType(header)
	if err == nil {
		switch kind {
		case jsonType, yamlType, protobufType, cborType:
			return kind, nil
		}
	}
	return "", errBodyType(mediaTypes)
}

func errBodyType(accepted string) error {
	return status(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+accepted)
}

// body is a request's object before it is anybody's: which type it must be, and the text.
type body struct {
	gvk    schema.GroupVersionKind
	kinds  *kinds.Set // in which a body of another kind is looked for
	schema *compiled.Schema
	media  string
	data   []byte
	// declared says that clients know the type by its JSON alone, and that the body must name it.
	declared bool
}

// readObject reads the request's body as an object of a type, and begins the write that it asks for.
// Possible errors: 400, 413, 415, 422.
func (s *Server) readObject(
	w http.ResponseWriter, r *request, gvk schema.GroupVersionKind, as *compiled.Schema,
) (*body, *write, error) {
	media, err := bodyType(r)
	if err != nil {
		return nil, nil, err
	}
	data, err := readBody(r)
	if err != nil {
		return nil, nil, err
	}
	if media == protobufType && !as.HasProto() {
		return nil, nil, errBodyType("application/json, application/yaml")
	}
	t, err := s.newWrite(w, r, "")
	if err != nil {
		return nil, nil, err
	}
	declared := r.kind.Declared && as == r.kind.Schema
	return &body{gvk: gvk, kinds: r.kinds, schema: as, media: media, data: data, declared: declared}, t, nil
}

// decode turns the body into a canonical tree of the type, which the caller owns, and a list of
// what a strict reader would not accept. An apiVersion and a kind that are not given are filled in.
// Possible errors: 400 with upstream's texts.
func (b *body) decode() (obj kinds.Object, findings []string, err error) {
	if b.media == protobufType {
		return b.decodeProto()
	}
	data, findings, err := b.asJSON()
	if err != nil {
		return nil, nil, err
	}
	decoded, err := b.schema.DecodeJSON(data)
	if err != nil {
		return nil, nil, b.decodeError(data, err)
	}
	obj = decoded.Object
	if err := b.checkNamed(data, obj); err != nil {
		return nil, nil, err
	}
	if err := b.checkType(tree.Str(obj, "apiVersion"), tree.Str(obj, "kind")); err != nil {
		return nil, nil, err
	}
	obj["apiVersion"], obj["kind"] = b.gvk.GroupVersion().String(), b.gvk.Kind
	keepForgetting(data, obj)
	return obj, append(findings, decoded.Findings...), nil
}

// asJSON returns a body that is not protobuf as JSON, and what a strict reader of YAML says of it.
func (b *body) asJSON() (data []byte, findings []string, err error) {
	switch b.media {
	case cborType:
		if data, err = cbor.ToJSON(b.data); err != nil {
			return nil, nil, b.unrecognized(fmt.Errorf("unable to determine group/version/kind: %w", err))
		}
	case yamlType:
		if data, err = yaml.YAMLToJSON(b.data); err != nil {
			return nil, nil, b.unreadable(err)
		}
		if _, err := yaml.YAMLToJSONStrict(b.data); err != nil {
			findings = append(findings, strings.TrimPrefix(err.Error(), yamlPrefix))
		}
	default:
		data = b.data
	}
	return data, findings, nil
}

// yamlPrefix is what the YAML library puts before its errors.
const yamlPrefix = "error converting YAML to JSON: "

// keepForgetting gives back to an object an empty list of managedFields, which asks to forget who
// owns what, and which the canonical form does not have.
func keepForgetting(data []byte, obj kinds.Object) {
	if !bytes.Contains(data, []byte(`"managedFields"`)) || tree.Has(obj, "metadata", "managedFields") {
		return
	}
	var said map[string]any
	if json.Unmarshal(data, &said) == nil && saysNobodyOwns(said) {
		metadata(obj)["managedFields"] = []any{}
	}
}

// saysNobodyOwns says whether a tree has an empty list of managedFields.
func saysNobodyOwns(obj kinds.Object) bool {
	list, given := tree.Get(obj, "metadata", "managedFields").([]any)
	return given && len(list) == 0
}

func (b *body) decodeProto() (kinds.Object, []string, error) {
	apiVersion, kind, raw, err := compiled.Envelope(b.data)
	if err != nil {
		return nil, nil, b.unrecognized(err)
	}
	if err := b.checkType(apiVersion, kind); err != nil {
		return nil, nil, err
	}
	decoded, err := b.schema.DecodeProto(raw)
	if err != nil {
		return nil, nil, b.cannotBe(b.gvk.Kind, b.gvk.Version, err)
	}
	decoded.Object["apiVersion"], decoded.Object["kind"] = b.gvk.GroupVersion().String(), b.gvk.Kind
	return decoded.Object, decoded.Findings, nil
}

// checkNamed refuses a body that must name its type and does not, or names another version.
func (b *body) checkNamed(data []byte, obj kinds.Object) error {
	if !b.declared {
		return nil
	}
	for _, must := range []struct{ key, name string }{{"kind", "Kind"}, {"apiVersion", "apiVersion"}} {
		if tree.Str(obj, must.key) == "" {
			//lint:ignore ST1005 the text is what clients of Kubernetes know
			return b.unrecognized(fmt.Errorf("Object '%s' is missing in '%s'", must.name, data))
		}
	}
	if said, is := tree.Str(obj, "apiVersion"), b.gvk.GroupVersion().String(); said != is {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the API version in the data (%s) does not match the expected API version (%s)", said, is))
	}
	if said := tree.Str(obj, "kind"); said != b.gvk.Kind {
		return apierrors.NewInvalid(b.gvk.GroupKind(), tree.Str(obj, "metadata", "name"), field.ErrorList{
			field.Invalid(field.NewPath("kind"), said, "must be "+b.gvk.Kind)})
	}
	return nil
}

// checkType refuses a body that says it is something else.
func (b *body) checkType(apiVersion, kind string) error {
	said, err := b.said(apiVersion, kind)
	if err != nil {
		return b.unrecognized(err)
	}
	if said != b.gvk {
		return b.cannotBe(said.Kind, said.Version, b.otherKind(said, said.GroupVersion().String()))
	}
	return nil
}

// said is what a body says it is; one that says nothing is what it should be.
func (b *body) said(apiVersion, kind string) (schema.GroupVersionKind, error) {
	gv, err := schema.ParseGroupVersion(cmp.Or(apiVersion, b.gvk.GroupVersion().String()))
	return gv.WithKind(cmp.Or(kind, b.gvk.Kind)), err
}

// otherKind says what keeps a body of one kind from being another: in the words of Kubernetes' Go types,
// which name the one's package for the version and the other's for its group.
func (b *body) otherKind(said schema.GroupVersionKind, apiVersion string) error {
	if k := b.kinds.Kind(said); k == nil || k.Declared {
		return notRegistered(said.Kind, apiVersion)
	}
	return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion",
		said.Version, said.Kind, internalPackage(b.gvk.Group), b.gvk.Kind)
}

// internalPackage is what Kubernetes calls a group in its own code.
func internalPackage(group string) string {
	name, _, _ := strings.Cut(group, ".")
	return cmp.Or(name, "core")
}

// notRegistered is for a kind that nobody knows. The place in the end is what Kubernetes calls its set of kinds.
func notRegistered(kind, apiVersion string) error {
	return fmt.Errorf("no kind %q is registered for version %q in scheme %q", kind, apiVersion, "pkg/runtime/scheme.go:111")
}

// decodeError words an error of DecodeJSON. What the body says it is comes first.
func (b *body) decodeError(data []byte, err error) error {
	var wrong *compiled.Error
	if errors.As(err, &wrong) && wrong.Head {
		return b.unreadable(err)
	}
	var said struct{ APIVersion, Kind string }
	if json.Unmarshal(data, &said) == nil {
		if err := b.checkType(said.APIVersion, said.Kind); err != nil {
			return err
		}
	}
	return b.cannotBe(b.gvk.Kind, b.gvk.Version, err)
}

func (b *body) cannotBe(kind, version string, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v",
		kind, version, b.gvk.Kind, err))
}

func (b *body) unreadable(err error) error {
	return b.unrecognized(fmt.Errorf("couldn't get version/kind; json parse error: %w", err))
}

func (b *body) unrecognized(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)",
		b.gvk.Kind, err, summary(b.data)))
}

// summary shows the beginning of a body to whoever sent it.
func summary(data []byte) string {
	const most = 30
	if len(data) == 0 {
		return "<empty>"
	}
	more := ""
	if len(data) > most {
		data, more = data[:most], " ..."
	}
	if data[0] == '{' {
		return string(data) + more
	}
	return hex.EncodeToString(data) + more
}

// judge deals with what a strict reader would not accept, as the request's fieldValidation says.
func (b *body) judge(t *write, findings []string) error {
	if len(findings) == 0 || t.opts.fieldValidation == metav1.FieldValidationIgnore {
		return nil
	}
	if t.opts.fieldValidation == metav1.FieldValidationStrict {
		return b.cannotBe(b.gvk.Kind, b.gvk.Version, strictError(findings))
	}
	t.warnFindings(findings)
	return nil
}

func strictError(findings []string) error {
	return errors.New("strict decoding error: " + strings.Join(findings, ", "))
}

// warnFindings sends a warning for each finding; what YAML says about several lines is several.
func (t *write) warnFindings(findings []string) {
	for _, finding := range findings {
		finding = strings.TrimPrefix(finding, yamlPrefix)
		lines, ok := strings.CutPrefix(finding, "yaml: unmarshal errors:\n")
		if !ok {
			t.warn(finding)
			continue
		}
		for line := range strings.SplitSeq(lines, "\n") {
			t.warn(strings.TrimSpace(line))
		}
	}
}

// decodeLoosely decodes options, which every group has under its own version. The error is for the
// caller to word.
func (b *body) decodeLoosely(kind string) (kinds.Object, error) {
	said, decode, data := "", b.schema.DecodeJSON, b.data
	var err error
	switch b.media {
	case protobufType:
		if _, said, data, err = compiled.Envelope(b.data); err != nil {
			return nil, err
		}
		decode = b.schema.DecodeProto
	case cborType:
		if data, err = cbor.ToJSON(b.data); err != nil {
			return nil, err
		}
	case yamlType:
		if data, err = yaml.YAMLToJSON(b.data); err != nil {
			return nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
		}
	}
	decoded, err := decode(data)
	if err != nil {
		var wrong *compiled.Error
		if errors.As(err, &wrong) && wrong.Head {
			return nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
		}
		return nil, err
	}
	if said == "" {
		said = tree.Str(decoded.Object, "kind")
	}
	if said != "" && said != kind {
		return nil, notRegistered(said, tree.Str(decoded.Object, "apiVersion"))
	}
	return decoded.Object, nil
}
