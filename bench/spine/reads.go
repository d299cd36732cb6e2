package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A room of its own, so that what the other loads made is in none of the answers.
const listed = "/api/v1/namespaces/kube-public/pods"

const (
	listObjects  = 10_000
	listsMeasure = 10
	watchers     = 1000
	watchWrites  = 50
)

// lists returns the median time of a LIST of all that fill made.
func (l *load) lists(ctx context.Context) (time.Duration, error) {
	var took []time.Duration
	for range listsMeasure {
		began := time.Now()
		if err := l.send(ctx, http.MethodGet, listed, nil, http.StatusOK); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// pod is one of about 3 KB that nobody schedules.
func pod(n int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"l-%d","labels":{"app":"web"}},"spec":{`+
		`"schedulerName":"nobody","containers":[{"name":"c","image":"example.com/app:1","env":[%s]}]}}`, n,
		strings.Repeat(`{"name":"A","value":"a value of the usual length, more or less"},`, 25)+`{"name":"B","value":"b"}`)
}

// fill makes pods in a namespace.
func (l *load) fill(ctx context.Context) error {
	var group sync.WaitGroup
	failed := make([]error, l.set.clients)
	for client := range l.set.clients {
		group.Go(func() {
			for n := client; n < listObjects && failed[client] == nil; n += l.set.clients {
				failed[client] = l.send(ctx, http.MethodPost, listed, pod(n), http.StatusCreated)
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

// watches opens a thousand watches, each on a connection of its own, and returns how many events a
// second reach them when one object is written again and again, each time once all have been told. It
// calls opened when all are open.
func (l *load) watches(ctx context.Context, opened func()) (perSecond float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const one = "/api/v1/namespaces/kube-system/configmaps"
	if err := l.send(ctx, http.MethodPost, one, configMap("watched", 500), http.StatusCreated); err != nil {
		return 0, err
	}
	told := make(chan error, watchers)
	opening := make(chan struct{}, l.set.clients) // a server gives a connection seconds to begin
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for range watchers {
		group.Go(func() {
			if err := l.watch(ctx, one, opening, told); err != nil && ctx.Err() == nil {
				told <- err
			}
		})
	}
	if err := awaitAll(ctx, told); err != nil { // the object as it is
		return 0, err
	}
	opened()
	began := time.Now()
	for n := range watchWrites {
		patch := []byte(`{"data":{"n":"` + strconv.Itoa(n) + `"}}`)
		if err := l.send(ctx, http.MethodPatch, one+"/watched", patch, http.StatusOK); err != nil {
			return 0, err
		}
		if err := awaitAll(ctx, told); err != nil {
			return 0, err
		}
	}
	return watchers * watchWrites / time.Since(began).Seconds(), nil
}

func (l *load) watch(ctx context.Context, path string, opening chan struct{}, told chan<- error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.host+path+"?watch=1&fieldSelector=metadata.name=watched", nil)
	if err != nil {
		return err
	}
	opening <- struct{}{}
	resp, err := l.web.Do(req)
	<-opening
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		if _, err := lines.ReadSlice('\n'); err != nil {
			return err
		}
		told <- nil
	}
}

func awaitAll(ctx context.Context, told <-chan error) error {
	for range watchers {
		select {
		case err := <-told:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
