package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/kinds"
)

// first is an object that every cluster has from the beginning.
type first struct {
	gvk       schema.GroupVersionKind
	namespace string
	obj       kinds.Object
	// whole says that the object is given with its status.
	whole bool
	// manager is who writes it in managedFields; "" is kube-apiserver.
	manager string
	// status, if not nil, is what statusManager says of the object when it is new.
	status        kinds.Object
	statusManager string
}

func coreKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: kind}
}

// firsts are the objects that every cluster has beside namespaces.
func (s *Server) firsts() []first {
	all := []first{s.ownService(), s.ownServiceCIDR()}
	for _, class := range priorityClasses {
		all = append(all, first{
			gvk: schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"},
			obj: kinds.Object{
				"metadata":    map[string]any{"name": class.name},
				"value":       class.value,
				"description": class.description,
			},
		})
	}
	for _, gv := range ownVersions {
		if s.kinds.Current().HasGroupVersion(gv.GroupVersion) || s.virtual.hasGroup(gv.Group) {
			all = append(all, gv.apiService())
		}
	}
	return append(all, s.flows()...)
}

// ownService is where pods find the server. Announce says who is behind it.
func (s *Server) ownService() first {
	return first{gvk: coreKind("Service"), namespace: namespaceDefault, obj: kinds.Object{
		"metadata": map[string]any{
			"name":   "kubernetes",
			"labels": map[string]any{"component": "apiserver", "provider": "kubernetes"},
		},
		"spec": map[string]any{
			"clusterIP": s.opts.ServiceCIDR.Masked().Addr().Next().String(),
			"ports": []any{map[string]any{
				"name": "https", "port": int64(443), "targetPort": int64(6443), "protocol": "TCP",
			}},
		},
	}}
}

// ownServiceCIDR says where services get their addresses.
func (s *Server) ownServiceCIDR() first {
	return first{
		gvk: schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "ServiceCIDR"},
		obj: kinds.Object{
			"metadata": map[string]any{"name": "kubernetes"},
			"spec":     map[string]any{"cidrs": []any{s.opts.ServiceCIDR.Masked().String()}},
			"status": map[string]any{"conditions": []any{map[string]any{
				"type": "Ready", "status": "True", "reason": "",
				"message":            "Kubernetes default Service CIDR is ready",
				"lastTransitionTime": s.clock.Now().UTC().Format(time.RFC3339),
			}}},
		},
		whole: true,
	}
}

var priorityClasses = []struct {
	name        string
	value       int64
	description string
}{
	{"system-node-critical", 2_000_001_000,
		"Used for system critical pods that must not be moved from their current node."},
	{"system-cluster-critical", 2_000_000_000,
		"Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."},
}

// ownVersion is a version of the API that this server serves itself, and how it ranks: clients
// prefer groups, and versions of a group, of a higher priority.
type ownVersion struct {
	schema.GroupVersion
	group, version int64
}

// ownVersions rank as they do in Kubernetes. The group of APIServices has none, there as here.
var ownVersions = []ownVersion{
	{schema.GroupVersion{Version: "v1"}, 18000, 1},
	{schema.GroupVersion{Group: "apps", Version: "v1"}, 17800, 15},
	{schema.GroupVersion{Group: "events.k8s.io", Version: "v1"}, 17750, 15},
	{schema.GroupVersion{Group: "authentication.k8s.io", Version: "v1"}, 17700, 15},
	{schema.GroupVersion{Group: "authorization.k8s.io", Version: "v1"}, 17600, 15},
	{schema.GroupVersion{Group: "autoscaling", Version: "v1"}, 17500, 15},
	{schema.GroupVersion{Group: "autoscaling", Version: "v2"}, 17500, 30},
	{schema.GroupVersion{Group: "batch", Version: "v1"}, 17400, 15},
	{schema.GroupVersion{Group: "certificates.k8s.io", Version: "v1"}, 17300, 15},
	{schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}, 17200, 15},
	{schema.GroupVersion{Group: "policy", Version: "v1"}, 17100, 15},
	{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, 17000, 15},
	{schema.GroupVersion{Group: "storage.k8s.io", Version: "v1"}, 16800, 15},
	{schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}, 16700, 15},
	{schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, 16700, 15},
	{schema.GroupVersion{Group: "scheduling.k8s.io", Version: "v1"}, 16600, 15},
	{schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}, 16500, 15},
	{schema.GroupVersion{Group: "node.k8s.io", Version: "v1"}, 16300, 15},
	{schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"}, 16200, 15},
	{schema.GroupVersion{Group: "resource.k8s.io", Version: "v1"}, 16200, 21},
	{schema.GroupVersion{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}, 16100, 21},
	{schema.GroupVersion{Group: "storagemigration.k8s.io", Version: "v1"}, 15800, 15},
}

func (v ownVersion) apiService() first {
	return first{
		gvk: schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
		obj: kinds.Object{
			"metadata": map[string]any{
				"name":   v.Version + "." + v.Group,
				"labels": map[string]any{"kube-aggregator.kubernetes.io/automanaged": "onstart"},
			},
			"spec": map[string]any{
				"group": v.Group, "version": v.Version,
				"groupPriorityMinimum": v.group, "versionPriority": v.version,
			},
		},
	}
}

// Announce says where the server can be reached: the Endpoints and the EndpointSlice of the Service
// default/kubernetes. An address that means any is taken for this machine's own. It may be called
// again with another one.
func (s *Server) Announce(ctx context.Context, at netip.AddrPort) error {
	ip := at.Addr().Unmap()
	family := "IPv4"
	if ip.Is6() {
		family = "IPv6"
	}
	if ip.IsUnspecified() {
		ip, family = netip.AddrFrom4([4]byte{127, 0, 0, 1}), "IPv4"
	}
	err := s.applyOwn(ctx, "/api/v1/namespaces/default/endpoints/kubernetes", kinds.Object{
		"apiVersion": "v1", "kind": "Endpoints",
		"metadata": map[string]any{
			// The slice is written below, and is not to be made from this.
			"name": "kubernetes", "labels": map[string]any{discoveryv1.LabelSkipMirror: "true"},
		},
		"subsets": []any{map[string]any{
			"addresses": []any{map[string]any{"ip": ip.String()}},
			"ports":     []any{map[string]any{"name": "https", "port": at.Port(), "protocol": "TCP"}},
		}},
	})
	if err != nil {
		return err
	}
	return s.applyOwn(ctx, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", kinds.Object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata": map[string]any{
			"name": "kubernetes", "labels": map[string]any{discoveryv1.LabelServiceName: "kubernetes"},
		},
		"addressType": family,
		"endpoints":   []any{map[string]any{"addresses": []any{ip.String()}, "conditions": map[string]any{"ready": true}}},
		"ports":       []any{map[string]any{"name": "https", "port": at.Port(), "protocol": "TCP"}},
	})
}

// selfManager is the server in managedFields.
const selfManager = "kube-apiserver"

// applyOwn applies an object as the server itself.
func (s *Server) applyOwn(ctx context.Context, path string, obj kinds.Object) error {
	body, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch,
		"http://in-process"+path+"?force=true&fieldManager="+selfManager, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", string(types.ApplyYAMLPatchType))
	response, err := s.Transport(serverUser).RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s: %s", path, text)
	}
	return err
}
