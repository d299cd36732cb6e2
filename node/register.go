package node

import (
	"bufio"
	"context"
	"maps"
	"os"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A node that has not renewed its lease for leaseDuration is taken to be gone;
// it renews it four times in that time. The figures are a kubelet's.
const (
	leaseDuration = 40 * time.Second
	renewEvery    = 10 * time.Second
)

// podsMax is how many pods a node takes, as with a kubelet.
const podsMax = 110

// registration keeps the Node object and its lease.
type registration struct {
	agent   *Agent
	desired *corev1.Node
	last    atomic.Pointer[corev1.Node] // as last read or written
	lease   *coordinationv1.Lease       // as last written
}

// run registers the node and renews its lease until ctx ends. Of failures in a
// row it tells the first, and when they are over.
func (r *registration) run(ctx context.Context) {
	for failing := false; ; {
		wait := renewEvery
		err := ask(ctx, r.sync)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			wait = time.Second
			if !failing {
				r.agent.Logger.Warn("registering the node", "error", err)
			}
		case failing:
			r.agent.Logger.Info("the node is registered again")
		}
		failing = err != nil
		if r.agent.sleep(ctx, wait) != nil {
			return
		}
	}
}

// sync brings the Node to what it should be and renews the lease. A converged
// Node is not written.
func (r *registration) sync(ctx context.Context) error {
	var node corev1.Node
	err := r.agent.Live.Get(ctx, types.NamespacedName{Name: r.agent.Name}, &node)
	if apierrors.IsNotFound(err) {
		node = *r.desired.DeepCopy()
		err = r.agent.Client.Create(ctx, &node)
	}
	if err != nil {
		return err
	}
	if err := r.update(ctx, &node); err != nil {
		return err
	}
	return r.renew(ctx, &node)
}

// known is the Node as it was not long ago: before it is registered, as it is going to be.
func (r *registration) known() *corev1.Node {
	if node := r.last.Load(); node != nil {
		return node
	}
	return r.desired
}

// ask returns the Node as it is, or nil if the server does not say.
func (r *registration) ask(ctx context.Context) *corev1.Node {
	var node corev1.Node
	if err := r.agent.Live.Get(ctx, types.NamespacedName{Name: r.agent.Name}, &node); err != nil {
		r.agent.Logger.Warn("reading the node", "error", err)
		return nil
	}
	node.Status.Allocatable = r.known().Status.Allocatable // which a Node has not from the first
	return &node
}

func (r *registration) update(ctx context.Context, node *corev1.Node) error {
	want := node.DeepCopy()
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	maps.Copy(want.Labels, r.desired.Labels)
	if !maps.Equal(node.Labels, want.Labels) {
		if err := r.agent.Client.Patch(ctx, want, client.StrategicMergeFrom(node)); err != nil {
			return err
		}
	}
	base := want.DeepCopy()
	conditions := want.Status.Conditions
	images, attached, inUse := want.Status.Images, want.Status.VolumesAttached, want.Status.VolumesInUse
	want.Status = *r.desired.Status.DeepCopy()
	want.Status.Images, want.Status.VolumesAttached, want.Status.VolumesInUse = images, attached, inUse
	want.Status.Conditions = r.conditions(conditions)
	keepExtended(&want.Status, base.Status.Capacity)
	if !equality.Semantic.DeepEqual(base.Status, want.Status) {
		if err := r.agent.Client.Status().Patch(ctx, want, client.StrategicMergeFrom(base)); err != nil {
			return err
		}
	}
	r.last.Store(want)
	return nil
}

// keepExtended keeps what an administrator or a plug-in says that the node has beside its own, and
// makes all of it allocatable: writing the capacity is how that is done.
func keepExtended(status *corev1.NodeStatus, capacity corev1.ResourceList) {
	for name, quantity := range capacity {
		if _, own := status.Capacity[name]; !own && strings.Contains(string(name), "/") {
			status.Capacity[name], status.Allocatable[name] = quantity, quantity
		}
	}
}

