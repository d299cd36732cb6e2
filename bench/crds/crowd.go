package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// crowd is clients that do something with each of the definitions.
type crowd struct {
	web  *http.Client
	host string
	set  settings
}

const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// all does something with every definition, and returns the first error of each client, if any.
func (c *crowd) all(ctx context.Context, do func(ctx context.Context, n int) error) error {
	var group sync.WaitGroup
	failed := make([]error, c.set.clients)
	for client := range failed {
		group.Go(func() {
			for n := client; n < c.set.definitions && failed[client] == nil; n += c.set.clients {
				failed[client] = do(ctx, n)
			}
		})
	}
	group.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// waits are how long each definition took from the request to install it until it was served.
type waits struct {
	*crowd
	took []time.Duration
}

func (c *crowd) waits() *waits { return &waits{c, make([]time.Duration, c.set.definitions)} }

// pollEvery is how often is asked whether a definition is served, which must not be what is measured.
const pollEvery = 5 * time.Millisecond

// install creates a definition, and asks for its objects until there is an answer.
func (w *waits) install(ctx context.Context, n int) error {
	began := time.Now()
	if err := w.want(ctx, http.StatusCreated, http.MethodPost, crds, definition(w.set, n)); err != nil {
		return err
	}
	for time.Since(began) < time.Minute {
		code, err := w.send(ctx, http.MethodGet, objects(n), nil)
		if err != nil {
			return err
		}
		if code == http.StatusOK {
			w.took[n] = time.Since(began)
			return nil
		}
		time.Sleep(pollEvery)
	}
	return fmt.Errorf("definition %d is not served within a minute", n)
}

func (w *waits) quantile(p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(w.took))
	return sorted[int(p*float64(len(sorted)-1))]
}

// use writes an object of a definition, and reads it. A server that has just begun to serve the
// definition may ask to come back.
func (c *crowd) use(ctx context.Context, n int) error {
	body := fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Kind%d","metadata":{"name":"a"},"spec":{"f0":{"a":"x"}}}`, group(n)+"/v1", n)
	for {
		code, err := c.send(ctx, http.MethodPost, objects(n), body)
		switch {
		case err == nil && code == http.StatusTooManyRequests:
			time.Sleep(pollEvery)
			continue
		case err == nil && code != http.StatusCreated:
			err = fmt.Errorf("POST %s: %d", objects(n), code)
		}
		if err != nil {
			return err
		}
		return c.want(ctx, http.StatusOK, http.MethodGet, objects(n)+"/a", nil)
	}
}

// want sends a request that must be answered by a code.
func (c *crowd) want(ctx context.Context, want int, method, path string, body []byte) error {
	code, err := c.send(ctx, method, path, body)
	if err == nil && code != want {
		err = fmt.Errorf("%s %s: %d", method, path, code)
	}
	return err
}

func (c *crowd) send(ctx context.Context, method, path string, body []byte) (code int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.host+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.web.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// perGroup is how many definitions share an API group, as those of a provider do.
const perGroup = 20

func group(n int) string { return fmt.Sprintf("g%d.example.com", n/perGroup) }

func objects(n int) string {
	return fmt.Sprintf("/apis/%s/v1/namespaces/default/kind%ds", group(n), n)
}

// definition is the n-th: with status and a column, as most are, and descriptions, which are most of
// what real ones weigh.
func definition(set settings, n int) []byte {
	description := strings.Repeat("What the field is for, in the words of who made it. ", 3)
	var fields []string
	for i := range set.fields / 3 {
		fields = append(fields, fmt.Sprintf(`"f%d":{"type":"object","description":%q,"properties":{`+
			`"a":{"type":"string","maxLength":64,"pattern":"^[a-z]*$","description":%[2]q},`+
			`"b":{"type":"array","maxItems":16,"items":{"type":"integer","minimum":0},"description":%[2]q}}}`, i, description))
	}
	return fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",`+
		`"metadata":{"name":"kind%ds.%s"},"spec":{"group":%[2]q,"scope":"Namespaced",`+
		`"names":{"plural":"kind%[1]ds","kind":"Kind%[1]d"},"versions":[{"name":"v1","served":true,"storage":true,`+
		`"subresources":{"status":{}},"additionalPrinterColumns":[{"name":"A","type":"string","jsonPath":".spec.f0.a"}],`+
		`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%[3]s},`+
		`"x-kubernetes-validations":[{"rule":"!has(self.f0) || self.f0.a != 'no'"}]},`+
		`"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`, n, group(n), strings.Join(fields, ","))
}
