package apiserver

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/setpoint-dev/setpoint/apiserver/discovery"
	"github.com/setpoint-dev/setpoint/apiserver/openapi"
	"github.com/setpoint-dev/setpoint/kinds"
)

const (
	openAPIv2Type         = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	openAPIv2TypeReserved = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

// openAPICache keeps documents that were asked for. Nothing is written before that: most servers
// in a test never meet kubectl.
type openAPICache struct {
	all []*kinds.Kind

	mu   sync.Mutex
	made map[string]discovery.Document
}

func newOpenAPICache(all []*kinds.Kind) *openAPICache {
	return &openAPICache{all: all, made: map[string]discovery.Document{}}
}

// get returns the document of a name, and makes it the first time.
func (c *openAPICache) get(name string, make func() ([]byte, error)) (discovery.Document, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if doc, ok := c.made[name]; ok {
		return doc, nil
	}
	body, err := make()
	if err != nil {
		return discovery.Document{}, err
	}
	hash := sha256.Sum256(body)
	doc := discovery.Document{Body: body, ETag: `"` + strings.ToUpper(hex.EncodeToString(hash[:])) + `"`}
	c.made[name] = doc
	return doc, nil
}

func (c *openAPICache) v3(path string) (discovery.Document, error) {
	return c.get("v3/"+path, func() ([]byte, error) { return openapi.V3(c.all, path) })
}

func (c *openAPICache) v2() (discovery.Document, error) {
	return c.get("v2", func() ([]byte, error) { return openapi.V2(c.all) })
}

// index lists the documents of version 3, each with a hash in its address, so that a client may
// keep a document for as long as its address stays the same.
func (c *openAPICache) index() (discovery.Document, error) {
	type link struct {
		URL string `json:"serverRelativeURL"`
	}
	links := map[string]link{}
	for _, path := range openapi.GroupVersions(c.all) {
		doc, err := c.v3(path)
		if err != nil {
			return doc, err
		}
		links[path] = link{"/openapi/v3/" + path + "?hash=" + url.QueryEscape(strings.Trim(doc.ETag, `"`))}
	}
	return c.get("v3", func() ([]byte, error) { return mustMarshal(map[string]any{"paths": links}), nil })
}

// openAPI answers /openapi/v2, /openapi/v3 and /openapi/v3/PATH.
func (s *Server) openAPI(w http.ResponseWriter, r *request, rest string) error {
	cache := s.documents(r).openapi
	format, path, _ := strings.Cut(rest, "/")
	switch {
	case rest == "v2":
		return s.openAPIv2(w, r, cache)
	case rest == "v3":
		doc, err := cache.index()
		if err != nil {
			return err
		}
		return writeDocument(w, r, jsonType, doc)
	case format != "v3" || !slices.Contains(openapi.GroupVersions(cache.all), path):
		return errNoPage
	}
	doc, err := cache.v3(path)
	if err != nil {
		return err
	}
	if hash := r.query.Get("hash"); hash != "" && hash == strings.Trim(doc.ETag, `"`) {
		w.Header().Set("Cache-Control", "public, immutable")
	}
	return writeDocument(w, r, jsonType, doc)
}

func (s *Server) openAPIv2(w http.ResponseWriter, r *request, cache *openAPICache) error {
	doc, err := cache.v2()
	if err != nil {
		return err
	}
	accept := r.http.Header.Get("Accept")
	for _, media := range []string{openAPIv2Type, openAPIv2TypeReserved} {
		if !strings.Contains(accept, media) {
			continue
		}
		doc, err = cache.get("v2.pb", func() ([]byte, error) { return openapi.V2Protobuf(doc.Body) })
		if err != nil {
			return err
		}
		return writeDocument(w, r, media, doc)
	}
	return writeDocument(w, r, jsonType, doc)
}
