package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/node"
)

// cgroupParent finds or makes the cgroup v2 under which instances get theirs,
// or returns "" when this machine or user has none to give. Where it is mounted
// stands in mountinfo: at the usual place, or beside the hierarchies of v1,
// which are left alone.
func cgroupParent(mountinfo string) string {
	mounts, err := os.ReadFile(mountinfo)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		fields := strings.Fields(before)
		if len(fields) < 5 {
			continue
		}
		parent := filepath.Join(fields[4], "setpoint")
		// The folder may be there and belong to somebody else: root, who ran this before.
		if os.MkdirAll(parent, 0o755) != nil || unix.Access(parent, unix.W_OK) != nil {
			return ""
		}
		// Each controller on its own: one that is missing must not cost the rest.
		for _, controller := range []string{"memory", "cpu", "pids"} {
			for _, level := range []string{fields[4], parent} {
				_ = os.WriteFile(filepath.Join(level, "cgroup.subtree_control"), []byte("+"+controller), 0)
			}
		}
		return parent
	}
	return ""
}

// cgroup is the control group of one instance; nil means there is none, and
// every method does nothing.
type cgroup struct {
	path string
	dir  *os.File
}

// newCgroup makes the group and sets the limits that this machine can enforce.
func newCgroup(path string, limits node.Resources) (*cgroup, error) {
	if path == "" {
		return nil, nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	limit(path, limits, false)
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return &cgroup{path: path, dir: dir}, nil
}

// limit sets the limits of a group, as far as this machine can enforce them.
// With lift, those that are not wanted are taken away, which a new group has no
// need of.
func limit(path string, to node.Resources, lift bool) {
	set := func(file, value string, wanted bool, none string) {
		if !wanted {
			value = none
		}
		if wanted || lift {
			_ = os.WriteFile(filepath.Join(path, file), []byte(value), 0)
		}
	}
	set("memory.max", strconv.FormatInt(to.MemoryMax, 10), to.MemoryMax > 0, "max")
	set("memory.swap.max", "0", to.MemoryMax > 0, "max")
	const period = 100_000 // microseconds, the kernel's default
	quota := fmt.Sprintf("%d %d", max(1000, to.CPUMilliMax*period/1000), period)
	set("cpu.max", quota, to.CPUMilliMax > 0, "max")
	// 100 is the kernel's default weight; it is given to a whole CPU.
	weight := strconv.FormatInt(min(10_000, max(1, to.CPUMilli/10)), 10)
	set("cpu.weight", weight, to.CPUMilli > 0, "100")
}

// join makes a process start inside the group.
func (c *cgroup) join(attr *syscall.SysProcAttr) {
	if c != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(c.dir.Fd())
	}
}

// kill kills all processes in the group.
func (c *cgroup) kill() {
	if c != nil {
		_ = os.WriteFile(filepath.Join(c.path, "cgroup.kill"), []byte("1"), 0)
	}
}

// oomKilled says whether the kernel has killed a process of the group for want
// of memory.
func (c *cgroup) oomKilled() bool {
	if c == nil {
		return false
	}
	events, err := os.ReadFile(filepath.Join(c.path, "memory.events"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(events)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			return n != "0"
		}
	}
	return false
}

// remove deletes the group. Killed processes leave it a moment later, which is
// waited for, but not for long: an empty group that stays costs nothing.
func (c *cgroup) remove() {
	if c == nil {
		return
	}
	c.dir.Close()
	for range 100 {
		if err := os.Remove(c.path); !errors.Is(err, syscall.EBUSY) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
