package pki

import (
	"encoding/json"

	"sigs.k8s.io/yaml"
)

// Access is what a client needs to reach a server and be known there.
type Access struct {
	Server    string // "https://127.0.0.1:6443"
	Authority []byte // the certificate to trust, in PEM
	// The client's certificate and key, in PEM.
	Certificate, Key []byte
	// User names the credentials in the file; nobody but a person reads it.
	User string
}

// Kubeconfig writes an Access as the file that kubectl and every other client reads, with
// everything inside it. Keep it with WriteFile.
func (a Access) Kubeconfig() ([]byte, error) {
	const name = "setpoint"
	type object = map[string]any
	text, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Config",
		"current-context": name,
		"clusters": []object{{"name": name, "cluster": object{
			"server": a.Server, "certificate-authority-data": a.Authority, // JSON has bytes in base64
		}}},
		"users": []object{{"name": a.User, "user": object{
			"client-certificate-data": a.Certificate, "client-key-data": a.Key,
		}}},
		"contexts": []object{{"name": name, "context": object{"cluster": name, "user": a.User}}},
	})
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(text)
}
