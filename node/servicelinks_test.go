package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func service(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
}

func TestContainersFindServicesByVariables(t *testing.T) {
	m := newMachine(t)
	for _, s := range []*corev1.Service{
		service("default", "kubernetes", "10.0.0.1", corev1.ServicePort{Name: "https", Port: 443}),
		service("default", "other", "10.0.0.9", corev1.ServicePort{Port: 1}),
		service("apps", "my-db", "10.0.0.2",
			corev1.ServicePort{Name: "sql", Port: 5432}, corev1.ServicePort{Name: "log-in", Port: 53, Protocol: "UDP"}),
		service("apps", "headless", "None", corev1.ServicePort{Port: 80}),
		service("apps", "elsewhere", ""),
	} {
		if err := m.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	m.boot()
	// variables runs a pod and returns what env prints, but for what any process has.
	variables := func(name string, links *bool) []string {
		file := filepath.Join(m.dir, name)
		pod := m.run(name, func(p *corev1.Pod) {
			p.Namespace, p.Spec.EnableServiceLinks = "apps", links
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Spec.Containers[0].Env = []corev1.EnvVar{
				{Name: "MY_DB_PORT", Value: "mine, not $(MY_DB_PORT)"},
			}
		}, "env >"+file)
		m.await(pod, "over", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(slices.Sorted(strings.Lines(string(data))), func(line string) bool {
			return !strings.Contains(line, "_PORT") && !strings.Contains(line, "_SERVICE_")
		})
	}
	server := []string{
		"KUBERNETES_PORT=tcp://10.0.0.1:443\n",
		"KUBERNETES_PORT_443_TCP=tcp://10.0.0.1:443\n",
		"KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1\n",
		"KUBERNETES_PORT_443_TCP_PORT=443\n",
		"KUBERNETES_PORT_443_TCP_PROTO=tcp\n",
		"KUBERNETES_SERVICE_HOST=10.0.0.1\n",
		"KUBERNETES_SERVICE_PORT=443\n",
		"KUBERNETES_SERVICE_PORT_HTTPS=443\n",
	}
	all := slices.Concat(server, []string{
		"MY_DB_PORT=mine, not tcp://10.0.0.2:5432\n",
		"MY_DB_PORT_53_UDP=udp://10.0.0.2:53\n",
		"MY_DB_PORT_53_UDP_ADDR=10.0.0.2\n",
		"MY_DB_PORT_53_UDP_PORT=53\n",
		"MY_DB_PORT_53_UDP_PROTO=udp\n",
		"MY_DB_PORT_5432_TCP=tcp://10.0.0.2:5432\n",
		"MY_DB_PORT_5432_TCP_ADDR=10.0.0.2\n",
		"MY_DB_PORT_5432_TCP_PORT=5432\n",
		"MY_DB_PORT_5432_TCP_PROTO=tcp\n",
		"MY_DB_SERVICE_HOST=10.0.0.2\n",
		"MY_DB_SERVICE_PORT=5432\n",
		"MY_DB_SERVICE_PORT_LOG_IN=53\n",
		"MY_DB_SERVICE_PORT_SQL=5432\n",
	})
	if diff := cmp.Diff(all, variables("linked", nil)); diff != "" {
		t.Errorf("with links (-want +got):\n%s", diff)
	}
	alone := append(slices.Clone(server), "MY_DB_PORT=mine, not $(MY_DB_PORT)\n")
	if diff := cmp.Diff(alone, variables("alone", ptr.To(false))); diff != "" {
		t.Errorf("without links (-want +got):\n%s", diff)
	}
}
