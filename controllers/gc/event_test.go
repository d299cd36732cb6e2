package gc_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/setpoint-dev/setpoint/cache/wire"
	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/gc"
)

// busy is a server on which one object changes again and again: it answers a list with nothing, the
// first watch with all changes, and the second, which is opened when all have been read, not at all.
type busy struct {
	changes  int
	watched  bool
	reopened chan string // the revision that the second watch begins at
}

func (b *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	var body io.Reader = strings.NewReader(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",` +
		`"metadata":{"resourceVersion":"1"},"items":[]}`)
	query := r.URL.Query()
	switch {
	case query.Get("watch") == "":
	case !b.watched:
		b.watched = true
		body = &changes{left: b.changes, revision: 1}
	default:
		b.reopened <- query.Get("resourceVersion")
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body), Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}}, nil
}

// changes is the text of so many changes of a pod that a replica set owns.
type changes struct {
	left, revision int
	text           string
}

func (c *changes) Read(p []byte) (int, error) {
	if c.text == "" {
		if c.left == 0 {
			return 0, io.EOF
		}
		c.left--
		c.revision++
		c.text = fmt.Sprintf(changeOfAPod, c.revision)
	}
	n := copy(p, c.text)
	c.text = c.text[n:]
	return n, nil
}

const changeOfAPod = `{"type":"MODIFIED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` +
	`"metadata":{"name":"web-5d9c-x2x9k","generateName":"web-5d9c-","namespace":"default",` +
	`"uid":"4f8c2a52-7d40-4a4b-b7d6-5f4bb4b3c9f2","resourceVersion":"%d","generation":1,` +
	`"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"web","pod-template-hash":"5d9c"},` +
	`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d9c",` +
	`"uid":"0b1f3c3e-5b0e-4b0b-9d2c-0d6f7f1f2a11","controller":true,"blockOwnerDeletion":true}],` +
	`"managedFields":[{"manager":"replicaset-controller","operation":"Update","apiVersion":"v1",` +
	`"time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{}},` +
	`"f:ownerReferences":{".":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{}}}}}},` +
	`{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:01Z","fieldsType":"FieldsV1",` +
	`"fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:status":{}}},"f:phase":{}}},` +
	`"subresource":"status"}]}}}` + "\n"

// collect runs a collector on a busy server until it has read all changes, and returns the revision
// at which it goes on.
func collect(t testing.TB, changes int) (revision string) {
	server := &busy{changes: changes, reopened: make(chan string)}
	config := &rest.Config{Host: "http://server", Transport: server}
	meta, err := wire.Metadata(config, &http.Client{Transport: server})
	if err != nil {
		t.Fatal(err)
	}
	pods := controllertest.Resource{GroupVersionResource: mapsGVR, Kind: "Pod", Namespaced: true}
	c := gc.NewCollector(gc.Config{
		Metadata: meta, Discovery: controllertest.NewMetadata(pods), Clock: clock.RealClock{},
		Log: slog.New(slog.DiscardHandler), Events: events.NewFakeRecorder(1), Rediscover: time.Hour,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Start(ctx) }()
	revision = <-server.reopened
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return revision
}

func TestWatchGoesOnWhereItEnded(t *testing.T) {
	if revision := collect(t, 3); revision != "4" {
		t.Errorf("after changes up to revision 4 the next watch begins at %q", revision)
	}
}

// BenchmarkEvent is what one event of a watch takes, from the text to the graph. Every write of any
// kind passes here.
func BenchmarkEvent(b *testing.B) {
	b.ReportAllocs()
	collect(b, b.N)
}
