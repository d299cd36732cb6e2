package schema_test

import (
	"errors"
	"testing"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

func TestError_Converted(t *testing.T) {
	deployment := schema.Builtin("io.k8s.api.apps.v1.Deployment")
	for _, c := range []struct {
		spec map[string]any
		want string
	}{
		{map[string]any{"replicas": "s"}, "unrecognized type: int32"},
		{map[string]any{"replicas": 1.5}, "cannot convert float64 to int32"},
		{map[string]any{"paused": int64(1)}, "unrecognized type: bool"},
		{map[string]any{"strategy": "s"}, "cannot restore struct from: string"},
		{map[string]any{"strategy": map[string]any{"type": int64(5)}}, "cannot convert int64 to v1.DeploymentStrategyType"},
		{map[string]any{"strategy": map[string]any{"type": true}}, "unrecognized type: string"},
		{map[string]any{"selector": map[string]any{"matchLabels": []any{}}}, "cannot restore map from slice"},
		{map[string]any{"selector": map[string]any{"matchExpressions": map[string]any{}}}, "cannot restore slice from map"},
		{map[string]any{"strategy": map[string]any{"rollingUpdate": map[string]any{"maxSurge": true}}},
			"json: cannot unmarshal bool into Go value of type int32"},
	} {
		_, err := deployment.Conform(map[string]any{"spec": c.spec})
		var wrong *schema.Error
		if !errors.As(err, &wrong) || wrong.Converted() != c.want {
			t.Errorf("%v: got %v (%v), want %s", c.spec, wrong.Converted(), err, c.want)
		}
	}
}
