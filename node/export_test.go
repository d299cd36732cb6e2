package node

import "k8s.io/apimachinery/pkg/types"

// NextChange lets a test wait for the runtime to tell of a change.
func (a *Agent) NextChange(uid types.UID) <-chan struct{} { return a.nextChange(uid) }
