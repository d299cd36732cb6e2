// Package inproc carries HTTP requests to a handler in the same process: a http.RoundTripper with
// no socket below. It is the transport of clients that live beside their server. Bodies stream in
// both directions; a request can be cancelled at any time; a connection can be upgraded.
//
// Everything blocks on channels and pipes only, so a client and its server can live in one
// testing/synctest bubble.
package inproc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// Transport returns a RoundTripper whose requests the handler answers. prepare, if not nil, makes
// the context that a request is served with; it is where the caller's identity is put.
//
// Each request has a goroutine of its own, which ends when the handler returns. A handler that
// panics breaks its answer off.
func Transport(h http.Handler, prepare func(context.Context) context.Context) http.RoundTripper {
	return &transport{handler: h, prepare: prepare}
}

type transport struct {
	handler http.Handler
	prepare func(context.Context) context.Context
}

// RoundTrip returns when the handler has begun to answer.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	served := t.serverRequest(ctx, req)
	w := newWriter(req, cancel)
	go func() {
		defer cancel()
		defer func() {
			broken := recover() != nil
			w.finish(broken)
			if req.Body != nil {
				req.Body.Close()
			}
		}()
		t.handler.ServeHTTP(w, served)
	}()
	select {
	case <-w.begun:
		return w.response, w.failure
	case <-req.Context().Done():
		cancel()
		w.abandon(context.Cause(req.Context()))
		return nil, context.Cause(req.Context())
	}
}

// serverRequest is the request as the handler of a server sees it.
func (t *transport) serverRequest(ctx context.Context, req *http.Request) *http.Request {
	if t.prepare != nil {
		ctx = t.prepare(ctx)
	}
	served := req.WithContext(ctx)
	served.Header = req.Header.Clone()
	served.RequestURI = req.URL.RequestURI()
	served.Proto, served.ProtoMajor, served.ProtoMinor = "HTTP/1.1", 1, 1
	served.RemoteAddr = "in-process"
	if served.Host == "" {
		served.Host = req.URL.Host
	}
	if served.Body == nil {
		served.Body = http.NoBody
	}
	return served
}

// writer is the handler's side of an answer. Small answers stay in a buffer and are whole when
// the client sees them; larger ones go through a pipe, which makes the handler wait for a reader.
type writer struct {
	req    *http.Request
	cancel context.CancelFunc
	header http.Header

	begun    chan struct{} // closed when response or failure is set
	once     sync.Once
	response *http.Response
	failure  error

	// Used by the handler's goroutine only.
	code     int
	buffered []byte
	pipe     *io.PipeWriter
	unwatch  func() bool // set with pipe
	hijacked bool
}

func newWriter(req *http.Request, cancel context.CancelFunc) *writer {
	return &writer{req: req, cancel: cancel, header: http.Header{}, begun: make(chan struct{})}
}

// bufferMax is how much of an answer is held back before it begins to stream.
const bufferMax = 64 << 10

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(code int) {
	if w.code == 0 && code >= 200 {
		w.code = code
	}
}

func (w *writer) Write(p []byte) (int, error) {
	if w.hijacked {
		return 0, http.ErrHijacked
	}
	w.WriteHeader(http.StatusOK)
	if w.pipe == nil {
		if len(w.buffered)+len(p) <= bufferMax {
			w.buffered = append(w.buffered, p...)
			return len(p), nil
		}
		if err := w.FlushError(); err != nil {
			return 0, err
		}
	}
	return w.pipe.Write(p)
}

// FlushError begins the answer, if it has not begun, and sends what was held back.
func (w *writer) FlushError() error {
	if w.hijacked {
		return http.ErrHijacked
	}
	if w.pipe == nil {
		w.WriteHeader(http.StatusOK)
		r, pipe := io.Pipe()
		w.pipe = pipe
		// Who cancels a request reads why, and does not take what he has for all there is.
		ctx := w.req.Context()
		w.unwatch = context.AfterFunc(ctx, func() { pipe.CloseWithError(context.Cause(ctx)) })
		w.begin(&body{PipeReader: r, cancel: w.cancel}, -1)
	}
	if len(w.buffered) == 0 {
		return nil
	}
	held := w.buffered
	w.buffered = nil
	_, err := w.pipe.Write(held)
	return err
}

// Flush is FlushError for those who do not ask.
func (w *writer) Flush() { _ = w.FlushError() }

// begin hands the answer to the client.
func (w *writer) begin(b io.ReadCloser, length int64) {
	w.settle(&http.Response{
		Status: strconv.Itoa(w.code) + " " + http.StatusText(w.code), StatusCode: w.code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header.Clone(), Body: b, ContentLength: length, Request: w.req,
	}, nil)
}

func (w *writer) settle(response *http.Response, err error) {
	w.once.Do(func() {
		w.response, w.failure = response, err
		close(w.begun)
	})
}

// abandon is the client's word that nobody will read the answer.
func (w *writer) abandon(err error) {
	w.settle(nil, err)
	if w.response != nil {
		w.response.Body.Close()
	}
}

// errBroken is what a client reads of an answer that its handler did not end.
var errBroken = errors.New("inproc: the answer was broken off")

// finish ends the answer when the handler has returned.
func (w *writer) finish(broken bool) {
	switch {
	case w.hijacked:
	case broken && w.pipe == nil:
		w.settle(nil, errBroken)
	case broken:
		w.unwatch()
		w.pipe.CloseWithError(errBroken)
	case w.pipe == nil:
		w.WriteHeader(http.StatusOK)
		w.begin(io.NopCloser(bytes.NewReader(w.buffered)), int64(len(w.buffered)))
	case w.unwatch(): // if not, the cancellation closes the pipe
		w.pipe.Close()
	}
}

// body is the client's side of a streamed answer. Closing it cancels the request.
type body struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *body) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// Hijack gives the handler a connection to the client, on which it writes its answer itself.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.hijacked || w.pipe != nil {
		return nil, nil, http.ErrHijacked
	}
	w.hijacked = true
	server, client := net.Pipe()
	go func() { // ends with the answer's head, or when the handler closes its side
		reader := bufio.NewReader(client)
		response, err := http.ReadResponse(reader, w.req)
		if err == nil && response.StatusCode == http.StatusSwitchingProtocols {
			response.Body = &upgraded{Conn: client, buffered: reader}
		}
		w.settle(response, err)
	}()
	return server, bufio.NewReadWriter(bufio.NewReader(server), bufio.NewWriter(server)), nil
}

// upgraded is the body of a 101: both directions of the connection.
type upgraded struct {
	net.Conn
	buffered *bufio.Reader
}

func (u *upgraded) Read(p []byte) (int, error) { return u.buffered.Read(p) }
