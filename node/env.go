package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sources reads what a pod refers to.
type sources struct {
	client.Reader
	pod   *corev1.Pod
	facts facts
}

// environ is an ordered set of variables.
type environ struct {
	names  []string
	values map[string]string
}

func (e *environ) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environ) list() []string {
	list := make([]string, len(e.names))
	for i, name := range e.names {
		list[i] = name + "=" + e.values[name]
	}
	return list
}

// environment resolves the variables of a container: those that every container
// has, of Services, then envFrom, then env, each of which may refer to those
// before it.
func (s sources) environment(ctx context.Context, c *corev1.Container) (*environ, error) {
	e := &environ{values: map[string]string{}}
	e.set("HOSTNAME", cmp.Or(s.pod.Spec.Hostname, s.pod.Name))
	e.set("POD_IP", s.facts.podIP)
	if len(c.Ports) > 0 {
		e.set("PORT", strconv.Itoa(int(c.Ports[0].ContainerPort)))
	}
	if err := s.serviceLinks(ctx, e); err != nil {
		return nil, err
	}
	for _, from := range c.EnvFrom {
		data, err := s.envFrom(ctx, from)
		if err != nil {
			return nil, err
		}
		for _, k := range slices.Sorted(maps.Keys(data)) {
			e.set(from.Prefix+k, string(data[k]))
		}
	}
	for i := range c.Env {
		v := &c.Env[i]
		value := Expand(v.Value, e.values)
		if v.ValueFrom != nil {
			found, present, err := s.valueFrom(ctx, c, v.ValueFrom)
			if err != nil {
				return nil, fmt.Errorf("env %s: %w", v.Name, err)
			}
			if !present {
				continue
			}
			value = found
		}
		e.set(v.Name, value)
	}
	return e, nil
}

func (s sources) envFrom(ctx context.Context, from corev1.EnvFromSource) (map[string][]byte, error) {
	var data map[string][]byte
	var err error
	switch {
	case from.ConfigMapRef != nil:
		data, _, err = s.data(ctx, configMapRef(from.ConfigMapRef.Name, from.ConfigMapRef.Optional))
	case from.SecretRef != nil:
		data, _, err = s.data(ctx, secretRef(from.SecretRef.Name, from.SecretRef.Optional))
	}
	return data, err
}

// valueFrom reports present=false for an optional source that is not there.
func (s sources) valueFrom(
	ctx context.Context, c *corev1.Container, from *corev1.EnvVarSource,
) (value string, present bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = fieldValue(s.pod, from.FieldRef.FieldPath, s.facts)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = resourceValue(s.pod, c, from.ResourceFieldRef, s.facts)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		k := from.ConfigMapKeyRef
		return s.key(ctx, configMapRef(k.Name, k.Optional), k.Key)
	case from.SecretKeyRef != nil:
		k := from.SecretKeyRef
		return s.key(ctx, secretRef(k.Name, k.Optional), k.Key)
	}
	return "", false, errors.New("valueFrom: one of fieldRef, resourceFieldRef, " +
		"configMapKeyRef and secretKeyRef must be set")
}

// ref refers to a ConfigMap or Secret in the pod's namespace.
type ref struct {
	kind, name string
	optional   bool
}

func configMapRef(name string, optional *bool) ref { return ref{"ConfigMap", name, isTrue(optional)} }
func secretRef(name string, optional *bool) ref    { return ref{"Secret", name, isTrue(optional)} }

// data returns all that an object holds, and whether it is there. Its absence
// is an error unless it is optional.
func (s sources) data(ctx context.Context, r ref) (data map[string][]byte, found bool, err error) {
	key := types.NamespacedName{Namespace: s.pod.Namespace, Name: r.name}
	if r.kind == "Secret" {
		var secret corev1.Secret
		err = s.Get(ctx, key, &secret)
		data = secret.Data
	} else {
		var cm corev1.ConfigMap
		err = s.Get(ctx, key, &cm)
		data = maps.Clone(cm.BinaryData)
		if data == nil {
			data = map[string][]byte{}
		}
		for k, v := range cm.Data {
			data[k] = []byte(v)
		}
	}
	switch {
	case err == nil:
		return data, true, nil
	case !apierrors.IsNotFound(err):
		return nil, false, err
	case r.optional:
		return nil, false, nil
	default:
		return nil, false, fmt.Errorf("%s %q not found", strings.ToLower(r.kind), r.name)
	}
}

// key returns one value of an object, and whether it is there.
func (s sources) key(ctx context.Context, r ref, key string) (string, bool, error) {
	data, found, err := s.data(ctx, r)
	if err != nil {
		return "", false, err
	}
	value, ok := data[key]
	if !ok && found && !r.optional {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, r.kind, s.pod.Namespace, r.name)
	}
	return string(value), ok, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// Expand replaces each $(NAME) by the variable's value. A name without a value
// stays as it is written, and $$ is a $ that begins nothing.
func Expand(text string, values map[string]string) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i+1 == len(text) {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:i])
		text = text[i:]
		end := strings.IndexByte(text, ')')
		switch {
		case text[1] == '$':
			out.WriteByte('$')
			text = text[2:]
		case text[1] == '(' && end > 0:
			value, ok := values[text[2:end]]
			if !ok {
				value = text[:end+1]
			}
			out.WriteString(value)
			text = text[end+1:]
		default:
			out.WriteByte('$')
			text = text[1:]
		}
	}
}

// expandAll is Expand for each of a list.
func expandAll(list []string, values map[string]string) []string {
	expanded := make([]string, len(list))
	for i, text := range list {
		expanded[i] = Expand(text, values)
	}
	return expanded
}
