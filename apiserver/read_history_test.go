package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

// happened returns the events of a history, "TYPE name@revision user verb value<previous".
func (s *site) happened(path string) (all []string, o object) {
	s.t.Helper()
	o = s.must("GET", apiserver.HistoryPath+path, "")
	items, _ := o["items"].([]any)
	for _, item := range items {
		i := object(item.(map[string]any))
		text := fmt.Sprintf("%s %s@%s %s %s %s", i.str("type"), i.str("object.metadata.name"), i.str("revision"),
			i.str("origin.user"), i.str("origin.verb"), i.str("object.data.k"))
		if before := i.str("previous.data.k"); before != "" {
			text += "<" + before
		}
		all = append(all, text)
	}
	return all, o
}

func TestHistoryTellsWhoDidWhat(t *testing.T) {
	s := newSite(t)
	a := s.configMap("a", "").revision()
	s.configMap("ab", "")
	changed := s.must("PATCH", cm+"/a", `{"data":{"k":"w"}}`, "Content-Type", merge).revision()
	s.must("DELETE", cm+"/a", "")
	gone := fmt.Sprint(s.store.Revision())
	want := []string{
		"ADDED a@" + a + " admin create v",
		"MODIFIED a@" + changed + " admin patch w",
		"DELETED a@" + gone + " admin delete w",
	}
	got, o := s.happened(cm + "/a")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	first := object(o["items"].([]any)[0].(map[string]any))
	if at := first.str("origin.time"); at == "" || at != first.str("object.metadata.creationTimestamp") {
		t.Errorf("it was created at %q, want the creation timestamp of %v", at, first)
	}
	if o.revision() != gone || o.at("metadata.more") != false {
		t.Errorf("the history reaches %s, more: %v", o.revision(), o.at("metadata.more"))
	}
	got, _ = s.happened(cm + "/a?previous=true&from=" + a + "&to=" + changed)
	if diff := cmp.Diff([]string{want[1] + "<v"}, got); diff != "" {
		t.Error(diff)
	}
	if got, _ = s.happened(cm); len(got) < 4 {
		t.Errorf("of the collection there is only %v", got)
	}
}

// A page ends with a whole revision, though it then has more than was asked for: the next begins after it.
func TestHistoryPagesEndWithARevision(t *testing.T) {
	s := newSite(t)
	from := s.configMap("before", "").revision()
	s.must("POST", apiserver.AtomicPath, operations(
		"create "+configMap("a", "1"), "create "+configMap("b", "1"), "create "+configMap("c", "1")))
	s.configMap("d", "")
	var names []string
	for more, pages := true, 0; more && pages < 5; pages++ {
		page, o := s.happened(cm + "?limit=2&from=" + from)
		for _, text := range page {
			name, _, _ := strings.Cut(text, "@")
			names = append(names, name)
		}
		from, more = o.revision(), o.at("metadata.more") == true
	}
	if diff := cmp.Diff([]string{"ADDED a", "ADDED b", "ADDED c", "ADDED d"}, names); diff != "" {
		t.Error(diff)
	}
}

// A history of more than the log gives in one go is whole, and so is the end of what it says it reaches.
func TestHistoryIsAsLongAsItSays(t *testing.T) {
	s := newSite(t)
	from := s.configMap("a", "").revision()
	const changes = 400
	for i := range changes {
		s.must("PATCH", cm+"/a", fmt.Sprintf(`{"data":{"k":"%d"}}`, i), "Content-Type", merge)
	}
	got, o := s.happened(cm + "/a?from=" + from)
	if len(got) != changes || o.at("metadata.more") != false {
		t.Errorf("%d events of %d, more: %v", len(got), changes, o.at("metadata.more"))
	}
}

func TestHistoryIsPaged(t *testing.T) {
	s := newSite(t)
	from := fmt.Sprint(s.store.Revision())
	var want, got []string
	for i := range 7 {
		revision := s.configMap(fmt.Sprint("c", i), "").revision()
		want = append(want, fmt.Sprintf("ADDED c%d@%s admin create v", i, revision))
	}
	for more := true; more; {
		page, o := s.happened(cm + "?limit=3&from=" + from)
		got = append(got, page...)
		from, more = o.revision(), o.at("metadata.more") == true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHistoryRefusals(t *testing.T) {
	s := newSite(t)
	first := s.configMap("a", "").revision()
	s.configMap("b", "")
	if err := s.store.Compact(t.Context(), s.store.Revision()); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]int{
		"?from=" + first: http.StatusGone, "?to=1000000": http.StatusGatewayTimeout, "?from=x": 400,
		"?limit=0": 400, "?limit=501": 400, "?from=1000000": 400, "/status": 404,
	} {
		if r := s.get(apiserver.HistoryPath + cm + "/a" + query); r.code != want {
			t.Errorf("%s: %d, want %d: %s", query, r.code, want, r.text)
		}
	}
	if r := s.ask("POST", apiserver.HistoryPath+cm, "{}"); r.code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", r.code)
	}
	s.client = &http.Client{Transport: s.server.Transport(&authn.User{Name: "somebody"})}
	r := s.get(apiserver.HistoryPath + cm + "/a")
	if r.code != http.StatusForbidden || !strings.Contains(r.text, `cannot get resource \"configmaps\"`) {
		t.Errorf("somebody: %d %s", r.code, r.text)
	}
}
