package process

import (
	"io"
	"os"
	"time"

	"github.com/setpoint-dev/setpoint/node"
)

// CgroupParent and Limit are the two ways in which control groups are written.
var CgroupParent = cgroupParent

// Limit sets the limits of a group that runs already.
func Limit(path string, to node.Resources) { limit(path, to, true) }

// Attached is an audience of one, who is cut off after stall, for which cutOff is called.
func Attached(file *os.File, stall time.Duration, cutOff func()) io.Writer {
	a := newAudience()
	a.stall = stall
	a.add(&listener{file: file, cutOff: cutOff})
	return a
}
