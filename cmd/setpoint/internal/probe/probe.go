// Package probe is a user of a service: it sends requests all the time and counts those that fail.
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// How often the probe asks the service, and how often it asks which endpoints that has. The second
// is well within the time that an ending process of the examples goes on answering.
const (
	askEvery     = 5 * time.Millisecond
	refreshEvery = 20 * time.Millisecond
)

// A Probe sends requests to the ready endpoints of a service in namespace default, one after
// another, as a proxy would: where an endpoint takes no connection it tries the next, and while the
// control plane is away it goes on with the endpoints it knows. A request that no endpoint takes,
// or that is not answered with 200, has failed. Its methods may be called concurrently.
type Probe struct {
	client  client.Client
	service string
	wg      sync.WaitGroup

	mu           sync.Mutex // guards all below
	sent, failed int
	last         error
	endpoints    []string
	next         int
}

// Start begins to send; it ends with the context, which Wait waits for.
func Start(ctx context.Context, c client.Client, service string) *Probe {
	p := &Probe{client: c, service: service}
	p.wg.Go(func() { every(ctx, refreshEvery, p.refresh) })
	p.wg.Go(func() {
		web := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		every(ctx, askEvery, func(ctx context.Context) { p.ask(ctx, web) })
	})
	return p
}

// Wait returns when the probe has ended.
func (p *Probe) Wait() { p.wg.Wait() }

// Counts returns how many requests were sent and how many of them failed. A nil Probe sent none.
func (p *Probe) Counts() (sent, failed int) {
	if p == nil {
		return 0, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent, p.failed
}

// LastError is why the last request that failed did.
func (p *Probe) LastError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func every(ctx context.Context, d time.Duration, do func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do(ctx)
		}
	}
}

// refresh reads which endpoints are ready.
func (p *Probe) refresh(ctx context.Context) {
	var slices discoveryv1.EndpointSliceList
	err := p.client.List(ctx, &slices, client.InNamespace("default"),
		client.MatchingLabels{discoveryv1.LabelServiceName: p.service})
	if err != nil {
		return // the control plane is away: what was known goes on being used
	}
	var ready []string
	for _, slice := range slices.Items {
		for _, port := range slice.Ports {
			for _, ep := range slice.Endpoints {
				if ep.Conditions.Ready != nil && *ep.Conditions.Ready && port.Port != nil {
					ready = append(ready, net.JoinHostPort(ep.Addresses[0], strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endpoints = ready
}

// ask sends one request, if there is anybody to send it to.
func (p *Probe) ask(ctx context.Context, web *http.Client) {
	p.mu.Lock()
	p.next++
	endpoints, first := p.endpoints, p.next
	p.mu.Unlock()
	if len(endpoints) == 0 {
		return
	}
	var err error
	for i := range endpoints {
		_, err = get(ctx, web, endpoints[(first+i)%len(endpoints)])
		if !notTaken(err) {
			break
		}
	}
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent++
	if err != nil {
		p.failed++
		p.last = err
	}
}

// notTaken says whether a request was never sent, because nobody took the connection.
func notTaken(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func get(ctx context.Context, web *http.Client, endpoint string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpoint+"/", nil)
	if err != nil {
		return "", err
	}
	resp, err := web.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s", endpoint, resp.Status)
	}
	return string(body), err
}

var processID = regexp.MustCompile(`process (\d+)`)

// Process returns the id of the echo process that answers at an endpoint.
func Process(ctx context.Context, endpoint string) (int, error) {
	web := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	body, err := get(ctx, web, endpoint)
	if err != nil {
		return 0, err
	}
	found := processID.FindStringSubmatch(body)
	if found == nil {
		return 0, fmt.Errorf("%s does not say which process it is: %q", endpoint, body)
	}
	return strconv.Atoi(found[1])
}
