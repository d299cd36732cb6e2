package apiserver_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/store"
)

// TestResourceVersionTable is docs/guarantees.md: each row of its table is a request, and what it is
// answered with.
func TestResourceVersionTable(t *testing.T) {
	page, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != 5 || cells[0] != "get" && cells[0] != "list" && cells[0] != "watch" {
			continue
		}
		rows++
		row := versionRow{cells[0], cells[1], cells[2], cells[3]}
		t.Run(strings.Join(cells[:4], " "), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				if got := strings.TrimSpace(newVersionWorld(t, s).answer(row)); got != cells[4] {
					t.Errorf("the answer is %q, the page says %q", got, cells[4])
				}
			})
		})
	}
	if rows < 50 {
		t.Errorf("only %d rows were found", rows)
	}
}

type versionRow struct{ request, revision, match, more string }

// versionWorld is a server with the past that the page describes.
type versionWorld struct {
	t     *testing.T
	site  *site
	words *strings.Replacer // from the page's words to revisions and tokens
	now   store.Revision
}

func newVersionWorld(t *testing.T, s *site) *versionWorld {
	w := &versionWorld{t: t, site: s}
	past := s.configMap("a", "").revision()
	s.configMap("gone", "")
	expired := s.must("GET", cm+"?limit=1", "").str("metadata.continue")
	old := s.configMap("unchanged", "").revision()
	token := s.must("GET", cm+"?limit=1&resourceVersion="+old+"&resourceVersionMatch=Exact", "").str("metadata.continue")
	s.must("PATCH", cm+"/a", `{"data":{"k":"changed"}}`, "Content-Type", "application/merge-patch+json")
	s.must("DELETE", cm+"/gone", "")
	s.configMap("new", "")
	oldest, err := strconv.Atoi(old)
	if err == nil {
		err = s.store.Compact(t.Context(), store.Revision(oldest))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.now = s.store.Revision()
	w.words = strings.NewReplacer("PAST", past, "OLD", old, "NOW", fmt.Sprint(w.now),
		"FUTURE", fmt.Sprint(w.now+1_000_000), "TOKEN", token, "EXPIRED", expired)
	return w
}

// answer sends the request and words what comes back as the page does.
func (w *versionWorld) answer(row versionRow) string {
	query := "?"
	if row.revision != "" {
		query += "&resourceVersion=" + row.revision
	}
	if row.match != "" {
		query += "&resourceVersionMatch=" + row.match
	}
	query = w.words.Replace(query + "&" + row.more)
	switch row.request {
	case "get":
		return w.word(w.site.get(cm+"/a"+query), map[string]string{"v": "old", "changed": "now"})
	case "list":
		return w.word(w.site.get(cm+query), map[string]string{
			"a:v gone:v unchanged:v":      "old",
			"a:changed new:v unchanged:v": "now",
			"gone:v unchanged:v":          "rest of old",
		})
	}
	watch, refusal := w.site.tryWatch(cm + query + "&watch=1")
	if watch == nil {
		return w.word(*refusal, nil)
	}
	before := watch.kinds()
	w.site.configMap("later", "")
	after := watch.kinds()
	was := map[string]string{
		"":                                  "",
		"ADDED a ADDED new ADDED unchanged": "now, then ",
		"MODIFIED a DELETED gone ADDED new": "changes after OLD, then ",
		"ERROR 410 Expired end":             "410 Expired",
		"ADDED a ADDED new ADDED unchanged BOOKMARK true": "now, bookmark, then ",
	}
	text, ok := was[before]
	if !ok {
		return "at first: " + before
	}
	switch after {
	case "ADDED later":
		return text + "changes"
	case "end":
		return text
	case "":
		return text + "changes after FUTURE" // which this one is not
	}
	return text + after
}

// word says what an answer is: the state that the map knows, or an error's code and reason.
func (w *versionWorld) word(r reply, states map[string]string) string {
	o := r.object(w.t)
	if r.code != 200 {
		return fmt.Sprint(r.code, " ", o.str("reason"))
	}
	said := o.str("data.k")
	if items, ok := o["items"].([]any); ok {
		var all []string
		for _, item := range items {
			i := object(item.(map[string]any))
			if name := i.str("metadata.name"); name != "kube-root-ca.crt" {
				all = append(all, name+":"+i.str("data.k"))
			}
		}
		said = strings.Join(all, " ")
	}
	if word, ok := states[said]; ok {
		return word
	}
	return said
}

// kinds returns what has come, without the revisions.
func (w *watching) kinds() string {
	var all []string
	for _, frame := range w.seen() {
		words := strings.Fields(frame)
		for i := range words {
			words[i], _, _ = strings.Cut(words[i], "@")
		}
		all = append(all, strings.Join(strings.Fields(strings.Join(words, " ")), " "))
	}
	return strings.Join(all, " ")
}
