package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guest is a client of a pod that echoes what is typed and answers HTTP.
type guest struct {
	config *rest.Config
	*kubernetes.Clientset
}

func newGuest(t *testing.T, m *machine) *guest {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &guest{config, set}
}

// TestStreams runs what needs a connection to a container: with a real process, through the agent's
// own connection, in the protocols of all clients.
func TestStreams(t *testing.T) {
	m := newMachine(t, "up")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: map[string]string{"app": "p"}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "echo", Image: "none", Command: []string{"setpoint", "echo", "--listen=$(POD_IP):8080"},
			Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
		}, {
			Name: "typed", Image: "none", Stdin: true, StdinOnce: true,
			Command: []string{"sh", "-c", `while read line; do echo "got $line"; done; echo over; exec sleep 600`},
		}}},
	}
	if err := m.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	var list corev1.PodList
	until(m, "the pod is ready", &list, func(l *corev1.PodList) bool { return len(l.Items) == 1 && ready(&l.Items[0]) },
		client.InNamespace("default"))
	g := newGuest(t, m)
	for _, protocol := range []string{"WebSocket", "SPDY"} {
		t.Run("exec over "+protocol, func(t *testing.T) { g.execs(t, protocol) })
		t.Run("port-forward over "+protocol, func(t *testing.T) { g.forwards(t, protocol) })
	}
	t.Run("attach", g.attaches)
	t.Run("proxy", g.proxies)
	t.Run("watch and log over WebSocket", g.messages)
}

func (g *guest) execs(t *testing.T, protocol string) {
	const bytesWanted = 3 << 20
	for _, test := range []struct {
		name, script, typed, out, errs string
		code                           int
	}{
		{name: "three streams and a code", script: "cat; echo oops >&2; exit 3", typed: "hello", out: "hello", errs: "oops\n", code: 3},
		{name: "its surroundings", script: `[ -n "$POD_IP" ] && [ -n "$PORT" ] && echo both`, out: "both\n"},
		{name: "a program that is missing", script: "exec nosuch-program", errs: "not found", code: 127},
		{name: "much output", script: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", bytesWanted), out: strings.Repeat("x", bytesWanted)},
	} {
		var out, errs bytes.Buffer
		err := g.run(t, protocol, "exec", &corev1.PodExecOptions{
			Container: "echo", Command: []string{"sh", "-c", test.script}, Stdin: test.typed != "", Stdout: true, Stderr: true,
		}, remotecommand.StreamOptions{Stdin: stringOrNil(test.typed), Stdout: &out, Stderr: &errs})
		code := 0
		if exit, ok := err.(utilexec.CodeExitError); ok {
			code, err = exit.Code, nil
		}
		if err != nil || code != test.code || out.String() != test.out || !strings.Contains(errs.String(), test.errs) {
			t.Errorf("%s: code %d, %d bytes of output, errors %q, %v", test.name, code, out.Len(), &errs, err)
		}
	}
}

func stringOrNil(s string) io.Reader {
	if s == "" {
		return nil
	}
	return strings.NewReader(s)
}

// run runs a command, or is attached, and returns when that has ended.
func (g *guest) run(t *testing.T, protocol, sub string, opts any, streams remotecommand.StreamOptions) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepMax)
	defer cancel()
	req := g.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("p").SubResource(sub)
	switch opts := opts.(type) {
	case *corev1.PodExecOptions:
		req.VersionedParams(opts, scheme.ParameterCodec)
	case *corev1.PodAttachOptions:
		req.VersionedParams(opts, scheme.ParameterCodec)
	}
	var exec remotecommand.Executor
	var err error
	if protocol == "WebSocket" {
		exec, err = remotecommand.NewWebSocketExecutor(g.config, http.MethodGet, req.URL().String())
	} else {
		exec, err = remotecommand.NewSPDYExecutor(g.config, http.MethodPost, req.URL())
	}
	if err != nil {
		t.Fatal(err)
	}
	return exec.StreamWithContext(ctx, streams)
}

