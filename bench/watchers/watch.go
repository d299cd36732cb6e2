package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func (b *bench) watch(ctx context.Context, web *http.Client) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"?watch=1&resourceVersion="+b.known, nil)
	if err != nil {
		return nil, err
	}
	resp, err := web.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, errors.New(resp.Status)
	}
	return resp, nil
}

// openStalled opens the watches that nobody reads. Their ends of the connections hold little, so that
// what is sent stays with the server.
func (b *bench) openStalled(ctx context.Context) ([]*http.Response, error) {
	transport := b.web.Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		return conn, err
	}
	opened := make([]*http.Response, b.set.stalled)
	failed := make([]error, b.set.stalled)
	var next atomic.Int64
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(opened); i = next.Add(1) - 1 {
				opened[i], failed[i] = b.watch(ctx, &http.Client{Transport: transport})
			}
		})
	}
	group.Wait()
	return opened, errors.Join(failed...)
}

// follow reads a watch until the context ends, and returns how late each event was.
func (b *bench) follow(ctx context.Context) (lags []time.Duration, err error) {
	resp, err := b.watch(ctx, b.web)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	at := []byte(`"at":"`)
	for lines := bufio.NewReaderSize(resp.Body, 64<<10); ; {
		line, err := lines.ReadSlice('\n')
		now := time.Now()
		if ctx.Err() != nil {
			return lags, nil
		}
		if err != nil {
			return nil, fmt.Errorf("a watch that was read ended: %w", err)
		}
		_, rest, _ := bytes.Cut(line, at)
		digits, _, _ := bytes.Cut(rest, []byte(`"`))
		written, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("an event that no write made: %.200s", line)
		}
		lags = append(lags, now.Sub(time.Unix(0, written)))
	}
}

// comeBack has those who did not read look at what they have, and then ask for what follows the
// revision they knew.
func (b *bench) comeBack(ctx context.Context, stalled []*http.Response) error {
	ends := map[string]int{}
	for _, resp := range stalled {
		// How much still comes does not matter: it ends, with an error event or a broken connection.
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			ends["the connection was closed"]++
		} else {
			ends["the watch was ended"]++
		}
		resp.Body.Close()
	}
	told := map[string]int{}
	for range stalled {
		resp, err := b.watch(ctx, b.web)
		if err != nil {
			told[err.Error()]++
			continue
		}
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		resp.Body.Close()
		switch {
		case err != nil:
			told[err.Error()]++
		case bytes.Contains([]byte(line), []byte(`"code":410`)):
			told["410"]++
		default:
			told["more events"]++
		}
	}
	fmt.Printf("those who did not read: %v; when they came back they were told: %v\n", ends, told)
	if told["410"] != len(stalled) {
		return errors.New("not all who came back too late were told 410")
	}
	return nil
}
