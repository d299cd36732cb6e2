package node

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiService is the Service of the API server, in the namespace default. Every
// container is told of it.
const apiService = "kubernetes"

// serviceLinks sets the variables by which a container finds Services: those of
// its namespace, unless the pod wants none (enableServiceLinks: false), and the
// API server's. It knows the Services that there are when the container starts.
func (s sources) serviceLinks(ctx context.Context, e *environ) error {
	var services corev1.ServiceList
	if err := s.List(ctx, &services, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	for i := range services.Items {
		if services.Items[i].Name == apiService {
			e.link(&services.Items[i])
		}
	}
	if links := s.pod.Spec.EnableServiceLinks; links != nil && !*links {
		return nil
	}
	if err := s.List(ctx, &services, client.InNamespace(s.pod.Namespace)); err != nil {
		return err
	}
	slices.SortFunc(services.Items, func(a, b corev1.Service) int { return cmp.Compare(a.Name, b.Name) })
	for i := range services.Items {
		e.link(&services.Items[i])
	}
	return nil
}

// link sets the variables of one Service: WEB_SERVICE_HOST, WEB_SERVICE_PORT
// and their kin, and those that Docker made of links (WEB_PORT_80_TCP_ADDR). A
// Service without an address of its own has none.
func (e *environ) link(service *corev1.Service) {
	ip, ports := service.Spec.ClusterIP, service.Spec.Ports
	if ip == "" || ip == corev1.ClusterIPNone || len(ports) == 0 {
		return
	}
	name := variable(service.Name)
	e.set(name+"_SERVICE_HOST", ip)
	e.set(name+"_SERVICE_PORT", strconv.Itoa(int(ports[0].Port)))
	for i := range ports {
		if ports[i].Name != "" {
			e.set(name+"_SERVICE_PORT_"+variable(ports[i].Name), strconv.Itoa(int(ports[i].Port)))
		}
	}
	for i := range ports {
		protocol := string(cmp.Or(ports[i].Protocol, corev1.ProtocolTCP))
		port := strconv.Itoa(int(ports[i].Port))
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			e.set(name+"_PORT", url)
		}
		prefix := name + "_PORT_" + port + "_" + protocol
		e.set(prefix, url)
		e.set(prefix+"_PROTO", strings.ToLower(protocol))
		e.set(prefix+"_PORT", port)
		e.set(prefix+"_ADDR", ip)
	}
}

// variable is a name as part of a variable's.
func variable(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
