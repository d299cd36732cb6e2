package admission

import (
	"context"
	"fmt"
	"slices"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Defaults gives new objects what other objects say is to be had by those that do not say: the class of
// a claim, of an ingress or of a pod's priority, and what a pod's runtime class takes. Claims, volumes
// and classes of their attributes get the finalizers for which they wait until nobody uses them.
func Defaults() Mutator { return &defaults{} }

type defaults struct{ storage, ingress, priority cache[kinds.Object] }

const (
	defaultStorageClass     = "storageclass.kubernetes.io/is-default-class"
	defaultStorageClassBeta = "storageclass.beta.kubernetes.io/is-default-class"
	defaultIngressClass     = "ingressclass.kubernetes.io/is-default-class"
	ingressClass            = "kubernetes.io/ingress.class"
	claimClass              = "volume.beta.kubernetes.io/storage-class"
)

func (d *defaults) Mutate(_ context.Context, a *Attributes) error {
	if a.Object == nil || a.Operation != Create {
		return nil
	}
	switch {
	case a.is("", "PersistentVolume"):
		protect(a.Object, volumeProtection)
	case a.is("storage.k8s.io", "VolumeAttributesClass"):
		protect(a.Object, classProtection)
	case a.is("", "PersistentVolumeClaim"):
		protect(a.Object, claimProtection)
		return d.claim(a)
	case a.is("networking.k8s.io", "Ingress"):
		return d.ingressOf(a)
	case a.is("", "Pod"):
		if err := d.priorityOf(a); err != nil {
			return err
		}
		return runtimeClass(a)
	}
	return nil
}

// The finalizers that controllers/volumeprotection takes away.
const (
	claimProtection  = "kubernetes.io/pvc-protection"
	volumeProtection = "kubernetes.io/pv-protection"
	classProtection  = "kubernetes.io/vac-protection"
)

// protect gives an object a finalizer.
func protect(obj kinds.Object, finalizer string) {
	list := tree.List(obj, "metadata", "finalizers")
	if !slices.Contains(list, any(finalizer)) {
		tree.Set(obj, append(slices.Clip(list), finalizer), "metadata", "finalizers")
	}
}

func keep(obj kinds.Object) kinds.Object { return obj }

// claim sets the class of a claim that says nothing of one. "" says that it has none.
func (d *defaults) claim(a *Attributes) error {
	if tree.Get(a.Object, "spec", "storageClassName") != nil || has(a.Object, claimClass) {
		return nil
	}
	all, err := d.storage.list(a.State, kindOf(a.State, "storage.k8s.io", "v1", "StorageClass"), "", keep)
	if err != nil {
		return err
	}
	if class := newest(all, defaultStorageClass, defaultStorageClassBeta); class != "" {
		tree.Set(a.Object, class, "spec", "storageClassName")
	}
	return nil
}

func (d *defaults) ingressOf(a *Attributes) error {
	if tree.Get(a.Object, "spec", "ingressClassName") != nil || has(a.Object, ingressClass) {
		return nil
	}
	all, err := d.ingress.list(a.State, kindOf(a.State, "networking.k8s.io", "v1", "IngressClass"), "", keep)
	if err != nil {
		return err
	}
	if class := newest(all, defaultIngressClass); class != "" {
		tree.Set(a.Object, class, "spec", "ingressClassName")
	}
	return nil
}

func has(obj kinds.Object, annotation string) bool {
	_, ok := tree.Map(obj, "metadata", "annotations")[annotation]
	return ok
}

// newest returns the name of the newest class that has one of the annotations; of several that are as
// new, the first by name.
func newest(classes []kinds.Object, annotations ...string) string {
	isDefault := func(c kinds.Object) bool {
		return slices.ContainsFunc(annotations, func(name string) bool {
			return tree.Str(c, "metadata", "annotations", name) == "true"
		})
	}
	name, made := "", ""
	for _, c := range classes { // in order of name; a later time is greater as text, too
		if at := tree.Str(c, "metadata", "creationTimestamp"); isDefault(c) && (name == "" || at > made) {
			name, made = tree.Str(c, "metadata", "name"), at
		}
	}
	return name
}

// priorityOf gives a pod that names none the class for those; of several, the one that matters least.
func (d *defaults) priorityOf(a *Attributes) error {
	if tree.Str(a.Object, "spec", "priorityClassName") != "" {
		return nil
	}
	all, err := d.priority.list(a.State, kindOf(a.State, "scheduling.k8s.io", "v1", "PriorityClass"), "", keep)
	if err != nil {
		return err
	}
	var least kinds.Object
	for _, c := range all {
		if tree.Bool(c, "globalDefault") && (least == nil || tree.Int(c, "value") < tree.Int(least, "value")) {
			least = c
		}
	}
	if least != nil {
		tree.Set(a.Object, tree.Str(least, "metadata", "name"), "spec", "priorityClassName")
	}
	return nil
}

// runtimeClass gives a pod what its runtime class takes beside the containers, and the nodes that the
// class is for. A client cannot choose another overhead.
func runtimeClass(a *Attributes) error {
	spec := tree.Ensure(a.Object, "spec")
	name, said := spec["runtimeClassName"].(string)
	var class kinds.Object
	if said {
		k := kindOf(a.State, "node.k8s.io", "v1", "RuntimeClass")
		if class = read(a.State, k, "", name); class == nil {
			return a.forbid("pod rejected: RuntimeClass %q not found", name)
		}
	}
	overhead := tree.Map(class, "overhead", "podFixed")
	switch asked := tree.Map(spec, "overhead"); {
	case !tree.Has(class, "overhead") && spec["overhead"] != nil:
		return a.forbid("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
	case len(asked) > 0 && !sameAmounts(asked, overhead):
		return a.forbid("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	case overhead != nil:
		spec["overhead"] = tree.CopyMap(overhead)
	}
	for key, value := range tree.Map(class, "scheduling", "nodeSelector") {
		if own, ok := tree.Map(spec, "nodeSelector")[key]; ok && own != value {
			return a.forbid("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s",
				key, value, key, own)
		}
		tree.Set(spec, value, "nodeSelector", key)
	}
	for _, t := range tree.Maps(class, "scheduling", "tolerations") {
		list := tree.List(spec, "tolerations")
		if !slices.ContainsFunc(list, func(v any) bool { return same(v, t) }) {
			spec["tolerations"] = append(slices.Clip(list), tree.CopyMap(t))
		}
	}
	return nil
}

func same(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) } // maps are printed in order

func sameAmounts(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		x, y := pod.Quantity(a[name]), pod.Quantity(b[name])
		if _, ok := b[name]; !ok || x.Cmp(y) != 0 {
			return false
		}
	}
	return true
}
