package process

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/node"
)

// instanceVariable marks every process of a container, by inheritance.
const instanceVariable = "SETPOINT_CONTAINER"

// processes lists the numbers of the machine's processes.
func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// childrenOf lists the direct children of a process.
func childrenOf(parent int) []int {
	var children []int
	for _, pid := range processes() {
		if stat := statOf(pid); len(stat) > 1 && stat[1] == strconv.Itoa(parent) {
			children = append(children, pid)
		}
	}
	return children
}

// killMarked kills the processes of an instance whose shim is gone. They are
// known by their environment; the shim's own process died with it.
func killMarked(id node.ContainerID) {
	mark := []byte(instanceVariable + "=" + id.String())
	for _, pid := range processes() {
		environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), append([]byte{0}, append(mark, 0)...)) {
			continue
		}
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}
