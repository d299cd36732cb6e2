package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrongUseIsExplained has each message name what is wrong and what would be right.
func TestWrongUseIsExplained(t *testing.T) {
	for line, want := range map[string]string{
		"frobnicate":                                  `unknown command "frobnicate"`,
		"up extra":                                    `unknown command "extra" for "setpoint up"`,
		"help frobnicate":                             `unknown command "frobnicate" for "setpoint"`,
		"help snapshot frobnicate":                    `unknown command "frobnicate" for "setpoint snapshot"`,
		"history deploy web":                          "usage: setpoint history KIND/NAME",
		"snapshot save":                               "usage: setpoint snapshot save FILE",
		"up --nosuch":                                 "unknown flag: --nosuch",
		"up --listen nope":                            `listen address "nope": listen tcp: address nope: missing port`,
		"up --store etcd://nowhere":                   `"nowhere" is not a host and a port`,
		"up --history 0":                              "--history 0s: want a time",
		"up --history-bytes 1":                        `--history-bytes "1": want 1Mi at least`,
		"up --log-level loud":                         "want debug, info, warn or error",
		"up --log-format xml":                         "want text or json",
		"up --controllers web":                        `there is no "web"; there are all, none, deployment`,
		"up --node-name A_B":                          `--node-name "A_B"`,
		"up --node-labels a/b/c=d":                    "--node-labels a/b/c=d",
		"server --service-account-issuer x":           "want a URL that begins with https://",
		"server --service-cluster-ip-range 10.0.0":    "want an IPv4 network",
		"server --service-cluster-ip-range fd00::/64": "want an IPv4 network",
		"node":                      "--kubeconfig: want the file that the server wrote",
		"node --kubeconfig /nosuch": `--kubeconfig "/nosuch"`,
		"node --simulated 0":        "--simulated 0: want at least one node",
	} {
		t.Run(line, func(t *testing.T) {
			root := newRoot()
			args := strings.Fields(line)
			if args[0] == "up" || args[0] == "server" {
				args = append(args, "--data-dir", t.TempDir())
			}
			root.SetArgs(args)
			root.SetOut(&bytes.Buffer{})
			root.SetErr(&bytes.Buffer{})
			err := root.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one with %q", err, want)
			}
		})
	}
}

// TestWithoutAKubeconfig has the commands that need a server name the file that leads to one.
func TestWithoutAKubeconfig(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	manifest := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(manifest, []byte("{apiVersion: v1, kind: Namespace, metadata: {name: x}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"history", "deployment/web"}, {"diff", "--from", "1"}, {"apply", "-f", manifest},
	} {
		root := newRoot()
		root.SetArgs(args)
		root.SetOut(&bytes.Buffer{})
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "no server is named") {
			t.Errorf("%s: %v", args[0], err)
		}
	}
}
