package etcd_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/store/etcd"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]etcd.Options{
		"etcd://a:1":           {Endpoints: []string{"a:1"}},
		"etcd://a:1,b:2/p":     {Endpoints: []string{"a:1", "b:2"}, Prefix: "/p"},
		"etcd://u:p@a:1,b:2":   {Endpoints: []string{"a:1", "b:2"}, Username: "u", Password: "p"},
		"etcd://10.0.0.1:1/p/": {Endpoints: []string{"10.0.0.1:1"}, Prefix: "/p/"},
	} {
		got, err := etcd.Parse(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	got, err := etcd.Parse("etcds://a:1,b:2/p")
	if diff := cmp.Diff([]string{"https://a:1", "https://b:2"}, got.Endpoints); err != nil || diff != "" || got.TLS == nil {
		t.Errorf("etcds: %v, TLS %v (-want +got):\n%s", err, got.TLS, diff)
	}
	for text, want := range map[string]string{
		"zk://a:1":                 "no known kind",
		"etcd://a":                 `"a" is not a host and a port`,
		"etcd://a:1,":              `"" is not a host and a port`,
		"etcd://a:1?cert=x":        "for etcds://",
		"etcds://a:1?ca=x":         `no option "ca"`,
		"etcds://a:1?cacert=/none": "no such file",
		"etcd://u:secret@a":        "u:xxxxx@a",
	} {
		if _, err := etcd.Parse(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want it to say %q", text, err, want)
		}
	}
}
