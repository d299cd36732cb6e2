package schema_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	serjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// sample is a body as clients send it, and the schema of its kind.
type sample struct {
	name   string
	schema *schema.Schema
	body   []byte
}

func samples() []sample {
	return []sample{
		{"ConfigMap1K", schema.Builtin("io.k8s.api.core.v1.ConfigMap"), []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings",
"namespace":"default","labels":{"app":"web"}},"data":{"config.yaml":"` + strings.Repeat(`key: value\n`, 70) + `","level":"info"}}`)},
		{"Pod3K", schema.Builtin("io.k8s.api.core.v1.Pod"), []byte(podBody)},
	}
}

// podBody is a pod of a Deployment as a kubelet writes its status back.
const podBody = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-6d4cf56db6-x7k2p","generateName":"web-6d4cf56db6-","namespace":"default",
"uid":"0e3a4f0e-2b7c-4d41-9d9e-2a7f5c1b8e11","resourceVersion":"184467","creationTimestamp":"2026-03-01T10:00:00Z",
"labels":{"app":"web","pod-template-hash":"6d4cf56db6","tier":"front"},"annotations":{"example.com/revision":"7"},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-6d4cf56db6","uid":"7a2b1c3d-0000-4000-8000-123456789abc","controller":true,"blockOwnerDeletion":true}]},
"spec":{"volumes":[{"name":"config","configMap":{"name":"web","defaultMode":420}},{"name":"kube-api-access","projected":{"sources":[
{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},
{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],
"containers":[{"name":"web","image":"registry.example.com/web:1.27","command":["/bin/web","--listen=:8080"],"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],
"env":[{"name":"LEVEL","value":"info"},{"name":"POD_IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}],
"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},
"volumeMounts":[{"name":"config","mountPath":"/etc/web"},{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],
"readinessProbe":{"httpGet":{"path":"/healthz","port":"http","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},
"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],
"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","nodeName":"node-1",
"securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},
"status":{"phase":"Running","conditions":[{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T10:00:00Z"},
{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T10:00:00Z"},{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T10:00:03Z"}],
"hostIP":"10.0.0.1","podIP":"127.1.0.7","podIPs":[{"ip":"127.1.0.7"}],"startTime":"2026-03-01T10:00:00Z",
"containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-03-01T10:00:02Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example.com/web:1.27","imageID":"","containerID":"process://4711","started":true}],"qosClass":"Burstable"}}`

func BenchmarkDecodeJSON(b *testing.B) {
	for _, s := range samples() {
		b.Run(s.name+"/schema", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(s.body)))
			for b.Loop() {
				if _, err := s.schema.DecodeJSON(s.body); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(s.name+"/typed", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(s.body)))
			strict := strictTyped()
			for b.Loop() {
				if _, _, err := strict.Decode(s.body, nil, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// strictTyped is how upstream's server reads JSON.
func strictTyped() runtime.Serializer {
	return serjson.NewSerializerWithOptions(serjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, serjson.SerializerOptions{Strict: true})
}

func BenchmarkAppend(b *testing.B) {
	for _, s := range samples() {
		got, err := s.schema.DecodeJSON(s.body)
		if err != nil {
			b.Fatal(err)
		}
		typed, _, err := strictTyped().Decode(s.body, nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(s.name+"/schema", func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				buf, _ = s.schema.Append(buf[:0], got.Object)
			}
		})
		b.Run(s.name+"/typed", func(b *testing.B) {
			b.ReportAllocs()
			var buf bytes.Buffer
			for b.Loop() {
				buf.Reset()
				if err := json.NewEncoder(&buf).Encode(typed); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeProto(b *testing.B) {
	proto := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	codec := serializer.NewCodecFactory(scheme.Scheme).WithoutConversion()
	for _, s := range samples() {
		typed, gvk, err := strictTyped().Decode(s.body, nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		body, err := runtime.Encode(codec.EncoderForVersion(proto, gvk.GroupVersion()), typed)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(s.name+"/schema", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _, raw, err := schema.Envelope(body)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.schema.DecodeProto(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(s.name+"/typed", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := proto.Decode(body, nil, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendProto(b *testing.B) {
	f := loadFixture(b, "core.v1.Pod")
	decoded, err := f.schema.DecodeJSON([]byte(podBody))
	if err != nil {
		b.Fatal(err)
	}
	text, _ := f.schema.Append(nil, decoded.Object)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var out []byte
	for b.Loop() {
		if out, err = f.schema.AppendProto(out[:0], text); err != nil {
			b.Fatal(err)
		}
	}
}
