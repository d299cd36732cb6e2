package setpoint

import (
	"net"

	"github.com/setpoint-dev/setpoint/store"
)

// Store is what the control plane keeps its objects in.
func (c *ControlPlane) Store() store.Store { return c.store }

// Serve has the control plane serve a listener of the test's, as if Options.Listen had opened it. It is
// to be called before Start.
func (c *ControlPlane) Serve(l net.Listener) { c.listener = l }
