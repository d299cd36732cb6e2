// Package examples carries the examples that the command line can show by itself.
package examples

import _ "embed"

// Web is a web service: a deployment of three processes and the service in front of them.
//
//go:embed web/web.yaml
var Web []byte
