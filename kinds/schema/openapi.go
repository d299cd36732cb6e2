package schema

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed openapi.json.gz
var openapiPacked []byte

var refPrefix = []byte(`"$ref":"#/components/schemas/`)

// OpenAPIDefinitions returns the OpenAPI v3 definition of each named component, and of all that
// these refer to, as JSON, by name; names that do not exist are left out. Without names it returns
// all. It unpacks 2.5 MB each time, so that nothing of it stays in memory: keep what you serve.
func OpenAPIDefinitions(names ...string) (map[string][]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(openapiPacked))
	if err != nil {
		return nil, fmt.Errorf("schema: OpenAPI definitions: %w", err)
	}
	var all map[string]json.RawMessage
	if err := json.NewDecoder(r).Decode(&all); err != nil {
		return nil, fmt.Errorf("schema: OpenAPI definitions: %w", err)
	}
	if len(names) == 0 {
		for name := range all {
			names = append(names, name)
		}
	}
	picked := make(map[string][]byte, len(names))
	for len(names) > 0 {
		name := names[len(names)-1]
		names = names[:len(names)-1]
		definition, ok := all[name]
		if !ok || picked[name] != nil {
			continue
		}
		picked[name] = bytes.Clone(definition)
		names = append(names, references(definition)...)
	}
	return picked, nil
}

// references returns the names that a definition refers to.
func references(definition []byte) (names []string) {
	for {
		at := bytes.Index(definition, refPrefix)
		if at < 0 {
			return names
		}
		definition = definition[at+len(refPrefix):]
		end := bytes.IndexByte(definition, '"')
		names = append(names, string(definition[:end]))
	}
}
