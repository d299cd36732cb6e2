package process_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/process"
	"github.com/setpoint-dev/setpoint/node/runtimetest"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

// volume makes a directory with one file.
func volume(t *testing.T, file, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestVolumesStandAtTheirPathAndNowhereElse(t *testing.T) {
	needRoot(t)
	p := runtimetest.NewPod(t, open(t, t.TempDir()))
	dir := volume(t, "greeting", "hello")
	id := node.ContainerID{Pod: p.UID, Name: "c"}
	config := runtimetest.Shell(id, `
		cat /setpoint-test-a/b/greeting && echo
		cat /etc/setpoint-test/greeting && echo
		cat /usr/local/setpoint-test.conf && echo
		test -e /etc/passwd -a -d /proc/self -a -e /dev/null && echo the rest is there
		(echo x >/etc/setpoint-test/greeting) 2>/dev/null || echo read-only
		echo changed >/setpoint-test-a/b/written
		echo ready; exec sleep 600`)
	config.Mounts = []node.Mount{
		{Name: "data", Source: dir, Target: "/setpoint-test-a/b"},
		{Name: "config", Source: dir, Target: "/etc/setpoint-test", ReadOnly: true},
		{Name: "one", Source: filepath.Join(dir, "greeting"), Target: "/usr/local/setpoint-test.conf", ReadOnly: true},
	}
	if err := p.Runtime.StartContainer(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	p.Printed(id, "hello\nhello\nhello\nthe rest is there\nread-only\nready")
	if text, err := os.ReadFile(filepath.Join(dir, "written")); err != nil || string(text) != "changed\n" {
		t.Errorf("the volume has %q, %v", text, err)
	}
	for _, path := range []string{"/setpoint-test-a", "/etc/setpoint-test", "/usr/local/setpoint-test.conf"} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("on the machine, %s: %v, want that it does not exist", path, err)
		}
	}
	var got strings.Builder
	_, err := p.Runtime.Exec(t.Context(), id, []string{"cat", "/etc/setpoint-test/greeting"}, node.Streams{Stdout: &got})
	if err != nil || got.String() != "hello" {
		t.Errorf("Exec: %q, %v", &got, err)
	}
}

func TestUserOfAContainerWithVolumes(t *testing.T) {
	needRoot(t)
	p := runtimetest.NewPod(t, open(t, t.TempDir()))
	uid, gid := int64(12345), int64(54321)
	for i, mounts := range [][]node.Mount{nil, {{Name: "data", Source: volume(t, "f", ""), Target: "/mnt"}}} {
		id := node.ContainerID{Pod: p.UID, Name: "c", Attempt: int32(i)}
		config := runtimetest.Shell(id, "id -u; id -g")
		config.User, config.Group, config.Mounts = &uid, &gid, mounts
		if err := p.Runtime.StartContainer(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		p.Ended(id)
		p.Printed(id, "12345\n54321")
	}
}

func TestMissingProgramOfAContainerWithVolumes(t *testing.T) {
	needRoot(t)
	p := runtimetest.NewPod(t, open(t, t.TempDir()))
	id := node.ContainerID{Pod: p.UID, Name: "c"}
	config := runtimetest.Shell(id, "")
	config.Command = []string{"no-such-program"}
	config.Mounts = []node.Mount{{Name: "data", Source: volume(t, "f", ""), Target: "/mnt"}}
	if err := p.Runtime.StartContainer(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if got := p.Ended(id); got.ExitCode != 128 || !strings.Contains(got.Message, "no-such-program") {
		t.Errorf("ended with %+v", got)
	}
}

// TestKilledShimLeavesNothing kills the one process that looks after the others.
func TestKilledShimLeavesNothing(t *testing.T) {
	p := runtimetest.NewPod(t, open(t, t.TempDir()))
	fifo := t.TempDir() + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	id := p.Start(0, `(setsid sh -c 'exec 9>`+fifo+`; exec sleep 600' &); exec 9<`+fifo+`; echo pid $PPID; echo ready; exec sleep 600`)
	p.Printed(id, "ready")
	shim := parentOf(t, p, id)
	if err := unix.Kill(shim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := p.Ended(id)
	if got.Reason != node.ReasonStatusUnknown || got.ExitCode != 137 {
		t.Errorf("ended with %+v", got)
	}
	// It ends when the last process that writes to the pipe has.
	check := p.Start(1, `exec 8<>`+fifo+`; exec 9<`+fifo+`; exec 8>&-; cat <&9; echo alone`)
	p.Printed(check, "alone")
}

// parentOf reads the number of the shim from what its container printed.
func parentOf(t *testing.T, p *runtimetest.Pod, id node.ContainerID) int {
	t.Helper()
	if _, err := p.Runtime.Exec(t.Context(), id, []string{"sh", "-c", "true"}, node.Streams{}); err != nil {
		t.Fatalf("Exec: %v", err)
	}
	state, _ := p.State(id)
	text, err := os.ReadFile(state.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), " F pid ")
	line, _, _ := strings.Cut(rest, "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// TestKilledAgentIsFollowed kills an agent's process and finds what it started.
func TestKilledAgentIsFollowed(t *testing.T) {
	const role = "SETPOINT_TEST_AGENT"
	if dir := os.Getenv(role); dir != "" {
		p := runtimetest.NewPod(t, open(t, dir))
		p.Printed(p.Start(0, "echo ready; exec sleep 600"), "ready")
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), role+"="+dir)
	if out, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the agent was not killed: %v\n%s", err, out)
	}
	r := open(t, dir)
	pods, err := r.Pods(t.Context())
	if err != nil || len(pods) != 1 || len(pods[0].Containers) != 1 || !pods[0].Containers[0].Running {
		t.Fatalf("the next agent finds %+v, %v", pods, err)
	}
	id := pods[0].Containers[0].ID
	if err := r.StartContainer(t.Context(), runtimetest.Shell(id, "echo twice")); err != nil {
		t.Errorf("a second start: %v", err)
	}
	if err := r.RemovePod(t.Context(), id.Pod); err != nil {
		t.Error(err)
	}
}

func TestTwoStateDirectoriesShareAddresses(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]bool{}
	for _, name := range []string{"one", "two"} {
		r, err := process.New(process.Options{
			StateDir: filepath.Join(dir, name), AddressDir: filepath.Join(dir, "addresses"),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		// The same uid, so the same first choice.
		pod, err := r.CreatePod(t.Context(), node.PodConfig{UID: "7b7a2a52", Name: "p"})
		if err != nil || seen[pod.IP] {
			t.Errorf("address %q, %v: want one that is not in use", pod.IP, err)
		}
		seen[pod.IP] = true
	}
}

func TestAddressOfARemovedStateDirectoryIsFree(t *testing.T) {
	dir := t.TempDir()
	ips := []string{}
	for range 2 {
		r, err := process.New(process.Options{
			StateDir: filepath.Join(dir, "state"), AddressDir: filepath.Join(dir, "addresses"),
		})
		if err != nil {
			t.Fatal(err)
		}
		pod, err := r.CreatePod(t.Context(), node.PodConfig{UID: "7b7a2a52", Name: "p"})
		if err != nil {
			t.Fatal(err)
		}
		ips = append(ips, pod.IP)
		r.Close()
		if err := os.RemoveAll(filepath.Join(dir, "state")); err != nil {
			t.Fatal(err)
		}
	}
	if ips[0] != ips[1] {
		t.Errorf("addresses %v, want the same twice", ips)
	}
}
