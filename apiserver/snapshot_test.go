package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

func TestSnapshotIsWholeAndNotForEverybody(t *testing.T) {
	s := newSite(t)
	s.configMap("a", "")
	r := s.get(apiserver.SnapshotPath)
	revision, objects, err := embedded.Verify("answer", strings.NewReader(r.text))
	if r.code != http.StatusOK || err != nil || revision != s.store.Revision() || objects < 2 {
		t.Errorf("%d: %d objects at %d, %v", r.code, objects, revision, err)
	}
	s.client = &http.Client{Transport: s.server.Transport(&authn.User{Name: "somebody"})}
	if r := s.get(apiserver.SnapshotPath); r.code != http.StatusForbidden {
		t.Errorf("somebody is answered %d", r.code)
	}
}
