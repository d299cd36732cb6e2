package streaming_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/setpoint-dev/setpoint/apiserver/streaming"
)

// writes answers with each of the texts in one Write.
func writes(form streaming.Form, texts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m := streaming.NewMessages(w, r, form, func() {})
		defer m.Close()
		for _, text := range texts {
			if _, err := io.WriteString(m, text); err != nil {
				http.Error(w, err.Error(), http.StatusTeapot)
				return
			}
		}
	}
}

// A watch is an event a message, however it is written; a log is in pieces.
func TestMessages(t *testing.T) {
	for _, test := range []struct {
		name, protocol string
		form           streaming.Form
		sent, want     []string
	}{
		{"lines", "", streaming.Lines, []string{"one\ntw", "o", "\n\n"}, []string{"one", "two", ""}},
		{"lines, called something", "any.name", streaming.Lines, []string{"one\n"}, []string{"one"}},
		{"bytes", "", streaming.Bytes, []string{"one\ntw", "o"}, []string{"one\ntw", "o"}},
		{"bytes by name", "binary.k8s.io", streaming.Bytes, []string{"one"}, []string{"one"}},
		{
			"bytes in base64", "base64.binary.k8s.io", streaming.Bytes, []string{"one"},
			[]string{base64.StdEncoding.EncodeToString([]byte("one"))},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network) {
				n.handler = writes(test.form, test.sent...)
				var asked []string
				if test.protocol != "" {
					asked = []string{test.protocol}
				}
				ws := n.webSocket(t, asked...)
				var got []string
				for range test.want {
					got = append(got, message(t, ws))
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("messages (-want +got):\n%s", diff)
				}
				if code := closed(ws); code != websocket.CloseNormalClosure {
					t.Errorf("closed with %d", code)
				}
			})
		})
	}
}

// An answer that is no 200 stays HTTP, and so does the refusal of a subprotocol.
func TestMessagesRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		for protocol, want := range map[string]string{
			"":        "404 nothing here",
			"unknown": `418 unable to upgrade: none of the protocols ["unknown"] is known`,
		} {
			n.handler = writes(streaming.Bytes, "text")
			dialer := websocket.Dialer{NetDialContext: n.dial, Subprotocols: []string{protocol}}
			if protocol == "" {
				dialer.Subprotocols = nil
				n.handler = func(w http.ResponseWriter, r *http.Request) {
					m := streaming.NewMessages(w, r, streaming.Bytes, func() {})
					m.WriteHeader(http.StatusNotFound)
					io.WriteString(w, "nothing here")
					m.Close()
				}
			}
			_, resp, err := dialer.Dial("ws://server/", nil)
			if err == nil {
				t.Fatalf("%q was upgraded", protocol)
			}
			if got := fmt.Sprint(resp.StatusCode, " ", text(t, resp.Body)); !strings.HasPrefix(got, want) {
				t.Errorf("%q: %s\nwant %s", protocol, got, want)
			}
		}
	})
}

// Who answers is told that the client is gone; a client that reads nothing fails at the deadline.
func TestMessagesEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		gone, ended := make(chan struct{}), make(chan error, 1)
		n.handler = func(w http.ResponseWriter, r *http.Request) {
			m := streaming.NewMessages(w, r, streaming.Lines, func() { close(gone) })
			defer m.Close()
			io.WriteString(m, "one\n")
			<-gone
		}
		ws := n.webSocket(t)
		message(t, ws)
		ws.NetConn().Close()
		<-gone

		n.handler = func(w http.ResponseWriter, r *http.Request) {
			m := streaming.NewMessages(w, r, streaming.Lines, func() {})
			m.WriteHeader(http.StatusOK)
			_ = m.SetWriteDeadline(time.Now().Add(time.Hour))
			_, err := io.WriteString(m, "one\n")
			m.Close()
			ended <- err
		}
		ws = n.webSocket(t)
		defer ws.Close()
		var err error
		if d := passed(func() { err = <-ended }); err == nil || d < time.Hour || d > 2*time.Hour {
			t.Errorf("after %s the writer was told %v", d, err)
		}
	})
}
