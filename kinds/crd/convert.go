package crd

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Converters is whom definitions ask whose objects are converted by a webhook.
type Converters struct {
	// Post sends a body to the server of a clientConfig, a tree with url or service, and caBundle, and
	// returns what it answers. See package apiserver/webhook.
	Post func(ctx context.Context, config map[string]any, body []byte, timeout time.Duration) ([]byte, error)
	// UID names a question.
	UID func() string
}

// conversionTimeout bounds a question, as upstream does.
const conversionTimeout = 30 * time.Second

// converter converts the objects of a definition by asking its webhook.
type converter struct {
	Converters
	config map[string]any
	// review is the version of ConversionReview that the webhook is asked in: the first that it names
	// and that is known; "" if there is none.
	review string
}

// newConverter returns nil for a definition whose versions differ in their names alone.
func newConverter(c *apiextensionsv1.CustomResourceConversion, ask Converters) *converter {
	if c == nil || c.Strategy != apiextensionsv1.WebhookConverter || c.Webhook == nil || c.Webhook.ClientConfig == nil {
		return nil
	}
	out := &converter{Converters: ask, config: clientConfig(c.Webhook.ClientConfig)}
	for _, v := range c.Webhook.ConversionReviewVersions {
		if v == "v1" || v == "v1beta1" {
			out.review = v
			break
		}
	}
	return out
}

func clientConfig(c *apiextensionsv1.WebhookClientConfig) map[string]any {
	config := map[string]any{}
	if c.URL != nil {
		config["url"] = *c.URL
	}
	if s := c.Service; s != nil {
		service := map[string]any{"namespace": s.Namespace, "name": s.Name}
		if s.Port != nil {
			service["port"] = int64(*s.Port)
		}
		if s.Path != nil {
			service["path"] = *s.Path
		}
		config["service"] = service
	}
	if len(bytes.TrimSpace(c.CABundle)) > 0 {
		config["caBundle"] = base64.StdEncoding.EncodeToString(c.CABundle)
	}
	return config
}

// convert asks for objects of one version as those of another, all at once. What it is given is kept
// as it was sent; what comes back is as the webhook made it, but for the metadata: of that, only
// labels and annotations can be changed.
func (c *converter) convert(ctx context.Context, from, to schema.GroupVersionKind, objs []kinds.Object) ([]kinds.Object, error) {
	if c.review == "" {
		return nil, errors.New("no supported conversion review versions")
	}
	converted, err := c.ask(ctx, to.GroupVersion().String(), objs)
	if err != nil {
		return nil, fmt.Errorf("conversion webhook for %v failed: %w", from, err)
	}
	if len(converted) != len(objs) {
		return nil, fmt.Errorf("conversion webhook for %v returned %d objects, expected %d", from, len(converted), len(objs))
	}
	for i, obj := range converted {
		if err := accept(objs[i], obj, to, i); err != nil {
			return nil, fmt.Errorf("conversion webhook for %v returned invalid %w", from, err)
		}
	}
	return converted, nil
}

