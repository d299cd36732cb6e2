// Package proxy makes the cluster IPs of Services work on one machine: it
// listens on each and forwards to the endpoints that are ready, one after the
// other.
//
// A new connection goes to a ready endpoint; if there is none, to one that is
// terminating and still serves. One whose endpoint can't be reached goes to the
// next, as long as no byte has been sent. Connections that are open stay with
// their endpoint, through its termination and the service's deletion, until a
// side ends them.
//
// A cluster IP must be an address of the machine. One in 127.0.0.0/8 is; others
// are added to the loopback interface, which needs root, and removed at the
// end. An address that belongs to a network the machine is really on is never
// taken. What can't be listened on is skipped, and said once.
//
// Not done: UDP and SCTP, node ports, session affinity, external traffic
// policies.
package proxy
