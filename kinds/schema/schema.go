// Package schema compiles what is known of a kind's fields into one structure that reads, checks,
// defaults and writes its objects in single passes.
package schema

// Schema is the compiled form of one object type. It is read-only and may be used concurrently.
type Schema struct {
	Name string // as OpenAPI names it, "io.k8s.api.core.v1.Pod"
}
