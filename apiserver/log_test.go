package apiserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

// connectAgent opens a node's tunnel as its agent does, and answers over it with h.
func (s *site) connectAgent(node string, h http.Handler) io.Closer {
	s.t.Helper()
	user := &authn.User{Name: "system:node:" + node, Groups: []string{"system:nodes"}}
	req, _ := http.NewRequestWithContext(s.t.Context(), "POST", "http://setpoint"+apiserver.TunnelPath(node), nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", apiserver.TunnelProtocol)
	resp, err := s.server.Transport(user).RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("connect: %s", resp.Status)
	}
	conn := resp.Body.(net.Conn)
	go (&http2.Server{}).ServeConn(conn, &http2.ServeConnOpts{Handler: h})
	return conn
}

// agents waits until so many are connected. The tests here have real time: x/net/http2 shares
// channels between connections, which bubbles may not.
func (s *site) agents(n int) {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); s.server.Agents() != n; runtime.Gosched() {
		if time.Now().After(end) {
			s.t.Fatalf("%d agents are connected, want %d", s.server.Agents(), n)
		}
	}
}

const podPath = "/api/v1/namespaces/default/pods"

func (s *site) pod(name, more string) {
	s.t.Helper()
	s.must("POST", podPath, `{"metadata":{"name":"`+name+`"},"spec":{`+more+`}}`)
}

func TestPodLogComesFromTheAgent(t *testing.T) {
	s := newSite(t)
	s.pod("p", `"nodeName":"n1","containers":[{"name":"c","image":"i"}]`)
	more := make(chan string)
	agent := s.connectAgent("n1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("tailLines") == "7" {
			http.Error(w, "no such instance", http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, "%s?%s\n", r.URL.Path, r.URL.RawQuery)
		for r.URL.Query().Get("follow") == "true" {
			w.(http.Flusher).Flush()
			line, ok := <-more
			if !ok {
				return
			}
			fmt.Fprintln(w, line)
		}
	}))
	s.agents(1)
	r := s.get(podPath + "/p/log?timestamps=true&sinceSeconds=5&other=x")
	if want := "/containerLogs/default/p/c?sinceSeconds=5&timestamps=true\n"; r.code != 200 || r.text != want {
		t.Errorf("%d %q, want %q", r.code, r.text, want)
	}
	if got := r.header.Get("Content-Type"); got != "text/plain" {
		t.Errorf("type %s", got)
	}
	if r := s.get(podPath + "/p/log?tailLines=7"); r.code != http.StatusBadRequest || r.object(t).str("message") != "no such instance" {
		t.Errorf("a refusal: %d %s", r.code, r.text)
	}

	resp, err := s.client.Get("http://setpoint" + podPath + "/p/log?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Scan()
	more <- "hello"
	if !lines.Scan() || lines.Text() != "hello" {
		t.Errorf("followed %q, %v", lines.Text(), lines.Err())
	}
	close(more)
	if lines.Scan() {
		t.Errorf("after the end: %q", lines.Text())
	}

	agent.Close()
	s.agents(0)
	r = s.get(podPath + "/p/log")
	if want := `the log of pod "p" cannot be read: the agent of its node "n1" is not connected`; r.code != http.StatusServiceUnavailable || r.object(t).str("message") != want {
		t.Errorf("without an agent: %d %s", r.code, r.text)
	}
}

// An agent that comes back takes the place of its old connection; the server's stop ends both ends.
func TestAgentReconnects(t *testing.T) {
	s := newSite(t)
	s.pod("p", `"nodeName":"n1","containers":[{"name":"c","image":"i"}]`)
	for _, word := range []string{"old", "new"} {
		s.connectAgent("n1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, word)
		}))
		s.agents(1)
	}
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		if r := s.get(podPath + "/p/log"); r.text == "new" {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the log comes from the %s connection", r.text)
		}
	}
	s.server.Stop()
	s.agents(0)
}

func TestLogRefusals(t *testing.T) {
	s := newSite(t)
	s.pod("two", `"nodeName":"n1","initContainers":[{"name":"first","image":"i"}],"containers":[{"name":"a","image":"i"},{"name":"b","image":"i"}]`)
	s.pod("waiting", `"containers":[{"name":"c","image":"i"}]`)
	for query, want := range map[string]string{
		"two/log":                  "400 a container name must be specified for pod two, choose one of: [a b] or one of the init or ephemeral containers: [first]",
		"two/log?container=z":      "400 container z is not valid for pod two",
		"two/log?container=a":      `503 the log of pod "two" cannot be read: the agent of its node "n1" is not connected`,
		"two/log?container=first":  `503 the log of pod "two" cannot be read: the agent of its node "n1" is not connected`,
		"two/log?tailLines=-1":     `422 PodLogOptions "" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0`,
		"two/log?limitBytes=0":     `422 PodLogOptions "" is invalid: limitBytes: Invalid value: 0: must be greater than or equal to 1`,
		"two/log?sinceSeconds=all": `400 sinceSeconds: strconv.ParseInt: parsing "all": invalid syntax`,
		"two/log?sinceTime=now":    `400 sinceTime: parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"`,
		"nosuch/log":               `404 pods "nosuch" not found`,
		"waiting/log":              "204 ",
	} {
		r := s.get(podPath + "/" + query)
		got := fmt.Sprint(r.code, " ")
		if r.text != "" {
			got += r.object(t).str("message")
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", query, got, want)
		}
	}
}

func TestConnectRefusals(t *testing.T) {
	s := newSite(t)
	path := apiserver.TunnelPath("n1")
	if r := s.ask("POST", path, "", "Upgrade", "websocket"); r.code != http.StatusBadRequest || !strings.Contains(r.text, `it must be \"setpoint-node/1\"`) {
		t.Errorf("another protocol: %d %s", r.code, r.text)
	}
	other := &site{t: t, client: &http.Client{Transport: s.server.Transport(
		&authn.User{Name: "system:node:n2", Groups: []string{"system:nodes"}})}}
	if r := other.ask("POST", path, "", "Upgrade", apiserver.TunnelProtocol); r.code != http.StatusForbidden {
		t.Errorf("another node: %d %s", r.code, r.text)
	}
}
