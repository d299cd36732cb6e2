package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/store"
)

// damage puts the mark of an unreadable value in place of a configmap.
func (s *site) damage(name string) {
	s.t.Helper()
	_, err := s.store.Commit(s.t.Context(), store.Op{
		Key: store.Key{Resource: "configmaps", Path: "default/" + name}, Type: store.Put, Expect: store.Any,
		Value: store.MarkUnreadable("its checksum is wrong"), RevisionAt: -1,
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// fails expects an answer's code, reason and a part of its message, and returns its causes.
func (s *site) fails(r reply, code int, reason, part string) (causes []string) {
	s.t.Helper()
	o := r.object(s.t)
	if r.code != code || o.str("reason") != reason || !strings.Contains(o.str("message"), part) {
		s.t.Errorf("%d %s, want %d %s with %q", r.code, r.text, code, reason, part)
	}
	list, _ := o.at("details.causes").([]any)
	for _, cause := range list {
		c := object(cause.(map[string]any))
		causes = append(causes, c.str("field")+": "+c.str("message"))
	}
	return causes
}

const unsafely = `{"kind":"DeleteOptions","apiVersion":"v1","ignoreStoreReadErrorWithClusterBreakingPotential":true}`

// TestB020_UnreadableObjectBlocksNoOther has a value that cannot be read: what would show it fails and
// names it, all else is served, and it can be deleted by who says so and may do so.
func TestB020_UnreadableObjectBlocksNoOther(t *testing.T) {
	onlyDeletes := authz.Func(func(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
		if a.User.Name == "admin" || a.Verb == "delete" {
			return authz.Allow, "", nil
		}
		return authz.NoOpinion, "", nil
	})
	s := newSite(t, func(o *apiserver.Options) { o.Authorizer = onlyDeletes })
	for _, name := range []string{"a", "bad", "c"} {
		s.configMap(name, "")
	}
	s.damage("bad")

	const storageRead = "StorageReadError"
	s.fails(s.get(cm+"/bad"), 500, storageRead, "its checksum is wrong")
	want := []string{"configmaps/default/bad: its checksum is wrong"}
	for _, query := range []string{"", "?limit=2", "?labelSelector=x=y", "?fieldSelector=metadata.name=bad"} {
		if diff := cmp.Diff(want, s.fails(s.get(cm+query), 500, storageRead, "configmaps/default/bad")); diff != "" {
			t.Errorf("causes of a list with %q (-want +got):\n%s", query, diff)
		}
	}
	for _, accept := range []string{"application/json;as=Table;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf,application/json"} {
		if r := s.get(cm, "Accept", accept); r.code != 500 {
			t.Errorf("a list as %s: %d", accept, r.code)
		}
	}
	s.must("GET", cm+"/a", "")
	s.must("PATCH", cm+"/c", `{"data":{"k":"w"}}`, "Content-Type", "application/merge-patch+json")
	s.must("GET", "/api/v1/namespaces/kube-system/configmaps", "")
	s.must("GET", "/api/v1/namespaces/default/secrets", "")
	s.fails(s.ask("PATCH", cm+"/bad", `{"data":{"k":"w"}}`, "Content-Type", "application/merge-patch+json"), 500, storageRead, "")
	s.fails(s.ask("POST", cm, `{"metadata":{"name":"bad"}}`), 409, "AlreadyExists", "")

	s.fails(s.ask("DELETE", cm+"/bad", ""), 500, storageRead, "its checksum is wrong")
	s.fails(s.ask("DELETE", cm+"/a", unsafely), 422, "Invalid", "can be read")
	s.fails(s.ask("DELETE", cm, unsafely), 422, "Invalid", "one object at a time")
	jane := &site{t: t, store: s.store, client: &http.Client{Transport: s.server.Transport(&authn.User{Name: "jane"})}}
	jane.fails(jane.ask("DELETE", cm+"/bad", unsafely), 403, "Forbidden", "cannot unsafe-delete-ignore-read-errors")
}

// TestB020_ListNamesAHundred bounds what an answer says.
func TestB020_ListNamesAHundred(t *testing.T) {
	s := newSite(t)
	for i := range 150 {
		s.damage(fmt.Sprintf("bad-%03d", i))
	}
	causes := s.fails(s.get(cm), 500, "StorageReadError", "150 stored configmaps cannot be read, the first is configmaps/default/bad-000")
	if len(causes) != 101 || causes[100] != ": 50 more are not named" {
		t.Errorf("%d causes, the last is %q", len(causes), causes[len(causes)-1])
	}
}

// TestB020_UnsafeDeleteMakesWatchersList deletes what cannot be read. Nobody can be shown what it was.
func TestB020_UnsafeDeleteMakesWatchersList(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.configMap("a", "")
		s.damage("bad")
		before := fmt.Sprint(s.store.Revision())
		w := s.watch(cm + "?watch=1&resourceVersion=" + before)
		s.watch(cm+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan").expect("ADDED a@"+
			s.must("GET", cm+"/a", "").revision(), "ERROR 500 StorageReadError", "end")
		if r := s.ask("DELETE", cm+"/bad?ignoreStoreReadErrorWithClusterBreakingPotential=true&dryRun=All", ""); r.code != 200 {
			t.Errorf("dry run: %d %s", r.code, r.text)
		}
		w.expect()
		s.must("DELETE", cm+"/bad", unsafely)
		w.expect("ERROR 410 Expired", "end")
		if names := s.must("GET", cm, "").names(); names != "a kube-root-ca.crt" && names != "a" {
			t.Errorf("the list has %s", names)
		}
	})
}
