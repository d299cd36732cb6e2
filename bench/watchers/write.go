package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// writers are how many write side by side; the rate is theirs together.
const writers = 8

// writeAll writes objects at the rate for the length, and samples meanwhile.
func (b *bench) writeAll(ctx context.Context) (writes int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	var next atomic.Int64
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for ctx.Err() == nil && time.Since(began) < b.set.length {
				n := int(next.Add(1))
				if b.set.rate > 0 {
					time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(b.set.rate))))
				}
				if err := b.write(ctx, n); err != nil {
					cancel(err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { group.Wait(); close(ended) }()
	for tick := time.Tick(b.set.length / 6); ; {
		select {
		case <-tick:
			b.sample(fmt.Sprintf("after %v", time.Since(began).Round(time.Second)))
		case <-ended:
			return int(next.Load()), context.Cause(ctx)
		}
	}
}

// write makes or changes the n-th object; the event says when that began.
func (b *bench) write(ctx context.Context, n int) error {
	name := fmt.Sprint("o-", n%b.set.objects)
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"at":"%d","fill":%q}}`,
		name, time.Now().UnixNano(), strings.Repeat("x", b.set.bytes))
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, b.url+"/"+name, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if n < b.set.objects {
		req.Method, req.URL.Path = http.MethodPost, strings.TrimSuffix(req.URL.Path, "/"+name)
	}
	resp, err := b.web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return fmt.Errorf("writing %s: %s: %s", name, resp.Status, answer)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// revision returns that of the newest list.
func (b *bench) revision(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"?limit=1", nil)
	if err != nil {
		return "", err
	}
	resp, err := b.web.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	err = json.NewDecoder(resp.Body).Decode(&list)
	return list.Metadata.ResourceVersion, err
}

// socketBytes is what the kernel holds for all TCP sockets of the machine.
func socketBytes() int64 {
	stat, _ := os.ReadFile("/proc/net/sockstat")
	var pages int64
	if _, rest, ok := strings.Cut(string(stat), "\nTCP: "); ok {
		line, _, _ := strings.Cut(rest, "\n")
		if _, mem, ok := strings.Cut(line, "mem "); ok {
			fmt.Sscan(mem, &pages)
		}
	}
	return pages * int64(os.Getpagesize())
}
