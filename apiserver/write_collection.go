package apiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// deleteCollection answers DELETE of a collection: each chosen object is deleted by itself, and the
// answer is the list as it was. Objects that go meanwhile are no error.
func (s *Server) deleteCollection(w http.ResponseWriter, r *request) error {
	media, err := negotiate(r)
	if err != nil {
		return err
	}
	chosen, err := parseListOptions(r)
	if err != nil {
		return err
	}
	opts, err := readDeleteOptions(r)
	if err != nil {
		return err
	}
	warnOfOrphans(w, r, opts)
	p, err := s.page(r, chosen)
	if err != nil {
		return err
	}
	for _, e := range p.entries {
		t := s.newDelete(w, r, opts)
		t.namespace, t.name = splitKey(r.kind, e.Key)
		if _, err := t.remove(opts); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return s.respondList(w, media, r, p)
}
