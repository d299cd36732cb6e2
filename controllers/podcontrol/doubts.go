package podcontrol

import (
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// doubts remembers the owners for which a create may have happened though it was reported as failed:
// their pods are to be counted at the server, until a pass succeeds. The zero value is ready.
type doubts struct {
	mu     sync.Mutex
	owners map[types.NamespacedName]bool
}

// has says whether there is a doubt about an owner's pods.
func (d *doubts) has(owner types.NamespacedName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.owners[owner]
}

// note takes down what came of creates: an error that leaves open whether there is a pod is a doubt,
// anything else, nil included, is none.
func (d *doubts) note(owner types.NamespacedName, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || AllRefused(err) {
		delete(d.owners, owner)
		return
	}
	if d.owners == nil {
		d.owners = map[types.NamespacedName]bool{}
	}
	d.owners[owner] = true
}

// AllRefused says whether the server answered each failed request with a refusal, so that nothing was
// created for certain.
func AllRefused(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if !AllRefused(e) {
				return false
			}
		}
		return true
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	code := answer.Status().Code
	return code >= 400 && code < 500 && !apierrors.IsTimeout(err)
}