// conditions returns the old ones with the agent's own brought up to date. A
// heartbeat is in the lease; the times here tell when something changed.
func (r *registration) conditions(old []corev1.NodeCondition) []corev1.NodeCondition {
	now := metav1.NewTime(r.agent.Clock.Now()).Rfc3339Copy()
	conditions := append([]corev1.NodeCondition(nil), old...)
	for _, own := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "the agent has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "the agent has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "the agent has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the agent is posting ready status"},
	} {
		own.LastHeartbeatTime, own.LastTransitionTime = now, now
		found := false
		for i := range conditions {
			c := &conditions[i]
			if c.Type != own.Type {
				continue
			}
			found = true
			if c.Status != own.Status {
				*c = own
			} else if c.Reason != own.Reason || c.Message != own.Message {
				own.LastTransitionTime = c.LastTransitionTime
				*c = own
			}
		}
		if !found {
			conditions = append(conditions, own)
		}
	}
	return conditions
}

// renew writes the lease. It goes on from its own last write, and reads the
// lease again only when that turns out not to be the newest.
func (r *registration) renew(ctx context.Context, node *corev1.Node) error {
	now := metav1.NewMicroTime(r.agent.Clock.Now())
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       &r.agent.Name,
		LeaseDurationSeconds: ptr.To(int32(leaseDuration / time.Second)),
		RenewTime:            &now,
	}
	if r.lease != nil {
		lease := r.lease.DeepCopy()
		lease.Spec = spec
		err := r.agent.Client.Update(ctx, lease)
		if err == nil {
			r.lease = lease
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
		r.lease = nil
	}
	lease := &coordinationv1.Lease{}
	err := r.agent.Live.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: r.agent.Name}, lease)
	if apierrors.IsNotFound(err) {
		lease.Namespace, lease.Name = corev1.NamespaceNodeLease, r.agent.Name
		lease.Spec = spec
		lease.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
		}}
		err = r.agent.Client.Create(ctx, lease)
	} else if err == nil {
		lease.Spec = spec
		err = r.agent.Client.Update(ctx, lease)
	}
	if err != nil {
		return err
	}
	r.lease = lease
	return nil
}

// describe is the Node as it should be.
func (a *Agent) describe() *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:   a.Name,
		corev1.LabelOSStable:   goruntime.GOOS,
		corev1.LabelArchStable: goruntime.GOARCH,
	}
	maps.Copy(labels, a.Labels)
	capacity := a.capacity()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: a.Name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: a.Taints},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: maps.Clone(capacity),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: a.Address},
				{Type: corev1.NodeHostName, Address: a.Name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID:               firstLine("/etc/machine-id"),
				SystemUUID:              firstLine("/etc/machine-id"),
				BootID:                  firstLine("/proc/sys/kernel/random/boot_id"),
				KernelVersion:           firstLine("/proc/sys/kernel/osrelease"),
				OSImage:                 osImage(),
				ContainerRuntimeVersion: "process://" + strings.TrimPrefix(a.Version, "v"),
				KubeletVersion:          a.Version,
				OperatingSystem:         goruntime.GOOS,
				Architecture:            goruntime.GOARCH,
			},
		},
	}
}

// capacity is what the node has for pods, before anything is taken of it.
func (a *Agent) capacity() corev1.ResourceList {
	if sized, ok := a.Runtime.(Sized); ok {
		return sized.Capacity()
	}
	return machineCapacity(a.volumes.dir)
}

// machineCapacity is what the machine has. It is rounded, so that it does not
// change by itself.
func machineCapacity(dir string) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:  *resource.NewQuantity(int64(goruntime.NumCPU()), resource.DecimalSI),
		corev1.ResourcePods: *resource.NewQuantity(podsMax, resource.DecimalSI),
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		bytes := int64(info.Totalram) * int64(info.Unit)
		list[corev1.ResourceMemory] = *resource.NewQuantity(bytes>>10<<10, resource.BinarySI)
	}
	var disk unix.Statfs_t
	for d := dir; ; d = parentOf(d) {
		if err := unix.Statfs(d, &disk); err == nil {
			bytes := int64(disk.Blocks) * disk.Bsize
			list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(bytes>>10<<10, resource.BinarySI)
			return list
		}
		if d == "/" {
			return list
		}
	}
}

func parentOf(dir string) string {
	i := strings.LastIndexByte(dir, '/')
	return dir[:max(1, i)]
}

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

func osImage() string {
	f, err := os.Open("/etc/os-release")
	if err != nil {
		return goruntime.GOOS
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"`)
		}
	}
	return goruntime.GOOS
}
