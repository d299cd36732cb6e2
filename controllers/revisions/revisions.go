// Package revisions keeps the history of a template: each state that an object's pods were made from is a
// ControllerRevision, named after a hash of what it holds, so that pods can say which one they are of and
// an older one can be made current again.
//
// Everything here may be used concurrently for different owners.
package revisions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controllers/ownership"
)

// Owner is the object whose template's history is kept.
type Owner struct {
	Object   client.Object
	Kind     schema.GroupVersionKind
	Selector *metav1.LabelSelector
	Template *corev1.PodTemplateSpec
	// HashLabel is the label in which a revision carries its hash.
	HashLabel string
	// Collisions is how often a name was taken by another template; it goes into the hash.
	Collisions int32
}

// History reads and writes revisions.
type History struct {
	Client client.Client
	Live   client.Reader
}

// Sync returns the revision of the owner's template, made if there is none, and all the owner's revisions,
// that one included, the oldest first. Collisions is raised in the owner if a name was taken.
func (h History) Sync(ctx context.Context, o *Owner) (*appsv1.ControllerRevision, []*appsv1.ControllerRevision, error) {
	all, err := h.list(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	data, err := encode(o.Template)
	if err != nil {
		return nil, nil, err
	}
	next := int64(1)
	if len(all) > 0 {
		next = all[len(all)-1].Revision + 1
	}
	at := slices.IndexFunc(all, func(r *appsv1.ControllerRevision) bool { return same(r.Data.Raw, data) })
	switch {
	case at >= 0 && at == len(all)-1:
		return all[at], all, nil
	case at >= 0: // an older one is current again
		again := all[at].DeepCopy()
		again.Revision = next
		if err := h.Client.Update(ctx, again); err != nil {
			return nil, nil, fmt.Errorf("revision %s: %w", again.Name, err)
		}
		return again, append(slices.Delete(all, at, at+1), again), nil
	}
	made, err := h.create(ctx, o, data, next)
	if err != nil {
		return nil, nil, err
	}
	return made, append(all, made), nil
}

func (h History) list(ctx context.Context, o *Owner) ([]*appsv1.ControllerRevision, error) {
	selector, err := metav1.LabelSelectorAsSelector(o.Selector)
	if err != nil {
		return nil, fmt.Errorf("spec.selector: %w", err)
	}
	var list appsv1.ControllerRevisionList
	if err := h.Client.List(ctx, &list, client.InNamespace(o.Object.GetNamespace()),
		client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	candidates := make([]*appsv1.ControllerRevision, len(list.Items))
	for i := range list.Items {
		candidates[i] = &list.Items[i]
	}
	all, err := ownership.Claim(ctx, ownership.Claimer{Client: h.Client, Live: h.Live}, o.Object, o.Kind, selector, candidates)
	slices.SortStableFunc(all, func(a, b *appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	return all, err
}

// create makes a revision. Where another object, or another template, has the name already, the hash is
// changed and it tries again.
func (h History) create(ctx context.Context, o *Owner, data []byte, number int64) (*appsv1.ControllerRevision, error) {
	for {
		hash := Hash(data, o.Collisions)
		r := &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Name: o.Object.GetName() + "-" + hash, Namespace: o.Object.GetNamespace(),
				Labels:          labels.Merge(o.Template.Labels, labels.Set{o.HashLabel: hash}),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o.Object, o.Kind)},
			},
			Data:     runtime.RawExtension{Raw: data},
			Revision: number,
		}
		err := h.Client.Create(ctx, r)
		if !apierrors.IsAlreadyExists(err) {
			return r, err
		}
		taken := &appsv1.ControllerRevision{}
		if err := h.Live.Get(ctx, client.ObjectKeyFromObject(r), taken); err != nil {
			return nil, fmt.Errorf("revision %s is there and is not: %w", r.Name, err)
		}
		if metav1.IsControlledBy(taken, o.Object) && same(taken.Data.Raw, data) {
			return taken, nil // our own, and the cache had not seen it
		}
		o.Collisions++
	}
}

// Truncate deletes the oldest revisions that are not in use, until no more than limit of those are left.
func (h History) Truncate(ctx context.Context, all []*appsv1.ControllerRevision, inUse func(*appsv1.ControllerRevision) bool, limit int32) error {
	idle := slices.DeleteFunc(slices.Clone(all), inUse)
	if limit < 0 {
		return nil
	}
	for len(idle) > int(limit) {
		if err := h.Client.Delete(ctx, idle[0]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("revision %s: %w", idle[0].Name, err)
		}
		idle = idle[1:]
	}
	return nil
}

// Hash is what the name of a revision ends with.
func Hash(data []byte, collisions int32) string {
	hash := fnv.New32()
	hash.Write(data)
	if collisions > 0 {
		hash.Write([]byte(strconv.Itoa(int(collisions))))
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10))
}

// content is what a revision holds: a patch that replaces the template, as Kubernetes has it.
type content struct {
	Spec struct {
		Template map[string]any `json:"template"`
	} `json:"spec"`
}

func encode(template *corev1.PodTemplateSpec) ([]byte, error) {
	var c content
	text, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &c.Spec.Template); err != nil {
		return nil, err
	}
	c.Spec.Template["$patch"] = "replace"
	return json.Marshal(c)
}

// Template returns the template that a revision holds.
func Template(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var c struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &c); err != nil {
		return nil, fmt.Errorf("revision %s: %w", r.Name, err)
	}
	return &c.Spec.Template, nil
}

// same says whether two revisions hold the same; the order of fields does not matter.
func same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	normal := func(text []byte) []byte {
		var v any
		if json.Unmarshal(text, &v) != nil {
			return text
		}
		out, _ := json.Marshal(v)
		return out
	}
	return bytes.Equal(normal(a), normal(b))
}
