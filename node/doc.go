// Package node is the agent that makes the pods assigned to a machine run
// there. It watches them through the API, brings the machine to what they
// declare, and reports what is so. Nobody calls it: for logs, commands and
// connections to pods it keeps a connection open over which the API server asks.
//
// The agent promises:
//
//   - It can be killed at any moment. Containers run on, and the next agent on
//     the same state goes on with them; none is started twice.
//   - A pod's object is deleted only when none of its processes is left.
//   - A status is written only when it differs, and holds nothing that changes
//     by itself.
//   - While the API server is away, containers are restarted and probed as
//     ever; what they became is reported when it is back.
//
// Read machine.go first: a Machine decides, in one pure step, what is to be
// done for one pod and what its status is. A worker, one goroutine for each
// pod, feeds it and carries out what it says, by a Runtime; see package
// node/process for the one that runs processes.
package node
