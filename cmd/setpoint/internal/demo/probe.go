package demo

import (
	"context"
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

// A probe is a user of the service: it sends requests to its ready endpoints, one after another,
// and counts those that fail. While the control plane is away it goes on with the endpoints it
// knows, as a proxy would.
type probe struct {
	sent, failed int
	last         error
	endpoints    []string
	next         int

	mu sync.Mutex // guards all of the above
	wg sync.WaitGroup
}

// run sends requests until the context is done.
func (p *probe) run(ctx context.Context, c client.Client) {
	p.wg.Go(func() {
		for pause(ctx, 20*time.Millisecond) == nil {
			p.refresh(ctx, c)
		}
	})
	p.wg.Go(func() {
		web := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		for pause(ctx, 5*time.Millisecond) == nil {
			p.ask(ctx, web)
		}
	})
}

// refresh reads which endpoints are ready.
func (p *probe) refresh(ctx context.Context, c client.Client) {
	var slices discoveryv1.EndpointSliceList
	err := c.List(ctx, &slices, client.InNamespace("default"),
		client.MatchingLabels{discoveryv1.LabelServiceName: appName})
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
func (p *probe) ask(ctx context.Context, web *http.Client) {
	p.mu.Lock()
	if len(p.endpoints) == 0 {
		p.mu.Unlock()
		return
	}
	p.next++
	endpoint := p.endpoints[p.next%len(p.endpoints)]
	p.mu.Unlock()
	_, err := get(ctx, web, endpoint)
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

// counts returns how many requests were sent and how many of them failed, since the last reset.
func (p *probe) counts() (sent, failed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent, p.failed
}

func (p *probe) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent, p.failed, p.last = 0, 0, nil
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

// process returns the id of the process that answers at an endpoint.
func process(ctx context.Context, endpoint string) (int, error) {
	body, err := get(ctx, http.DefaultClient, endpoint)
	if err != nil {
		return 0, err
	}
	found := processID.FindStringSubmatch(body)
	if found == nil {
		return 0, fmt.Errorf("%s does not say which process it is: %q", endpoint, body)
	}
	return strconv.Atoi(found[1])
}
