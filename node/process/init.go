package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/node"
)

// initSpec tells the container's first program what to arrange before it
// becomes the container's command.
type initSpec struct {
	Command    []string
	WorkingDir string
	Mounts     []node.Mount        // to be made, in a mount namespace of its own
	Join       int                 // the process whose mount namespace to enter instead; 0 means none
	Credential *syscall.Credential // to become
}

// failFD is where the first program writes why it could not become the command.
const failFD = 3

// program is what to start: a container's process, or a command beside it.
type program struct {
	node.ContainerConfig
	join int // the process whose surroundings a command shares; 0 for a container's own
}

// spawn starts a program and returns its process once it executes the command;
// the error is why it doesn't. With a terminal, that is the first file.
func spawn(p program, cg *cgroup, stdio [3]*os.File) (int, error) {
	config := p.ContainerConfig
	attr := sysProcAttr(config)
	cg.join(attr)
	if config.TTY {
		attr.Setctty, attr.Ctty = true, 0
		stdio[1], stdio[2] = stdio[0], stdio[0]
	}
	files := []uintptr{stdio[0].Fd(), stdio[1].Fd(), stdio[2].Fd()}
	if !namespaced(config) {
		path, err := find(config.Command[0], config.WorkingDir, config.Env)
		if err != nil {
			return 0, err
		}
		pid, err := syscall.ForkExec(path, config.Command, &syscall.ProcAttr{
			Dir: config.WorkingDir, Env: config.Env, Files: files, Sys: attr,
		})
		if err != nil {
			return 0, fmt.Errorf("exec %q: %w", config.Command[0], err)
		}
		return pid, nil
	}
	spec, err := json.Marshal(initSpec{
		Command: config.Command, WorkingDir: config.WorkingDir,
		Mounts: config.Mounts, Join: p.join, Credential: attr.Credential,
	})
	if err != nil {
		return 0, err
	}
	failed, failedW, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer failed.Close()
	attr.Credential = nil // it mounts first
	if p.join == 0 {
		attr.Cloneflags = syscall.CLONE_NEWNS
	}
	pid, err := syscall.ForkExec(self, []string{"setpoint", initCommand, string(spec)}, &syscall.ProcAttr{
		Env: config.Env, Files: append(files, failedW.Fd()), Sys: attr,
	})
	failedW.Close()
	if err != nil {
		return 0, fmt.Errorf("start in a mount namespace: %w", err)
	}
	if why, _ := io.ReadAll(failed); len(why) > 0 {
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return 0, errors.New(string(why))
	}
	return pid, nil
}

// namespaced says whether a container gets a mount namespace.
func namespaced(config node.ContainerConfig) bool {
	return len(config.Mounts) > 0 && os.Getuid() == 0
}

// enter arranges what spec says and becomes the command. It returns only if
// that failed, and has written why to failFD.
func enter(spec initSpec) error {
	// Namespaces and the parent-death signal belong to a thread; the thread
	// that executes the command is the one that remains.
	runtime.LockOSThread()
	unix.CloseOnExec(failFD)
	err := become(spec)
	fmt.Fprint(os.NewFile(failFD, "fail"), err.Error())
	return err
}

func become(spec initSpec) error {
	if spec.Join != 0 {
		if err := joinMounts(spec.Join); err != nil {
			return err
		}
	} else if err := mountAll(spec.Mounts); err != nil {
		return err
	}
	if c := spec.Credential; c != nil {
		groups := make([]int, len(c.Groups))
		for i, g := range c.Groups {
			groups[i] = int(g)
		}
		if err := errors.Join(syscall.Setgroups(groups), syscall.Setgid(int(c.Gid)), syscall.Setuid(int(c.Uid))); err != nil {
			return fmt.Errorf("become user %d: %w", c.Uid, err)
		}
		// A change of user clears it.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("parent-death signal: %w", err)
		}
	}
	if spec.WorkingDir != "" {
		if err := os.Chdir(spec.WorkingDir); err != nil {
			return fmt.Errorf("workingDir: %w", err)
		}
	}
	path, err := find(spec.Command[0], spec.WorkingDir, os.Environ())
	if err != nil {
		return err
	}
	return fmt.Errorf("exec %q: %w", spec.Command[0], syscall.Exec(path, spec.Command, os.Environ()))
}

