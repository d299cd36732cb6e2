package setpointtest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/simulated"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

// A test says what the containers of its nodes do: whoever runs a command in one, or asks a pod
// something over HTTP, gets its answers.
func TestContainers(t *testing.T) {
	cp := setpointtest.Start(t, setpointtest.Nodes(1), setpointtest.Port(), setpointtest.Containers(simulated.Handlers{
		Exec: func(_ context.Context, of simulated.Container, command []string, s node.Streams) (int32, error) {
			typed, err := io.ReadAll(s.Stdin)
			fmt.Fprintf(s.Stdout, "%s/%s/%s: %q with %q", of.Namespace, of.Pod, of.Name, command, typed)
			return 9, err
		},
		Serve: func(of simulated.Container, port uint16, conn net.Conn) {
			defer conn.Close()
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				t.Error(err)
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s:%d", of.Pod, port)
		},
	}))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := cp.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	cp.Await(pod, "it runs", func() bool { return pod.Status.Phase == corev1.PodRunning })

	client, config := overThePort(t, cp)
	req := client.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("p").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"a", "b"}, Stdin: true, Stdout: true}, scheme.ParameterCodec)
	exec, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, req.URL().String())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = exec.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("hi"), Stdout: &out})
	if want := `default/p/c: ["a" "b"] with "hi"`; out.String() != want {
		t.Errorf("the command printed %q, want %q", &out, want)
	}
	if err == nil || !strings.HasSuffix(err.Error(), "exit code 9") {
		t.Errorf("the command ended with %v, want code 9", err)
	}
	text, err := client.CoreV1().Pods("default").ProxyGet("http", "p", "8080", "/", nil).DoRaw(t.Context())
	if err != nil || string(text) != "p:8080" {
		t.Errorf("the pod answers %q, %v", text, err)
	}
}

// overThePort is a client that speaks as those in other processes do.
func overThePort(t *testing.T, cp *setpointtest.ControlPlane) (*kubernetes.Clientset, *rest.Config) {
	t.Helper()
	text, err := cp.ControlPlane.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client, config
}
