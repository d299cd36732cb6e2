// Package quota measures what objects use of what ResourceQuotas limit.
//
// It knows what a pod, a service and a claim use; of every other kind, objects are counted. A
// quota's scopes choose the objects that it is about. Everything here is a pure function and may be
// called concurrently.
package quota

import (
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	podresources "k8s.io/component-helpers/resource"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Amounts are quantities by the names of resources, as a quota has them: "pods",
// "requests.memory", "count/jobs.batch".
type Amounts map[string]resource.Quantity

// Quota is a ResourceQuota as it is enforced.
type Quota struct {
	Name string
	// Hard is what may be used, and Used what is, as the status says.
	Hard, Used Amounts
	scopes     []scope
}

// Count adds up what objects of a kind use of a quota. What the quota limits of other kinds is left
// out.
func (q *Quota) Count(k *kinds.Kind, objects iter.Seq[kinds.Object]) Amounts {
	total := Amounts{}
	for obj := range objects {
		if !q.About(k, obj) {
			continue
		}
		for name, amount := range Usage(k, obj) {
			if _, limited := q.Hard[name]; limited {
				sum := total[name]
				sum.Add(amount)
				total[name] = sum
			}
		}
	}
	return total
}

// Counts says whether objects of a kind use anything that a quota limits.
func (q *Quota) Counts(k *kinds.Kind) bool {
	if _, ok := q.Hard["count/"+k.GroupResource().String()]; ok || k.Group != "" {
		return ok
	}
	switch k.Kind {
	case "Pod", "Service", "PersistentVolumeClaim":
		return true // they use resources of many names
	}
	_, ok := q.Hard[k.Resource]
	return ok
}

// Read reads a ResourceQuota. What its spec limits is enforced as soon as it is stored: the status
// only says how much is used.
func Read(obj kinds.Object) Quota {
	return Quota{
		Name: tree.Str(obj, "metadata", "name"), Hard: amounts(tree.Map(obj, "spec", "hard")),
		Used: amounts(tree.Map(obj, "status", "used")), scopes: readScopes(tree.Map(obj, "spec")),
	}
}

// ReadStatus reads a ResourceQuota of which only what its status says is in force.
func ReadStatus(obj kinds.Object) Quota {
	q := Read(obj)
	q.Hard = amounts(tree.Map(obj, "status", "hard"))
	return q
}

// Uncounted returns, in order, the names of what is limited and of which nobody knows how much is used.
func (q *Quota) Uncounted() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(q.Hard)) {
		if _, ok := q.Used[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

func amounts(m map[string]any) Amounts {
	out := make(Amounts, len(m))
	for name, v := range m {
		out[name] = pod.Quantity(v)
	}
	return out
}

// Tree returns amounts as an object has them.
func (a Amounts) Tree() map[string]any {
	out := make(map[string]any, len(a))
	for name, q := range a {
		out[name] = q.String()
	}
	return out
}

// String lists amounts as messages do: "cpu=1,pods=2".
func (a Amounts) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		q := a[name]
		parts = append(parts, name+"="+q.String())
	}
	return strings.Join(parts, ",")
}

// Add adds amounts, times a sign, to those that the receiver names, and leaves out others.
func (a Amounts) Add(more Amounts, sign int) {
	for name, q := range more {
		have, ok := a[name]
		if !ok {
			continue
		}
		sum := have.DeepCopy()
		if sign < 0 {
			sum.Sub(q)
		} else {
			sum.Add(q)
		}
		a[name] = sum
	}
}

// Of returns the amounts of some names.
func (a Amounts) Of(names []string) Amounts {
	out := Amounts{}
	for _, name := range names {
		if q, ok := a[name]; ok {
			out[name] = q
		}
	}
	return out
}

// Usage measures an object: nothing for nil. It depends on nothing but the object, so that what was
// added with it can be taken away with it.
func Usage(k *kinds.Kind, obj kinds.Object) Amounts {
	if obj == nil {
		return nil
	}
	one := *resource.NewQuantity(1, resource.DecimalSI)
	out := Amounts{"count/" + k.GroupResource().String(): one}
	if k.Group != "" {
		return out
	}
	switch k.Kind {
	case "Pod":
		addPod(out, obj)
	case "Service":
		addService(out, obj)
	case "PersistentVolumeClaim":
		addClaim(out, obj)
	case "ConfigMap", "Secret", "ReplicationController", "ResourceQuota":
		out[k.Resource] = one
	}
	return out
}

// asTyped reads a pod for the library that sums up its containers.
func asTyped(obj kinds.Object) *corev1.Pod {
	var p corev1.Pod
	if runtime.DefaultUnstructuredConverter.FromUnstructured(obj, &p) != nil {
		return nil
	}
	return &p
}

func addPod(out Amounts, obj kinds.Object) {
	phase := tree.Str(obj, "status", "phase")
	p := asTyped(obj)
	if p == nil || phase == "Failed" || phase == "Succeeded" {
		return
	}
	out["pods"] = *resource.NewQuantity(1, resource.DecimalSI)
	opts := podresources.PodResourcesOptions{UseStatusResources: true}
	for name, q := range podresources.PodRequests(p, opts) {
		text := string(name)
		switch {
		case native(text) || strings.HasPrefix(text, "hugepages-"):
			out[text] = q
			out["requests."+text] = q
		case strings.Contains(text, "/"):
			out["requests."+text] = q
		}
	}
	for name, q := range podresources.PodLimits(p, opts) {
		if native(string(name)) {
			out["limits."+string(name)] = q
		}
	}
}

func native(name string) bool {
	return name == "cpu" || name == "memory" || name == "ephemeral-storage"
}

func addService(out Amounts, obj kinds.Object) {
	count := func(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
	ports := len(tree.List(obj, "spec", "ports"))
	out["services"], out["services.nodeports"], out["services.loadbalancers"] = count(1), count(0), count(0)
	switch tree.Str(obj, "spec", "type") {
	case "NodePort":
		out["services.nodeports"] = count(ports)
	case "LoadBalancer":
		out["services.loadbalancers"] = count(1)
		if wanted, said := tree.Get(obj, "spec", "allocateLoadBalancerNodePorts").(bool); said && !wanted {
			ports = 0
			for _, p := range tree.Maps(obj, "spec", "ports") {
				if tree.Int(p, "nodePort") != 0 {
					ports++
				}
			}
		}
		out["services.nodeports"] = count(ports)
	}
}

// classSuffix is behind the name of a storage class in what a quota has of it.
const classSuffix = ".storageclass.storage.k8s.io/"

func addClaim(out Amounts, obj kinds.Object) {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	out["persistentvolumeclaims"] = one
	class := tree.Str(obj, "metadata", "annotations", "volume.beta.kubernetes.io/storage-class")
	if class == "" {
		class = tree.Str(obj, "spec", "storageClassName")
	}
	if class != "" {
		out[class+classSuffix+"persistentvolumeclaims"] = one
	}
	if !tree.Has(obj, "spec", "resources", "requests", "storage") {
		return
	}
	asked := pod.Quantity(tree.Get(obj, "spec", "resources", "requests", "storage"))
	if got := pod.Quantity(tree.Get(obj, "status", "allocatedResources", "storage")); got.Cmp(asked) > 0 {
		asked = got
	}
	asked = asked.DeepCopy()
	asked.RoundUp(0)
	out["requests.storage"] = asked
	if class != "" {
		out[class+classSuffix+"requests.storage"] = asked
	}
}
