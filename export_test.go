package setpoint

import "github.com/setpoint-dev/setpoint/store"

// Store is what the control plane keeps its objects in.
func (c *ControlPlane) Store() store.Store { return c.store }
