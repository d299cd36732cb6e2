package schema_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// Conform makes of a tree what DecodeJSON makes of its text.
func TestConform_AgreesWithDecodeJSON(t *testing.T) {
	rounds, seed := mutationRounds(), newSeed(t)
	for _, f := range loadFixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			for round := range rounds {
				m := mutator{rand.New(rand.NewPCG(seed, uint64(round)))}
				var tree map[string]any
				if err := kjson.UnmarshalCaseSensitivePreserveInts(m.body(f.json), &tree); err != nil || tree == nil {
					continue // the mutation hit the root
				}
				body, err := json.Marshal(tree)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(ours(f, body), conformed(f, tree)); diff != "" {
					t.Fatalf("round %d: %s\n%s", round, diff, body)
				}
			}
		})
	}
}

func conformed(f fixture, tree map[string]any) verdict {
	findings, err := f.schema.Conform(tree)
	if err != nil {
		return verdict{Err: err.Error()}
	}
	return verdict{Findings: findings, JSON: string(appendStamped(f.schema, tree))}
}

func TestConform_NamesThePath(t *testing.T) {
	pod := schema.Builtin("io.k8s.api.core.v1.Pod")
	for _, c := range []struct {
		name string
		tree map[string]any
		path string
		text string
	}{{
		name: "a fraction for an integer",
		tree: map[string]any{"spec": map[string]any{"containers": []any{map[string]any{}, map[string]any{"ports": []any{map[string]any{"containerPort": 1.5}}}}}},
		path: "spec.containers[1].ports[0].containerPort",
		text: "json: cannot unmarshal number 1.5 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
	}, {
		name: "a value that no tree holds",
		tree: map[string]any{"spec": map[string]any{"nodeName": 'x'}},
		path: "spec.nodeName",
		text: "json: cannot unmarshal number into Go struct field PodSpec.spec.nodeName of type string",
	}} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pod.Conform(c.tree)
			e, ok := err.(*schema.Error)
			if !ok {
				t.Fatalf("got %v", err)
			}
			if e.Path != c.path || !strings.Contains(e.Error(), c.text) {
				t.Errorf("got %q at %q", e, e.Path)
			}
		})
	}
}
