package node

import (
	"cmp"
	"context"
	"fmt"
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
// has, then envFrom, then env, each of which may refer to those before it.
func (s sources) environment(ctx context.Context, c *corev1.Container) (*environ, error) {
	e := &environ{values: map[string]string{}}
	e.set("HOSTNAME", cmp.Or(s.pod.Spec.Hostname, s.pod.Name))
	e.set("POD_IP", s.facts.podIP)
	if len(c.Ports) > 0 {
		e.set("PORT", strconv.Itoa(int(c.Ports[0].ContainerPort)))
	}
	for _, from := range c.EnvFrom {
		data, err := s.envFrom(ctx, from)
		if err != nil {
			return nil, err
		}
		keys := make([]string, 0, len(data))
		for k := range data {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
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
	switch {
	case from.ConfigMapRef != nil:
		data, _, err := s.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		return data, err
	case from.SecretRef != nil:
		data, _, err := s.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
		return data, err
	}
	return nil, nil
}

// valueFrom reports present=false for an optional source that is not there.
func (s sources) valueFrom(ctx context.Context, c *corev1.Container, from *corev1.EnvVarSource) (value string, present bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = fieldValue(s.pod, from.FieldRef.FieldPath, s.facts)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = resourceValue(s.pod, c, from.ResourceFieldRef, s.facts)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, found, err := s.configMap(ctx, ref.Name, ref.Optional)
		return pick(data, found, ref.Key, "ConfigMap", s.pod.Namespace+"/"+ref.Name, ref.Optional, err)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, found, err := s.secret(ctx, ref.Name, ref.Optional)
		return pick(data, found, ref.Key, "Secret", s.pod.Namespace+"/"+ref.Name, ref.Optional, err)
	}
	return "", false, fmt.Errorf("valueFrom: one of fieldRef, resourceFieldRef, configMapKeyRef and secretKeyRef must be set")
}

func pick(data map[string][]byte, found bool, key, kind, name string, optional *bool, err error) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	value, ok := data[key]
	if !ok && found && !isTrue(optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s", key, kind, name)
	}
	return string(value), ok, nil
}

// configMap returns all data of a ConfigMap, and whether it is there. Its
// absence is an error unless it is optional.
func (s sources) configMap(ctx context.Context, name string, optional *bool) (map[string][]byte, bool, error) {
	var cm corev1.ConfigMap
	err := s.Get(ctx, types.NamespacedName{Namespace: s.pod.Namespace, Name: name}, &cm)
	if apierrors.IsNotFound(err) {
		if isTrue(optional) {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("configmap %q not found", name)
	}
	if err != nil {
		return nil, false, err
	}
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	return data, true, nil
}

// secret is configMap for a Secret.
func (s sources) secret(ctx context.Context, name string, optional *bool) (map[string][]byte, bool, error) {
	var secret corev1.Secret
	err := s.Get(ctx, types.NamespacedName{Namespace: s.pod.Namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		if isTrue(optional) {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("secret %q not found", name)
	}
	if err != nil {
		return nil, false, err
	}
	return secret.Data, true, nil
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
