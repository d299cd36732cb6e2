package main

import (
	"bytes"
	"context"
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

// gets reads one object of 3 KB for the length of the load and returns how often a second.
func (l *load) gets(ctx context.Context) (perSecond float64, failures int, err error) {
	if err := l.send(ctx, http.MethodPost, configMaps, configMap("big", 2900), http.StatusCreated); err != nil {
		return 0, 0, err
	}
	return l.run(ctx, func(int, int) error {
		return l.send(ctx, http.MethodGet, configMaps+"/big", nil, http.StatusOK)
	})
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
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := l.web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status, answer)
	}
	return err
}
