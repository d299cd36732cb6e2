package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
)

// token is what a continue token says. Clients must not look inside.
type token struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"` // of the first page, or newest
	After    string `json:"after"`
	// Of tells the lists apart that a token could be mistaken for: with another resource,
	// namespace or selector it would silently leave objects out.
	Of uint32 `json:"of"`
}

const (
	tokenVersion = "setpoint.dev/v1"
	// newest as a token's revision goes on at the newest state, whatever the first page showed.
	newest int64 = -1
)

func encodeToken(t token) string {
	t.Version = tokenVersion
	return base64.RawURLEncoding.EncodeToString(mustMarshal(t))
}

func decodeToken(text string) (token, error) {
	var t token
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return t, fmt.Errorf("continue key is not valid: %w", err)
	}
	if t.Version != tokenVersion {
		return t, fmt.Errorf("continue key is not valid: server does not recognize this encoded version %s", t.Version)
	}
	if t.Revision == 0 || t.Revision < newest {
		return t, fmt.Errorf("continue key is not valid: revision %d", t.Revision)
	}
	return t, nil
}

// check refuses a token that belongs to another list.
func (t token) check(r *request, opts *listOptions) error {
	if t.Of != opts.fingerprint(r) || !strings.HasPrefix(t.After, r.prefix()) {
		return errors.New("it was given for another resource, namespace or selector")
	}
	return nil
}

// fingerprint stands for the collection and the selectors.
func (o *listOptions) fingerprint(r *request) uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s\x00%s\x00", r.kind.GVR(), r.prefix())
	if o.selector.labels != nil {
		fmt.Fprint(h, o.selector.labels)
	}
	h.Write([]byte{0})
	if o.selector.fields != nil {
		fmt.Fprint(h, o.selector.fields)
	}
	return h.Sum32()
}
