package apiserver_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The objects are about as large as those of the peers' measurements: 1 KB, and 3 KB with defaults
// and managedFields.
var (
	benchConfigMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"c-","labels":{"app":"bench"}},"data":{"k":"` +
		strings.Repeat("x", 700) + `"}}`
	benchPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"p-","labels":{"app":"bench","tier":"web"}},"spec":{"containers":[
		{"name":"web","image":"registry.example.com/team/web:1.2.3","args":["--listen=:8080","--verbose"],
		 "env":[{"name":"A","value":"1"},{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],
		 "ports":[{"name":"http","containerPort":8080}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"memory":"128Mi"}},
		 "readinessProbe":{"httpGet":{"path":"/ready","port":"http"}},"volumeMounts":[{"name":"data","mountPath":"/data"}]},
		{"name":"sidecar","image":"registry.example.com/team/sidecar:2","volumeMounts":[{"name":"data","mountPath":"/data"}]}],
		"volumes":[{"name":"data","emptyDir":{}},{"name":"config","configMap":{"name":"config"}}]}}`
)

func BenchmarkCreate(b *testing.B) {
	for _, c := range []struct{ name, line, body string }{
		{"ConfigMap", "POST " + cms, benchConfigMap},
		{"Pod", "POST " + pods, benchPod},
	} {
		b.Run(c.name, func(b *testing.B) {
			a := newAPI(b)
			b.ReportAllocs()
			for b.Loop() {
				a.send(201, c.line, "application/json", c.body)
			}
		})
	}
}

func BenchmarkPatchStatus(b *testing.B) {
	a := newAPI(b)
	name := a.want(201, "POST "+pods, "", benchPod).str("metadata", "name")
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		a.send(200, "PATCH "+pods+"/"+name+"/status", strategic, fmt.Sprintf(
			`{"status":{"conditions":[{"type":"Ready","status":"True","message":"%d"}]}}`, n))
	}
}

// send is want without a look at the answer's body.
func (a *api) send(code int, line, contentType, body string) {
	method, path, _ := strings.Cut(line, " ")
	req, err := http.NewRequest(method, "http://setpoint"+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", "tester/1.0")
	resp, err := a.client.Transport.RoundTrip(req)
	if err != nil {
		a.t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != code {
		a.t.Fatalf("%s: got %d", line, resp.StatusCode)
	}
}
