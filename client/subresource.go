package client

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
)

// Status returns a writer of objects' status.
func (c *Client) Status() cr.SubResourceWriter { return c.SubResource("status") }

// SubResource returns a client of the named subresource.
func (c *Client) SubResource(name string) cr.SubResourceClient {
	return subresource{SubResourceClient: c.Client.SubResource(name), client: c, name: name}
}

// subresource records writes as those of the object they are part of.
type subresource struct {
	cr.SubResourceClient
	client *Client
	name   string
}

// Create creates a subresource: most change the object that they are of, and few answer with its
// revision.
func (s subresource) Create(ctx context.Context, obj, sub cr.Object, opts ...cr.SubResourceCreateOption) error {
	err := s.SubResourceClient.Create(ctx, obj, sub, opts...)
	w := tracked(ctx)
	var o cr.SubResourceCreateOptions
	o.ApplyOptions(opts)
	switch {
	case w == nil, len(o.DryRun) > 0, s.name == "token": // a token changes nothing
	case err == nil && s.name == "eviction":
		w.deleted(deletion{s.client.kindOf(obj), cr.ObjectKeyFromObject(obj), obj.GetUID()})
	case err == nil || outcomeUnknown(err):
		w.doubt(s.client.doubtOf(obj))
	}
	return err
}

func (s subresource) Update(ctx context.Context, obj cr.Object, opts ...cr.SubResourceUpdateOption) error {
	var o cr.SubResourceUpdateOptions
	o.ApplyOptions(opts)
	return s.record(ctx, obj, o.SubResourceBody, s.SubResourceClient.Update(ctx, obj, opts...))
}

func (s subresource) Patch(ctx context.Context, obj cr.Object, patch cr.Patch, opts ...cr.SubResourcePatchOption) error {
	var o cr.SubResourcePatchOptions
	o.ApplyOptions(opts)
	return s.record(ctx, obj, o.SubResourceBody, s.SubResourceClient.Patch(ctx, obj, patch, opts...))
}

func (s subresource) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...cr.SubResourceApplyOption) error {
	return s.client.recordApply(ctx, obj, s.SubResourceClient.Apply(ctx, obj, opts...))
}

// record takes note of a write; the server answered with the body if there was one.
func (s subresource) record(ctx context.Context, obj, body cr.Object, err error) error {
	if w := tracked(ctx); w != nil && err == nil && body != nil {
		w.wrote(s.client.kindOf(obj), revisionOf(body.GetResourceVersion()))
	}
	return s.client.record(ctx, obj, err)
}

// recordApply takes note of an apply, whose configuration holds the server's answer.
func (c *Client) recordApply(ctx context.Context, obj runtime.ApplyConfiguration, err error) error {
	w := tracked(ctx)
	if w == nil || err != nil && !outcomeUnknown(err) {
		return err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Namespace       string `json:"namespace"`
			Name            string `json:"name"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	raw, broken := json.Marshal(obj)
	if broken != nil || json.Unmarshal(raw, &head) != nil {
		return err
	}
	gvk := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
	if err != nil {
		w.doubt(doubt{gvk, types.NamespacedName{Namespace: head.Metadata.Namespace, Name: head.Metadata.Name}})
		return err
	}
	w.wrote(gvk, revisionOf(head.Metadata.ResourceVersion))
	return nil
}
