package apiserver

import (
	"bytes"
	"encoding/json"
	"mime"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/apiserver/cbor"
)

const (
	jsonType     = "application/json"
	yamlType     = "application/yaml"
	protobufType = "application/vnd.kubernetes.protobuf"
	cborType     = "application/cbor"
	cborSeqType  = "application/cbor-seq"

	anyApplication = "application/*"

	// mediaTypes are those that errors name. Kubernetes has CBOR behind a gate and names it only when
	// that is open; here it is for those who know to ask.
	mediaTypes = jsonType + ", " + yamlType + ", " + protobufType
	// streamTypes are those of watches.
	streamTypes = jsonType + ";stream=watch, " + protobufType + ";stream=watch"
)

// encoding is how a document is written.
type encoding uint8

const (
	asJSON encoding = iota
	asProtobuf
	asCBOR
	asYAML // the last: watches have the others
)

// mediaType is the form of an answer.
type mediaType struct {
	encoding encoding
	pretty   bool
	// as is "" for the object itself, "Table", "PartialObjectMetadata" or
	// "PartialObjectMetadataList"; version is then "v1" or "v1beta1" of meta.k8s.io.
	as, version string
}

func (m mediaType) contentType() string {
	return [...]string{jsonType, protobufType, cborType, yamlType}[m.encoding]
}

// streamType is the content type of a watch.
func (m mediaType) streamType() string {
	switch m.encoding {
	case asProtobuf:
		return protobufType + ";stream=watch"
	case asCBOR:
		return cborSeqType
	}
	return jsonType
}

// encode turns a document, given as canonical JSON, into what is sent, but for the newline that ends
// compact JSON. It may return what it got. What has no protobuf form is JSON instead: m says so then.
func (m *mediaType) encode(body []byte, of *form) ([]byte, error) {
	switch {
	case m.encoding == asYAML:
		return yaml.JSONToYAML(body)
	case m.encoding == asCBOR:
		return cbor.AppendJSON(cbor.Begin(make([]byte, 0, len(body))), body), nil
	case m.encoding == asProtobuf && of.hasProto():
		return of.appendProto(nil, body)
	case m.encoding == asProtobuf:
		m.encoding = asJSON
	}
	if m.pretty {
		var out bytes.Buffer
		err := json.Indent(&out, body, "", "  ")
		return out.Bytes(), err
	}
	return body, nil
}

// negotiate chooses among the forms that an object or a list of objects has. Possible errors: 406.
func negotiate(r *request) (mediaType, error) { return choose(r, true) }

// negotiatePlain chooses for documents that have no transformed form. Possible errors: 406.
func negotiatePlain(r *request) (mediaType, error) { return choose(r, false) }

// negotiateStream chooses for a watch, which is never YAML. Possible errors: 406.
func negotiateStream(r *request) (mediaType, error) {
	media, err := choose(r, true)
	if err == nil && media.encoding == asYAML {
		err = errStream()
	}
	media.pretty = false
	return media, err
}

// mediaFor chooses for an error, which everybody must take in some form.
func mediaFor(r *request) mediaType {
	media, err := choose(r, false)
	if err != nil {
		return mediaType{pretty: isPretty(r)}
	}
	media.as = ""
	return media
}

func choose(r *request, transforms bool) (mediaType, error) {
	header := r.http.Header["Accept"]
	if len(header) == 0 || len(header) == 1 && (header[0] == "" || header[0] == jsonType) {
		return mediaType{pretty: isPretty(r)}, nil
	}
	known := false
	for _, clause := range parseAccept(strings.Join(header, ",")) {
		media, ok := clause.media()
		if !ok || transforms && clause.kind == anyApplication { // which upstream knows for documents only
			continue
		}
		known = true
		media.as, media.version, ok = clause.transform()
		if ok && (media.as == "" || transforms) && has(r, media, transforms) {
			media.pretty = media.encoding == asJSON && isPretty(r)
			return media, nil
		}
	}
	if known {
		return mediaType{}, errTransform()
	}
	return mediaType{}, errNotAcceptable(r)
}

// accepted is one clause of an Accept header.
type accepted struct {
	kind    string // "application/json", "*/*"
	params  map[string]string
	quality float64
}

// parseAccept returns the clauses in the order of preference. What cannot be read is left out.
func parseAccept(header string) []accepted {
	var all []accepted
	for clause := range strings.SplitSeq(header, ",") {
		if !strings.Contains(clause, ";") { // what most clients send, and cheap to read
			all = append(all, accepted{kind: strings.TrimSpace(clause), quality: 1})
			continue
		}
		kind, params, err := mime.ParseMediaType(clause)
		if err != nil {
			continue
		}
		quality := 1.0
		if text, ok := params["q"]; ok {
			if quality, err = strconv.ParseFloat(text, 64); err != nil {
				quality = 1
			}
		}
		all = append(all, accepted{kind, params, quality})
	}
	slices.SortStableFunc(all, func(a, b accepted) int {
		switch {
		case a.quality > b.quality:
			return -1
		case a.quality < b.quality:
			return 1
		}
		return 0
	})
	return all
}

// has says whether what is asked for exists: a Table is text for people, and objects of a declared
// kind have no protobuf form, though their metadata has.
func has(r *request, media mediaType, transforms bool) bool {
	text := media.encoding == asJSON || media.encoding == asYAML
	switch {
	case media.as == "Table":
		return text
	case media.encoding == asProtobuf && media.as == "" && transforms:
		return r.kind.Schema.HasProto()
	}
	return true
}

func (a accepted) media() (m mediaType, ok bool) {
	switch a.kind {
	case jsonType, "*/*", anyApplication:
		return mediaType{encoding: asJSON}, true
	case yamlType:
		return mediaType{encoding: asYAML}, true
	case protobufType:
		return mediaType{encoding: asProtobuf}, true
	case cborType, cborSeqType:
		return mediaType{encoding: asCBOR}, true
	}
	return mediaType{}, false
}

// transform returns the form that the clause's parameters ask for; ok is false for one that does
// not exist.
func (a accepted) transform() (as, version string, ok bool) {
	as, version = a.params["as"], a.params["v"]
	if as == "" {
		return "", "", true
	}
	if a.params["g"] != "meta.k8s.io" || version != "v1" && version != "v1beta1" {
		return "", "", false
	}
	switch as {
	case "Table", "PartialObjectMetadata", "PartialObjectMetadataList":
		return as, version, true
	}
	return "", "", false
}
