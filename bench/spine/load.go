package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A load sends requests from several clients at once and counts what is answered as it should be.
type load struct {
	web  *http.Client
	host string
	set  settings
}

const configMaps = "/api/v1/namespaces/default/configmaps"

// configMap is a config map of about the given size.
func configMap(name string, bytes int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"value":%q}}`,
		name, strings.Repeat("x", bytes))
}

// creates makes objects of 1 KB for the length of the load and returns how many a second.
func (l *load) creates(ctx context.Context) (perSecond float64, failures int, err error) {
	return l.run(ctx, func(client, n int) error {
		body := configMap(fmt.Sprintf("c-%d-%d", client, n), 900)
		return l.send(ctx, http.MethodPost, configMaps, body, http.StatusCreated)
	})
}

// makeBig makes the object that gets reads.
func (l *load) makeBig(ctx context.Context) error {
	return l.send(ctx, http.MethodPost, configMaps, configMap("big", 2900), http.StatusCreated)
}

// gets reads one object of 3 KB for the length of the load and returns how often a second.
func (l *load) gets(ctx context.Context) (perSecond float64, failures int, err error) {
	return l.run(ctx, func(int, int) error {
		return l.send(ctx, http.MethodGet, configMaps+"/big", nil, http.StatusOK)
	})
}

// makeNoops makes an object for each client of noops.
func (l *load) makeNoops(ctx context.Context) error {
	for client := range l.set.clients {
		err := l.send(ctx, http.MethodPost, configMaps, configMap(noop(client), 900), http.StatusCreated)
		if err != nil {
			return err
		}
	}
	return nil
}

func noop(client int) string { return fmt.Sprint("noop-", client) }

// noops patches objects to what they already are for the length of the load, and returns how many a
// second. An error says that they did not stay as they are.
func (l *load) noops(ctx context.Context) (perSecond float64, failures int, err error) {
	before, err := l.revision(ctx, configMaps+"/"+noop(0))
	if err != nil {
		return 0, 0, err
	}
	patch := []byte(`{"metadata":{"labels":null},"data":{"more":null}}`)
	perSecond, failures, err = l.run(ctx, func(client, _ int) error {
		return l.send(ctx, http.MethodPatch, configMaps+"/"+noop(client), patch, http.StatusOK)
	})
	if err != nil {
		return 0, 0, err
	}
	after, err := l.revision(ctx, configMaps+"/"+noop(0))
	if err == nil && after != before {
		err = fmt.Errorf("patches that change nothing moved resourceVersion from %s to %s", before, after)
	}
	return perSecond, failures, err
}

// revision returns the resourceVersion of an object.
func (l *load) revision(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.host+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := l.web.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var obj struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&obj); err != nil {
		return "", fmt.Errorf("GET %s: %s: %w", path, resp.Status, err)
	}
	return obj.Metadata.ResourceVersion, nil
}

const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

const nodes = 1000

// makeLeases makes the leases of 1,000 nodes.
func (l *load) makeLeases(ctx context.Context) error {
	for i := range nodes {
		if err := l.send(ctx, http.MethodPost, leases, lease(i, 0), http.StatusCreated); err != nil {
			return err
		}
	}
	return nil
}

// renewals renews the leases, as kubelets do, for the length of the load and returns how many a second.
func (l *load) renewals(ctx context.Context) (perSecond float64, failures int, err error) {
	each := nodes / l.set.clients // of a client
	return l.run(ctx, func(client, n int) error {
		node := client*each + n%each
		return l.send(ctx, http.MethodPatch, fmt.Sprintf("%s/node-%d", leases, node), lease(node, n), http.StatusOK)
	})
}

// lease is one of a node, in its n-th term.
func lease(node, n int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",`+
		`"metadata":{"name":"node-%d","namespace":"kube-node-lease"},"spec":{"holderIdentity":"node-%[1]d",`+
		`"leaseDurationSeconds":40,"renewTime":"2026-01-02T03:04:05.%06[2]dZ"}}`, node, n%1_000_000)
}

func (l *load) run(ctx context.Context, once func(client, n int) error) (float64, int, error) {
	var done, failed atomic.Int64
	var last atomic.Pointer[error]
	var wg sync.WaitGroup
	began := time.Now()
	for client := range l.set.clients {
		wg.Go(func() {
			for n := 0; time.Since(began) < l.set.length && ctx.Err() == nil; n++ {
				if err := once(client, n); err != nil {
					failed.Add(1)
					last.Store(&err)
					continue
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(began).Seconds()
	if done.Load() == 0 && last.Load() != nil {
		return 0, 0, *last.Load()
	}
	return float64(done.Load()) / took, int(failed.Load()), ctx.Err()
}

func (l *load) send(ctx context.Context, method, path string, body []byte, want int) error {
	req, err := http.NewRequestWithContext(ctx, method, l.host+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	switch {
	case method == http.MethodPatch:
		req.Header.Set("Content-Type", "application/merge-patch+json")
	case body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := l.web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	// What is read is not kept: on a small machine the client's garbage is the server's time.
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
