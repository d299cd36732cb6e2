package inproc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/setpoint-dev/setpoint/apiserver/inproc"
)

func client(h http.HandlerFunc) *http.Client {
	return &http.Client{Transport: inproc.Transport(h, nil)}
}

func TestSmallAnswerIsWhole(t *testing.T) {
	c := client(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Path", r.URL.Path)
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s from %s", r.Method, body, r.RemoteAddr)
	})
	resp, err := c.Post("http://server/a/b", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(body), "POST hello from in-process"; got != want {
		t.Errorf("body %q, want %q", got, want)
	}
	if resp.Status != "418 I'm a teapot" || resp.ContentLength != int64(len(body)) || resp.Header.Get("X-Path") != "/a/b" {
		t.Errorf("answer %q, length %d, header %v", resp.Status, resp.ContentLength, resp.Header)
	}
}

func TestAnswerStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan string)
		c := client(func(w http.ResponseWriter, r *http.Request) {
			for line := range lines {
				fmt.Fprintln(w, line)
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Errorf("flush: %v", err)
				}
			}
		})
		answered := make(chan *http.Response)
		go func() {
			resp, err := c.Get("http://server/")
			if err != nil {
				t.Error(err)
			}
			answered <- resp
		}()
		lines <- "one"
		resp := <-answered
		from := bufio.NewScanner(resp.Body)
		for _, want := range []string{"one", "two", "three"} {
			if !from.Scan() || from.Text() != want {
				t.Fatalf("read %q (%v), want %q", from.Text(), from.Err(), want)
			}
			if want != "three" {
				lines <- map[string]string{"one": "two", "two": "three"}[want]
			}
		}
		close(lines)
		if from.Scan() || from.Err() != nil {
			t.Errorf("after the end: %q, %v", from.Text(), from.Err())
		}
	})
}

func TestLargeAnswerWaitsForItsReader(t *testing.T) {
	const size = 1 << 20
	c := client(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, io.LimitReader(zeros{}, size))
	})
	resp, err := c.Get("http://server/")
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if n != size || err != nil {
		t.Errorf("read %d (%v), want %d", n, err, size)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A client that goes away must end the handler, whether it has seen the head of the answer or not.
func TestCancelEndsTheHandler(t *testing.T) {
	for _, begun := range []bool{false, true} {
		t.Run(fmt.Sprintf("begun=%v", begun), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				c := client(func(w http.ResponseWriter, r *http.Request) {
					if begun {
						http.NewResponseController(w).Flush()
					}
					<-r.Context().Done()
					ended <- r.Context().Err()
				})
				ctx, cancel := context.WithCancel(t.Context())
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/", nil)
				failed := make(chan error, 1)
				go func() {
					resp, err := c.Do(req)
					if err == nil {
						_, err = io.ReadAll(resp.Body)
					}
					failed <- err
				}()
				synctest.Wait()
				cancel()
				if err := <-failed; !errors.Is(err, context.Canceled) {
					t.Errorf("the client reads %v, want %v", err, context.Canceled)
				}
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("the handler's context ends with %v", err)
				}
			})
		})
	}
}

func TestClosingTheBodyEndsTheHandler(t *testing.T) {
	ended := make(chan struct{})
	c := client(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	resp, err := c.Get("http://server/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	<-ended
}

// Half an answer must not look like a whole one.
func TestPanicBreaksTheAnswerOff(t *testing.T) {
	for _, begun := range []bool{false, true} {
		t.Run(fmt.Sprintf("begun=%v", begun), func(t *testing.T) {
			c := client(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "half")
				if begun {
					http.NewResponseController(w).Flush()
				}
				panic(http.ErrAbortHandler)
			})
			resp, err := c.Get("http://server/")
			if err == nil {
				_, err = io.ReadAll(resp.Body)
			}
			if err == nil {
				t.Error("the answer looks whole")
			}
		})
	}
}

func TestUpgrade(t *testing.T) {
	c := client(func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		line, err := buffered.ReadString('\n')
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(conn, "echo %s", line)
	})
	req, _ := http.NewRequest(http.MethodPost, "http://server/", nil)
	req.Header.Set("Upgrade", "echo")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("code %d", resp.StatusCode)
	}
	conn := resp.Body.(io.ReadWriteCloser)
	defer conn.Close()
	fmt.Fprintln(conn, "hello")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if line != "echo hello\n" || err != nil {
		t.Errorf("read %q, %v", line, err)
	}
}