// attaches types to the main process, whose input ends with the first client's.
func (g *guest) attaches(t *testing.T) {
	typing, in := io.Pipe()
	out, ended := io.Pipe()
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		req := g.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("p").SubResource("attach").
			VersionedParams(&corev1.PodAttachOptions{Container: "typed", Stdin: true, Stdout: true}, scheme.ParameterCodec)
		exec, err := remotecommand.NewWebSocketExecutor(g.config, http.MethodGet, req.URL().String())
		if err == nil {
			err = exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: typing, Stdout: ended})
		}
		failed <- err
		ended.Close()
	}()
	io.WriteString(in, "hello\n")
	in.Close()
	if !firstLine(out, "got hello\nover\n") {
		t.Errorf("attaching ended with %v", <-failed)
	}
	cancel()
	go io.Copy(io.Discard, out)
	<-failed
}

func (g *guest) forwards(t *testing.T, protocol string) {
	target := g.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("p").SubResource("portforward").URL()
	var dialer httpstream.Dialer
	if protocol == "WebSocket" {
		tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, g.config)
		if err != nil {
			t.Fatal(err)
		}
		dialer = tunnel
	} else {
		transport, upgrader, err := spdy.RoundTripperFor(g.config)
		if err != nil {
			t.Fatal(err)
		}
		dialer = spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewForStreaming(dialer, []string{":8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local)
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answers := make(chan error)
	const many = 20
	for range many {
		go func() {
			resp, err := web.Get(at)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			answers <- err
		}()
	}
	for range many {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Errorf("forwarding ended with %v", err)
	}
}

func (g *guest) proxies(t *testing.T) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "p"}, Ports: []corev1.ServicePort{{
			Name: "http", Port: 80,
		}}},
	}
	service.Spec.Ports[0].TargetPort.IntVal = 8080
	if _, err := g.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	web, err := rest.HTTPClientFor(g.config)
	if err != nil {
		t.Fatal(err)
	}
	web.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ask := func(path string) (int, string) {
		resp, err := web.Get(g.config.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	const root = "/api/v1/namespaces/default/"
	for _, path := range []string{"pods/p/proxy/", "pods/http:p:8080/proxy/", "services/p/proxy/"} {
		if path == "services/p/proxy/" {
			path = "services/http:p:http/proxy/"
			for code := 503; code == 503 && t.Context().Err() == nil; { // until there are endpoints
				code, _ = ask(root + path)
			}
		}
		if code, text := ask(root + path); code != 200 || !strings.Contains(text, "p") {
			t.Errorf("%s: %d %q", path, code, text)
		}
	}
	if code, _ := ask(root + "pods/p/proxy"); code != http.StatusMovedPermanently {
		t.Errorf("without a path: %d, want a redirection", code)
	}
	if code, text := ask(root + "pods/p:1/proxy/"); code != http.StatusServiceUnavailable || !strings.Contains(text, "connection refused") {
		t.Errorf("a port at which nothing listens: %d %s", code, text)
	}
}

// messages reads a watch and a log as messages of a WebSocket.
func (g *guest) messages(t *testing.T) {
	const path = "/api/v1/namespaces/default/pods"
	event := g.message(t, path+"?watch=true&fieldSelector=metadata.name=p", "")
	var first struct {
		Type   string
		Object corev1.Pod
	}
	if err := json.Unmarshal(event, &first); err != nil || first.Type != "ADDED" || first.Object.Name != "p" {
		t.Errorf("the first event is %s, %v", event, err)
	}
	if line := g.message(t, path+"/p/log?container=echo&follow=true", "base64.binary.k8s.io"); len(line) == 0 || bytes.ContainsAny(line, " \n") {
		t.Errorf("the log begins with %q, want base64", line)
	}
}

// message returns the first message of an answer.
func (g *guest) message(t *testing.T, path, protocol string) []byte {
	t.Helper()
	conf, err := rest.TLSConfigFor(g.config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{TLSClientConfig: conf, NetDialContext: (&net.Dialer{}).DialContext}
	if protocol != "" {
		dialer.Subprotocols = []string{protocol}
	}
	ws, _, err := dialer.DialContext(t.Context(), "wss"+strings.TrimPrefix(g.config.Host, "https")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	for {
		_, text, err := ws.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 0 {
			return text
		}
	}
}
