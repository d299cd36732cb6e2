package apiserver

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/setpoint-dev/setpoint/apiserver/streaming"
)

// serveMessages answers a watch or a log over a WebSocket: an event a message, or the log in pieces.
// What goes wrong before the first is answered over HTTP.
func (s *Server) serveMessages(w http.ResponseWriter, r *request, handle handler) error {
	ctx, cancel := context.WithCancel(r.http.Context())
	defer cancel()
	form := streaming.Bytes
	if r.verb == "watch" {
		form = streaming.Lines
	}
	out := streaming.NewMessages(w, r.http, form, cancel)
	defer out.Close()
	asked := r.http
	r.http = asked.WithContext(ctx)
	if r.verb == "watch" && strings.Contains(asked.Header.Get("Accept"), "application/vnd.kubernetes") ||
		strings.Contains(asked.Header.Get("Accept"), "cbor") {
		r.http.Header = asked.Header.Clone()
		r.http.Header.Set("Accept", "application/json") // a message is a line
	}
	defer func() { r.http = asked }()
	err := handle(s, out, r)
	if upgraded, refusal := out.Upgraded(); refusal != nil {
		if errors.Is(refusal, streaming.ErrGone) {
			return aborted(refusal)
		}
		return refusal
	} else if upgraded {
		switched(w)
		return aborted(err)
	}
	return err
}
