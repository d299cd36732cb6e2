package apiserver_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// encodeProto returns an object as typed clients send it.
func encodeProto(t *testing.T, obj runtime.Object) string {
	t.Helper()
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestProtobufBodies(t *testing.T) {
	a := newAPI(t)
	meta := func(kind, version string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: version, Kind: kind} }
	made := a.want(201, "POST "+cms, protobufType, encodeProto(t, &corev1.ConfigMap{
		TypeMeta: meta("ConfigMap", "v1"), ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"l": "1"}},
		Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {0, 1, 255}},
	}))
	if made.str("data", "k") != "v" || made.str("binaryData", "b") != "AAH/" || made.str("metadata", "labels", "l") != "1" {
		t.Errorf("got %s", made.text)
	}
	seconds := int64(0)
	a.want(201, "POST "+pods, protobufType, encodeProto(t, &corev1.Pod{
		TypeMeta: meta("Pod", "v1"), ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "x"}}},
	}))
	a.want(201, "POST "+pods+"/p/eviction", protobufType, encodeProto(t, &policyv1.Eviction{
		TypeMeta: meta("Eviction", "policy/v1"), ObjectMeta: metav1.ObjectMeta{Name: "p"},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: &seconds},
	}))
	a.want(404, "GET "+pods+"/p", "", "")

	uid := made.str("metadata", "uid")
	wrong, right := metav1.NewUIDPreconditions("other"), metav1.NewUIDPreconditions(uid)
	options := func(p *metav1.Preconditions) string {
		return encodeProto(t, &metav1.DeleteOptions{TypeMeta: meta("DeleteOptions", "v1"), Preconditions: p})
	}
	a.want(409, "DELETE "+cms+"/a", protobufType, options(wrong))
	a.want(200, "DELETE "+cms+"/a", protobufType, options(right))
}

func TestEventsAreOneStore(t *testing.T) {
	a := newAPI(t)
	const (
		core   = "/api/v1/namespaces/default/events"
		events = "/apis/events.k8s.io/v1/namespaces/default/events"
	)
	made := a.want(201, "POST "+core, "", `{"metadata":{"name":"e"},"involvedObject":{"kind":"Pod","name":"p","namespace":"default"},
		"reason":"R","message":"m","type":"Normal","count":1,"firstTimestamp":"2020-01-01T00:00:00Z"}`)
	seen := a.want(200, "GET "+events+"/e", "", "")
	if seen.str("regarding", "name") != "p" || seen.str("note") != "m" || seen.rev() != made.rev() {
		t.Errorf("got %s", seen.text)
	}
	changed := a.want(200, "PATCH "+events+"/e", merge, `{"metadata":{"labels":{"l":"1"}}}`)
	if changed.str("apiVersion") != "events.k8s.io/v1" {
		t.Errorf("got %s", changed.text)
	}
	again := a.want(200, "GET "+core+"/e", "", "")
	if again.str("metadata", "labels", "l") != "1" || again.str("message") != "m" || again.rev() != changed.rev() ||
		fmt.Sprint(tree.Get(again.body, "count")) != "1" {
		t.Errorf("got %s", again.text)
	}
	a.want(200, "DELETE "+events+"/e", "", "")
	a.want(404, "GET "+core+"/e", "", "")
}

// An approver writes conditions through a view, and nothing else.
func TestApproval(t *testing.T) {
	const csrs = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	a := newAPI(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))
	got := a.want(201, "POST "+csrs, "", `{"metadata":{"name":"c"},"spec":{"signerName":"a.b/c","usages":["client auth"],"username":"liar","request":"`+text+`"}}`)
	if got.str("spec", "username") != "admin" {
		t.Errorf("who asks is not written down: %s", got.text)
	}
	const condition = `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"r","message":"m"}]},"spec":{"signerName":"x.y/z"}}`
	a.want(422, "PATCH "+csrs+"/c/status", merge, condition)
	got = a.want(200, "PATCH "+csrs+"/c/approval", merge, condition)
	conditions := tree.List(got.body, "status", "conditions")
	if len(conditions) != 1 || got.str("spec", "signerName") != "a.b/c" {
		t.Errorf("got %s", got.text)
	}
	a.want(422, "PATCH "+csrs+"/c/approval", merge, `{"status":{"conditions":[]}}`)
}