// joinMounts moves this thread into the mount namespace of a process.
func joinMounts(pid int) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	defer ns.Close()
	// Threads share their root and working directory, and one that does may
	// not change its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	return nil
}

// find finds the file to execute, as a shell would with the container's own
// PATH.
func find(name, workingDir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(workingDir, name)
		}
		return name, nil // executing it finds out the rest
	}
	path := ""
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			path = value
		}
	}
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(workingDir, d)
		}
		file := filepath.Join(d, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("exec %q: %w", name, exec.ErrNotFound)
}

// mountAll makes the mounts of a container in this process's own namespace.
func mountAll(mounts []node.Mount) error {
	// Nothing mounted here may appear on the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	for _, m := range mounts {
		if err := mountOne(m); err != nil {
			return fmt.Errorf("volume %q at %s: %w", m.Name, m.Target, err)
		}
	}
	return nil
}

func mountOne(m node.Mount) error {
	source, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	if err := ensureMountPoint(m.Target, source.IsDir()); err != nil {
		return err
	}
	if err := unix.Mount(m.Source, m.Target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if !m.ReadOnly {
		return nil
	}
	if err := unix.Mount("", m.Target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make read-only: %w", err)
	}
	return nil
}

// ensureMountPoint makes a directory or file at target, which the machine does
// not get to see: the nearest directory above it that exists is shadowed.
func ensureMountPoint(target string, isDir bool) error {
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	parent := filepath.Dir(target)
	for {
		if info, err := os.Stat(parent); err == nil {
			if !info.IsDir() {
				return fmt.Errorf("%s: %w", parent, syscall.ENOTDIR)
			}
			break
		}
		parent = filepath.Dir(parent)
	}
	if err := shadow(parent); err != nil {
		return fmt.Errorf("shadow %s: %w", parent, err)
	}
	if isDir {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return touch(target)
}

// shadow puts a temporary directory with the same entries in the place of d.
func shadow(d string) error {
	var statfs unix.Statfs_t
	if err := unix.Statfs(d, &statfs); err == nil && statfs.Type == unix.TMPFS_MAGIC && isShadow(d) {
		return nil
	}
	entries, err := os.ReadDir(d)
	if err != nil {
		return err
	}
	info, err := os.Stat(d)
	if err != nil {
		return err
	}
	// Any directory serves to build it at: it is moved away at the end.
	stage, err := os.MkdirTemp("", "setpoint-mount-")
	if err != nil {
		return err
	}
	defer os.Remove(stage)
	if err := unix.Mount(shadowName, stage, "tmpfs", 0, fmt.Sprintf("mode=%o", info.Mode().Perm())); err != nil {
		return err
	}
	// What is bound from a directory above must not contain the stage itself.
	if err := unix.Mount("", stage, "", unix.MS_UNBINDABLE, ""); err != nil {
		return err
	}
	for _, e := range entries {
		if err := mirror(filepath.Join(d, e.Name()), filepath.Join(stage, e.Name()), e.Type()); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	if err := unix.Mount("", stage, "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if d == "/" {
		return pivot(stage)
	}
	return unix.Mount(stage, d, "", unix.MS_MOVE, "")
}

// shadowName is the source by which /proc/self/mountinfo tells a shadow.
const shadowName = "setpoint-shadow"

func isShadow(d string) bool {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(info)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] == d && strings.Contains(line, " "+shadowName+" ") {
			return true
		}
	}
	return false
}

// mirror makes the entry from appear at to.
func mirror(from, to string, kind fs.FileMode) error {
	switch {
	case kind&fs.ModeSymlink != 0:
		link, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(link, to)
	case kind.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	default:
		if err := touch(to); err != nil {
			return err
		}
	}
	return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}

func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// pivot makes dir the root and drops the old one, whose entries stay bound.
func pivot(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	// The old root now lies over the new one; unmounting it uncovers that.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("drop the old root: %w", err)
	}
	return os.Chdir("/")
}