// ask sends a ConversionReview and reads the objects of the answer.
func (c *converter) ask(ctx context.Context, to string, objs []kinds.Object) ([]kinds.Object, error) {
	review := map[string]any{
		"apiVersion": apiextensionsv1.GroupName + "/" + c.review, "kind": "ConversionReview",
		"request": map[string]any{"uid": c.UID(), "desiredAPIVersion": to, "objects": withoutRevisions(objs)},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	text, err := c.Post(ctx, c.config, body, conversionTimeout)
	if err != nil {
		return nil, err
	}
	var answer apiextensionsv1.ConversionReview
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	if err := c.sound(&answer, tree.Str(review, "request", "uid")); err != nil {
		return nil, err
	}
	read := make([]kinds.Object, len(answer.Response.ConvertedObjects))
	for i, raw := range answer.Response.ConvertedObjects {
		var u unstructured.Unstructured
		if err := u.UnmarshalJSON(raw.Raw); err != nil {
			return nil, err
		}
		read[i] = u.Object
	}
	return read, nil
}

// withoutRevisions returns the objects as a webhook sees them. They share everything else.
func withoutRevisions(objs []kinds.Object) []kinds.Object {
	out := make([]kinds.Object, len(objs))
	for i, obj := range objs {
		m := maps.Clone(tree.Map(obj, "metadata"))
		delete(m, "resourceVersion")
		out[i] = maps.Clone(obj)
		out[i]["metadata"] = m
	}
	return out
}

// sound says what is wrong with an answer. The old version asked for less.
func (c *converter) sound(answer *apiextensionsv1.ConversionReview, uid string) error {
	want := schema.GroupVersionKind{Group: apiextensionsv1.GroupName, Version: c.review, Kind: "ConversionReview"}
	strict := c.review == "v1"
	switch said := answer.Response; {
	case strict && answer.GroupVersionKind() != want:
		return fmt.Errorf("expected webhook response of %v, got %v", want, answer.GroupVersionKind())
	case said == nil:
		return errors.New("no response provided")
	case strict && string(said.UID) != uid:
		return fmt.Errorf("expected response.uid=%q, got %q", uid, said.UID)
	case said.Result.Status == metav1.StatusSuccess:
		return nil
	case said.Result.Message != "":
		return errors.New(said.Result.Message)
	default:
		return fmt.Errorf("response.result.status was '%s', not 'Success'", said.Result.Status)
	}
}

// accept checks that an object is what was asked for, and gives it back the metadata that a webhook
// has no say in.
func accept(sent, obj kinds.Object, to schema.GroupVersionKind, i int) error {
	is := schema.FromAPIVersionAndKind(tree.Str(obj, "apiVersion"), tree.Str(obj, "kind"))
	switch {
	case is.GroupVersion() != to.GroupVersion():
		return fmt.Errorf("object at index %d: invalid groupVersion (expected %v, received %v)",
			i, to.GroupVersion(), is.GroupVersion())
	case is.Kind != tree.Str(sent, "kind"):
		return fmt.Errorf("object at index %d: invalid kind (expected %v, received %v)", i, tree.Str(sent, "kind"), is.Kind)
	}
	for _, must := range []struct{ field, name string }{{"name", "name"}, {"namespace", "namespace"}, {"uid", "UID"}} {
		was, is := tree.Str(sent, "metadata", must.field), tree.Str(obj, "metadata", must.field)
		if was != is {
			return fmt.Errorf("object: must have the same %s: %s != %s", must.name, was, is)
		}
	}
	if err := restoreMetadata(sent, obj); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// restoreMetadata gives a converted object the metadata of the one that was sent, with the labels and
// annotations of its own.
func restoreMetadata(sent, obj kinds.Object) error {
	said, ok := obj["metadata"].(map[string]any)
	if !ok {
		return errors.New("missing metadata in converted object")
	}
	kept := tree.CopyMap(tree.Map(sent, "metadata"))
	for name, check := range map[string]func(map[string]string) field.ErrorList{
		"labels": func(m map[string]string) field.ErrorList {
			return metav1validation.ValidateLabels(m, field.NewPath("metadata", "labels"))
		},
		"annotations": func(m map[string]string) field.ErrorList {
			return apivalidation.ValidateAnnotations(m, field.NewPath("metadata", "annotation"))
		},
	} {
		if err := restore(name, said, kept, check); err != nil {
			return err
		}
	}
	obj["metadata"] = kept
	return nil
}

// restore takes labels or annotations over, once they are known to be fit.
func restore(name string, said, kept map[string]any, check func(map[string]string) field.ErrorList) error {
	if said[name] == nil {
		delete(kept, name)
		return nil
	}
	values, ok := said[name].(map[string]any)
	if !ok {
		return fmt.Errorf("invalid metadata.%s of type %T in converted object", name, said[name])
	}
	texts := make(map[string]string, len(values))
	for key, v := range values {
		if texts[key], ok = v.(string); !ok {
			return fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, key, v)
		}
	}
	if errs := check(texts); len(errs) > 0 {
		return errs.ToAggregate()
	}
	kept[name] = values
	return nil
}
