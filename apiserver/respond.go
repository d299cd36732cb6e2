package apiserver

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// response remembers whether an answer has begun, and with what code, for metrics and so that an
// error after the first byte is not answered twice.
type response struct {
	http.ResponseWriter
	code  int
	bytes int64
}

func (w *response) WriteHeader(code int) {
	if w.code == 0 && code >= 200 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *response) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach what is below.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// warn adds a Warning header. It must be called before the answer begins.
func warn(w http.ResponseWriter, text string) {
	w.Header().Add("Warning", "299 - "+strconv.QuoteToASCII(text))
}

// respond answers with one object, given as its stored bytes, in the form the client accepts:
// as it is, as YAML, as a Table or as PartialObjectMetadata.
func (s *Server) respond(w http.ResponseWriter, r *request, code int, value []byte) error {
	media, err := negotiate(r)
	if err != nil {
		return err
	}
	body, err := s.render(media, r, value)
	if err != nil {
		return err
	}
	return writeBody(w, r, media, code, body, formOf(r, media))
}

// respondJSON answers with a document that is not an object of the request's kind: a Status, a
// Scale, a review. Tables of them do not exist: a client that wants one is refused, or gets its
// next choice.
func (s *Server) respondJSON(w http.ResponseWriter, r *request, code int, doc any) error {
	media, err := negotiatePlain(r)
	if err != nil {
		return err
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return writeBody(w, r, media, code, body, formOfDocument(doc))
}

// writeBody writes a JSON document in the chosen format; of is its form in protobuf, nil if it has
// none.
func writeBody(w http.ResponseWriter, r *request, media mediaType, code int, body []byte, of *form) error {
	body, err := media.encode(body, of)
	if err != nil {
		return err
	}
	var end []byte
	if media.encoding == asJSON && !media.pretty {
		end = newline
	}
	h := w.Header()
	h.Set("Content-Type", media.contentType())
	h.Set("Content-Length", strconv.Itoa(len(body)+len(end)))
	w.WriteHeader(code)
	return aborted(writeJoined(w, body, end))
}

// writeJoined writes two pieces at once if they are small: behind a document that does not fit into
// the transport's buffer, the end of its line would be a record of TLS and a system call of its own.
func writeJoined(w io.Writer, body, end []byte) error {
	if len(body)+len(end) > 2*streamBytes {
		if _, err := w.Write(body); err != nil {
			return err
		}
		_, err := w.Write(end)
		return err
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	*buf = append(append((*buf)[:0], body...), end...)
	_, err := w.Write(*buf)
	return err
}

var newline = []byte("\n")

// abortedError says that the client is gone in the middle of an answer; there is nobody to tell.
type abortedError struct{ err error }

func (e abortedError) Error() string { return e.err.Error() }
func (e abortedError) Unwrap() error { return e.err }

func aborted(err error) error {
	if err == nil {
		return nil
	}
	return abortedError{err}
}

// respondError answers with the Status that an error is, in the encoding that the client accepts.
func (s *Server) respondError(w *response, r *request, err error) {
	if gone := (abortedError{}); errors.As(err, &gone) {
		return
	}
	if w.code != 0 {
		// Nobody must take half an answer for a whole one.
		s.log.Error("answer broken off", "method", r.http.Method, "path", r.http.URL.Path, "err", err)
		panic(http.ErrAbortHandler)
	}
	if page := (pageError{}); errors.As(err, &page) {
		http.Error(w, page.Error(), http.StatusNotFound)
		return
	}
	failure := asStatus(err)
	st := failure.ErrStatus
	st.Kind, st.APIVersion = "Status", "v1"
	if isFault(&st) {
		s.log.Error("request failed", "method", r.http.Method, "path", r.http.URL.Path, "err", err)
	}
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	media := mediaFor(r)
	body, err := json.Marshal(&st)
	if err != nil {
		body = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`)
	}
	// The client may be gone; then there is nothing more to do.
	_ = writeBody(w, r, media, int(st.Code), body, formOfMeta("Status"))
	drain(r)
}

// drain reads a little of an unread body, so that the connection can be used again.
func drain(r *request) {
	const most = 64 << 10
	if r.http.Body != nil {
		io.CopyN(io.Discard, r.http.Body, most)
	}
}

// recoverPanic turns a handler's panic into a 500, or, if the answer has begun, into a broken
// connection, so that nobody takes half an answer for a whole one.
func (s *Server) recoverPanic(w *response, r *request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.metrics.panics.Inc()
	s.log.Error("panic in a handler", "method", r.http.Method, "path", r.http.URL.Path,
		"panic", p, "stack", string(debug.Stack()))
	if w.code != 0 {
		panic(http.ErrAbortHandler)
	}
	s.respondError(w, r, apierrors.NewInternalError(errors.New("the request made the server panic")))
}

// isPretty says whether a person reads the answer.
func isPretty(r *request) bool {
	if values, ok := r.query["pretty"]; ok && len(values) > 0 {
		return boolParam(r.query, "pretty")
	}
	agent := r.http.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") ||
		strings.HasPrefix(agent, "Mozilla/5.0")
}

// mustMarshal is json.Marshal for documents that always have a JSON form.
func mustMarshal(doc any) []byte {
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return text
}
