package apiserver

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"

	"github.com/setpoint-dev/setpoint/apiserver/discovery"
	"github.com/setpoint-dev/setpoint/apiserver/openapi"
	"github.com/setpoint-dev/setpoint/kinds"
)

// Clients ask for version 2 as protobuf by either name. The older has an @, which no media type may
// have: kubectl asks with it, and reads no answer that is named so.
const (
	openAPIv2TypeAsked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	openAPIv2Type      = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

// openAPICache keeps the documents of a set of kinds. Nothing is written before it is asked for:
// most servers in a test never meet kubectl.
type openAPICache struct {
	v3   func() (map[string]discovery.Document, error) // by path; the index is at ""
	v2   func() (discovery.Document, error)
	v2pb func() (discovery.Document, error)
}

func newOpenAPICache(all []*kinds.Kind) *openAPICache {
	c := &openAPICache{
		v3: sync.OnceValues(func() (map[string]discovery.Document, error) { return openAPIv3(all) }),
		v2: sync.OnceValues(func() (discovery.Document, error) {
			body, err := openapi.V2(all)
			return openAPIDocument(body), err
		}),
	}
	c.v2pb = sync.OnceValues(func() (discovery.Document, error) {
		doc, err := c.v2()
		if err != nil {
			return doc, err
		}
		body, err := openapi.V2Protobuf(doc.Body)
		return openAPIDocument(body), err
	})
	return c
}

func openAPIDocument(body []byte) discovery.Document {
	hash := sha256.Sum256(body)
	return discovery.Document{Body: body, ETag: `"` + strings.ToUpper(hex.EncodeToString(hash[:])) + `"`}
}

// openAPIv3 writes the documents of version 3 and their index, in which each has a hash in its
// address, so that a client may keep a document for as long as its address stays the same.
func openAPIv3(all []*kinds.Kind) (map[string]discovery.Document, error) {
	bodies, err := openapi.V3(all)
	if err != nil {
		return nil, err
	}
	type link struct {
		URL string `json:"serverRelativeURL"`
	}
	docs, links := map[string]discovery.Document{}, map[string]link{}
	for path, body := range bodies {
		doc := openAPIDocument(body)
		docs[path] = doc
		links[path] = link{"/openapi/v3/" + path + "?hash=" + strings.Trim(doc.ETag, `"`)}
	}
	docs[""] = openAPIDocument(mustMarshal(map[string]any{"paths": links}))
	return docs, nil
}

// openAPI answers /openapi/v2, /openapi/v3 and /openapi/v3/PATH.
func (s *Server) openAPI(w http.ResponseWriter, r *request, rest string) error {
	cache := s.documents(r).openapi
	format, path, _ := strings.Cut(rest, "/")
	switch {
	case rest == "v2":
		return s.openAPIv2(w, r, cache)
	case format != "v3":
		return errNoPage
	}
	docs, err := cache.v3()
	if err != nil {
		return err
	}
	doc, ok := docs[path]
	if !ok {
		return errNoPage
	}
	if r.query.Get("hash") == strings.Trim(doc.ETag, `"`) {
		w.Header().Set("Cache-Control", "public, immutable")
	}
	return writeDocument(w, r, jsonType, doc)
}

func (s *Server) openAPIv2(w http.ResponseWriter, r *request, cache *openAPICache) error {
	accept := r.http.Header.Get("Accept")
	if strings.Contains(accept, openAPIv2Type) || strings.Contains(accept, openAPIv2TypeAsked) {
		doc, err := cache.v2pb()
		if err != nil {
			return err
		}
		return writeDocument(w, r, openAPIv2Type, doc)
	}
	doc, err := cache.v2()
	if err != nil {
		return err
	}
	return writeDocument(w, r, jsonType, doc)
}
