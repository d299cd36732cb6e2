package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/store"
)

const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

func leaseOf(holder string, epoch int) string {
	return fmt.Sprintf(`{"metadata":{"name":"l"},"spec":{"holderIdentity":%q,"leaseTransitions":%d}}`, holder, epoch)
}

// withFence is a client that sends a fence with each request.
func (a *api) withFence(text string) *api {
	fenced := *a
	next := a.client.Transport
	fenced.client = &http.Client{Transport: roundTrip(func(req *http.Request) (*http.Response, error) {
		req.Header.Set(apiserver.FenceHeader, text)
		return next.RoundTrip(req)
	})}
	return &fenced
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestFence_EveryWriteIsRefusedAfterTheTerm(t *testing.T) {
	a := newAPI(t)
	uid := a.want(201, "POST "+leases, "", leaseOf("me", 3)).str("metadata", "uid")
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"}}`)
	a.want(201, "POST "+deps, "", deployment)
	mine := a.withFence("default/l;uid=" + uid + ";epoch=3;holder=me")
	writes := []struct{ line, kind, body string }{
		{"POST " + cms, "", `{"metadata":{"name":"%s"}}`},
		{"PUT " + cms + "/a", "", `{"metadata":{"name":"a"},"data":{"k":"%s"}}`},
		{"PATCH " + cms + "/a", merge, `{"data":{"k":"patched %s"}}`},
		{"PATCH " + cms + "/%s-new?fieldManager=f", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%[1]s-new"}}`},
		{"PATCH " + deps + "/d/scale", merge, `{"spec":{"replicas":%[2]d}}`},
		{"PATCH " + deps + "/d/status", merge, `{"status":{"replicas":%[2]d}}`},
		{"DELETE " + cms + "/%s-new", "", `{}`},
		{"DELETE " + cms + "?labelSelector=!nothing&%s", "", `{}`},
	}
	for _, w := range writes {
		if got := mine.do(filled(w.line, "in", 4), w.kind, filled(w.body, "in", 4)); got.code >= 300 {
			t.Errorf("%s in the term: %d %s", w.line, got.code, got.text)
		}
	}
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"a"}}`)
	a.want(201, "POST "+cms, "", `{"metadata":{"name":"late-new"}}`)
	a.want(200, "PATCH "+leases+"/l", merge, leaseOf("other", 4))
	before := a.store.Revision()
	for _, w := range writes {
		line := filled(w.line, "late", 5)
		if strings.HasPrefix(line, "PATCH") && strings.Contains(line, "late-new") {
			line = strings.Replace(line, "late-new", "late-new2", 1)
			w.body = strings.ReplaceAll(w.body, "%[1]s-new", "%[1]s-new2")
		}
		got := mine.do(line, w.kind, filled(w.body, "late", 5))
		if got.code != 409 || got.causes() != "default/l" || !strings.Contains(got.text, `is held by \"other\" in epoch 4`) {
			t.Errorf("%s after the term: %d %s", w.line, got.code, got.text)
		}
	}
	if now := a.store.Revision(); now != before {
		t.Errorf("the store went from %d to %d", before, now)
	}
	mine.want(200, "GET "+cms+"/a", "", "")
}

// filled fills a text in that may have a place for a word and a number.
func filled(text, word string, number int) string {
	if !strings.Contains(text, "%") {
		return text
	}
	text = strings.NewReplacer("%[1]s", word, "%[2]d", fmt.Sprint(number), "%s", word).Replace(text)
	return text
}

func TestFence_SaysWhatIsWrong(t *testing.T) {
	a := newAPI(t)
	uid := a.want(201, "POST "+leases, "", leaseOf("me", 3)).str("metadata", "uid")
	for text, want := range map[string]string{
		"default/l;uid=x;epoch=3;holder=me":              "409 is another one of that name",
		"default/none;uid=" + uid + ";epoch=3;holder=me": "409 is gone",
		"default/l;epoch=2;holder=me":                    `409 is held by \"me\" in epoch 3`,
		"default/l;epoch=3;holder=you":                   `409 is held by \"me\" in epoch 3`,
		"default/l;epoch=3":                              "400 epoch and holder must be given",
		"default/l;epoch=x;holder=me":                    `400 epoch: want a number, found \"x\"`,
		"default/l;epoch=3;holder=me;color=red":          `400 want uid, epoch and holder, found \"color\"`,
		"l;epoch=3;holder=me":                            `400 want NAMESPACE/NAME of a lease, found \"l\"`,
		"default/l;epoch=3;holder=%zz":                   "400 holder: invalid URL escape",
	} {
		got := a.withFence(text).do("POST "+cms, "", `{"metadata":{"name":"a"}}`)
		code, words, _ := strings.Cut(want, " ")
		if fmt.Sprint(got.code) != code || !strings.Contains(got.text, words) {
			t.Errorf("%s: %d %s, want %s", text, got.code, got.text, want)
		}
	}
	a.want(200, "PATCH "+leases+"/l", merge, `{"spec":{"holderIdentity":""}}`)
	got := a.withFence("default/l;epoch=3;holder=me").want(409, "POST "+cms, "", `{"metadata":{"name":"a"}}`)
	if !strings.Contains(got.text, "is held by nobody, in epoch 3") {
		t.Error(got.text)
	}
}

// interrupted is a store in which something happens just before the next commit.
type interrupted struct {
	store.Store
	before func()
}

func (s *interrupted) Commit(ctx context.Context, ops ...store.Op) (store.Result, error) {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Store.Commit(ctx, ops...)
}

func TestFence_HoldsInTheStepThatCommits(t *testing.T) {
	var s *interrupted
	a := newAPI(t, func(o *apiserver.Options) {
		s = &interrupted{Store: o.Store}
		o.Store = s
	})
	a.want(201, "POST "+leases, "", leaseOf("me", 3))
	mine := a.withFence("default/l;epoch=3;holder=me")
	s.before = func() {
		a.want(200, "PATCH "+leases+"/l", merge, `{"spec":{"renewTime":"2026-01-02T03:04:05.000000Z"}}`)
	}
	mine.want(201, "POST "+cms, "", `{"metadata":{"name":"renewed-meanwhile"}}`)
	// A leader may write its lease in its term, too.
	mine.want(200, "PATCH "+leases+"/l", merge, `{"spec":{"renewTime":"2026-01-02T03:04:06.000000Z"}}`)
	s.before = func() { a.want(200, "PATCH "+leases+"/l", merge, leaseOf("other", 4)) }
	mine.want(409, "POST "+cms, "", `{"metadata":{"name":"lost-meanwhile"}}`)
	a.want(404, "GET "+cms+"/lost-meanwhile", "", "")
}
