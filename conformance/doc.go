// Package conformance runs clients that people have against a Setpoint server in a process of its own.
//
//   - wire sends scripts of requests and compares what it is answered, byte by byte but for what no two
//     servers agree on, with what a Kubernetes API server of version 1.37 answered.
//   - informers runs client-go's informers through restarts of the server and lost history.
//   - operator is a suite of the kind that Kubebuilder makes, on controller-runtime and envtest.
//   - helm installs, upgrades, rolls back and removes releases with Helm's own library.
//   - e2e runs Kubernetes' own conformance tests, where somebody has their program.
//   - kubectl runs the commands of kubectl and looks at what they did.
//
// The module is apart from Setpoint's because its dependencies are those clients'. flux has a module of
// its own for the same reason.
package conformance
