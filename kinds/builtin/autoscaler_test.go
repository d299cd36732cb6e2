package builtin_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// oldAutoscaler is the record of autoscaling/v1.
func oldAutoscaler(t *testing.T) *kinds.Kind {
	t.Helper()
	for _, k := range builtin.All() {
		if k.Group == "autoscaling" && k.Version == "v1" {
			return k
		}
	}
	t.Fatal("there is no record of autoscaling/v1")
	return nil
}

// everyMetric is an autoscaler with one metric of each kind, aimed at and measured.
const everyMetric = `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler",
"metadata":{"name":"a","namespace":"ns","annotations":{"keep":"me"}},
"spec":{"minReplicas":2,"maxReplicas":5,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},
"metrics":[
 {"type":"Object","object":{"describedObject":{"apiVersion":"v1","kind":"Service","name":"s"},"metric":{"name":"m","selector":{"matchLabels":{"a":"b"}}},"target":{"type":"Value","value":"3"}}},
 {"type":"Object","object":{"describedObject":{"kind":"Service","name":"s"},"metric":{"name":"m"},"target":{"type":"AverageValue","averageValue":"4"}}},
 {"type":"Pods","pods":{"metric":{"name":"m"},"target":{"type":"AverageValue","averageValue":"5"}}},
 {"type":"External","external":{"metric":{"name":"m"},"target":{"type":"Value","value":"6"}}},
 {"type":"ContainerResource","containerResource":{"name":"cpu","container":"c","target":{"type":"Utilization","averageUtilization":7}}},
 {"type":"Resource","resource":{"name":"memory","target":{"type":"AverageValue","averageValue":"8Mi"}}},
 {"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":9}}}],
"behavior":{"scaleUp":{"stabilizationWindowSeconds":0,"selectPolicy":"Max","policies":[{"type":"Pods","value":4,"periodSeconds":15}]}}},
"status":{"currentReplicas":2,"desiredReplicas":3,
"currentMetrics":[
 {"type":"Object","object":{"describedObject":{"kind":"Service","name":"s"},"metric":{"name":"m"},"current":{"value":"1"}}},
 {"type":"Resource","resource":{"name":"cpu","current":{"averageUtilization":50,"averageValue":"10m"}}}],
"conditions":[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`

func TestAutoscalersKeepTheirMeaningInTheOldForm(t *testing.T) {
	k, stored := oldAutoscaler(t), kindOf(t, "horizontalpodautoscalers.autoscaling")
	decoded, err := stored.Schema.DecodeJSON([]byte(everyMetric))
	if err != nil {
		t.Fatal(err)
	}
	obj := tree.CopyMap(decoded.Object)
	k.Storage.FromStored(obj)
	if findings, err := k.Schema.Conform(obj); err != nil || len(findings) > 0 {
		t.Fatalf("not an autoscaler of v1: %v %v", findings, err)
	}
	if got := tree.Int(obj, "spec", "targetCPUUtilizationPercentage"); got != 9 {
		t.Errorf("the target is %d %%", got)
	}
	if got := tree.Int(obj, "status", "currentCPUUtilizationPercentage"); got != 50 {
		t.Errorf("the current utilization is %d %%", got)
	}
	k.Storage.ToStored(obj)
	if d := cmp.Diff(canonical(t, stored, decoded.Object), canonical(t, stored, obj)); d != "" {
		t.Errorf("there and back (-before +after):\n%s", d)
	}
}

func canonical(t *testing.T, k *kinds.Kind, obj kinds.Object) (out map[string]any) {
	t.Helper()
	data, _ := k.Schema.Append(nil, obj)
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAutoscalersOfTheOldForm(t *testing.T) {
	k := oldAutoscaler(t)
	obj := func(text string) kinds.Object {
		decoded, err := k.Schema.DecodeJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return decoded.Object
	}
	bad := obj(`{"metadata":{"name":"a"},"spec":{"maxReplicas":1,"scaleTargetRef":{"kind":"Deployment","name":"d"},"targetCPUUtilizationPercentage":0}}`)
	var got []string
	for _, err := range k.Strategy.ValidateCreate(bad) {
		got = append(got, err.Error())
	}
	want := []string{
		`spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group`,
		`spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}

	old := obj(`{"metadata":{"name":"a"},"spec":{"maxReplicas":1,"minReplicas":1,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"targetCPUUtilizationPercentage":60},"status":{"currentReplicas":4,"desiredReplicas":4}}`)
	next := tree.CopyMap(old)
	tree.Set(next, int64(70), "spec", "targetCPUUtilizationPercentage")
	tree.Set(next, int64(9), "status", "currentReplicas")
	if err := k.Strategy.PrepareForUpdate(newWorld().env(), next, old); err != nil {
		t.Fatal(err)
	}
	if tree.Int(next, "spec", "targetCPUUtilizationPercentage") != 70 || tree.Int(next, "status", "currentReplicas") != 4 {
		t.Errorf("an update made %v", next)
	}
	tree.Set(next, int64(5), "status", "currentReplicas")
	k.Strategy.PrepareForStatusUpdate(newWorld().env(), next, old)
	if tree.Int(next, "spec", "targetCPUUtilizationPercentage") != 60 || tree.Int(next, "status", "currentReplicas") != 5 {
		t.Errorf("a write of the status made %v", next)
	}
	if got := k.Columns[2].Cell(old, time.Time{}); got != "cpu: <unknown>/60%" {
		t.Errorf("its targets are printed as %v", got)
	}
}
