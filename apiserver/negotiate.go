package apiserver

import (
	"bytes"
	"encoding/json"
	"mime"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	jsonType     = "application/json"
	yamlType     = "application/yaml"
	protobufType = "application/vnd.kubernetes.protobuf"
	mediaTypes   = jsonType + ", " + yamlType + ", " + protobufType
)

// mediaType is the form of an answer. Clients that accept protobuf are answered in JSON, which
// every client that can ask for protobuf also reads.
type mediaType struct {
	yaml   bool
	pretty bool
	// as is "" for the object itself, "Table", "PartialObjectMetadata" or
	// "PartialObjectMetadataList"; version is then "v1" or "v1beta1" of meta.k8s.io.
	as, version string
}

func (m mediaType) contentType() string {
	if m.yaml {
		return yamlType
	}
	return jsonType
}

// encode turns canonical JSON into what is sent, but for the newline that ends compact JSON. It
// may return what it got.
func (m mediaType) encode(body []byte) ([]byte, error) {
	switch {
	case m.yaml:
		return yaml.JSONToYAML(body)
	case m.pretty:
		var out bytes.Buffer
		err := json.Indent(&out, body, "", "  ")
		return out.Bytes(), err
	}
	return body, nil
}

// negotiate chooses among the forms an object or a list of objects has. Possible errors: 406.
func negotiate(r *request) (mediaType, error) { return choose(r, true) }

// negotiatePlain chooses for documents that have no transformed form. Possible errors: 406.
func negotiatePlain(r *request) (mediaType, error) { return choose(r, false) }

// negotiateStream chooses for a watch, which is never YAML. Possible errors: 406.
func negotiateStream(r *request) (mediaType, error) {
	media, err := choose(r, true)
	if err == nil && (media.yaml || media.as == "PartialObjectMetadataList") {
		err = errTransform()
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
		if !ok {
			continue
		}
		known = true
		if as, version, ok := clause.transform(); ok && (as == "" || transforms) {
			media.as, media.version = as, version
			media.pretty = !media.yaml && isPretty(r)
			return media, nil
		}
	}
	if known {
		return mediaType{}, errTransform()
	}
	return mediaType{}, errNotAcceptable()
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
				continue
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

func (a accepted) media() (m mediaType, ok bool) {
	switch a.kind {
	case jsonType, protobufType, "*/*", "application/*":
		return mediaType{}, true
	case yamlType:
		return mediaType{yaml: true}, true
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
