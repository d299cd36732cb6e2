package process_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/process"
)

// The groups of instances are under the mount of cgroup2, wherever that is, and those of v1 are left
// alone.
func TestCgroupParent(t *testing.T) {
	const v1 = "31 30 0:27 / %[1]s/memory rw,nosuid - cgroup cgroup rw,memory\n"
	for name, test := range map[string]struct{ mounts, under string }{
		"v2 alone":   {"30 23 0:26 / %[1]s rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", "."},
		"v2 beside":  {v1 + "42 30 0:39 / %[1]s/unified rw,nosuid - cgroup2 cgroup2 rw\n", "unified"},
		"v1 alone":   {v1, ""},
		"neither":    {"23 1 0:22 / /proc rw - proc proc rw\n", ""},
		"cut off":    {"30 23 - cgroup2 cgroup2 rw\n", ""},
		"not ours":   {"30 23 0:26 / /proc/nosuch rw - cgroup2 cgroup2 rw\n", ""},
		"no mounts":  {"", ""},
		"no newline": {"30 23 0:26 / %[1]s rw - cgroup2 cgroup2 rw", "."},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.MkdirAll(filepath.Join(root, "unified"), 0o750); err != nil {
				t.Fatal(err)
			}
			info := filepath.Join(t.TempDir(), "mountinfo")
			if err := os.WriteFile(info, fmt.Appendf(nil, test.mounts, root), 0o600); err != nil {
				t.Fatal(err)
			}
			want := ""
			if test.under != "" {
				want = filepath.Join(root, test.under, "setpoint")
			}
			if got := process.CgroupParent(info); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if left, _ := os.ReadDir(filepath.Join(root, "memory")); left != nil {
				t.Errorf("v1 was written to: %v", left)
			}
		})
	}
}

// A resize writes the limits that are wanted and lifts those that are not.
func TestCgroupLimits(t *testing.T) {
	group := t.TempDir()
	read := func() map[string]string {
		got := map[string]string{}
		for _, file := range []string{"memory.max", "memory.swap.max", "cpu.max", "cpu.weight"} {
			text, err := os.ReadFile(filepath.Join(group, file))
			if err != nil {
				t.Fatal(err)
			}
			got[file] = string(text)
		}
		return got
	}
	for _, file := range []string{"memory.max", "memory.swap.max", "cpu.max", "cpu.weight"} {
		if err := os.WriteFile(filepath.Join(group, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		to                        node.Resources
		memory, swap, cpu, weight string
	}{
		{node.Resources{MemoryMax: 64 << 20, CPUMilli: 250, CPUMilliMax: 1500}, "67108864", "0", "150000 100000", "25"},
		{node.Resources{MemoryMax: 128 << 20, CPUMilli: 2_000_000, CPUMilliMax: 1}, "134217728", "0", "1000 100000", "10000"},
		{node.Resources{}, "max", "max", "max", "100"},
	} {
		process.Limit(group, test.to)
		want := map[string]string{
			"memory.max": test.memory, "memory.swap.max": test.swap, "cpu.max": test.cpu, "cpu.weight": test.weight,
		}
		if diff := cmp.Diff(want, read()); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.to, diff)
		}
	}
}

// A client that reads nothing is cut off, and the container goes on; one that reads slowly loses
// nothing.
func TestAudience(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cut := make(chan struct{})
	to := process.Attached(w, time.Millisecond, func() { close(cut) })
	for range 100 { // more than a pipe holds
		if n, err := to.Write(make([]byte, 16<<10)); n != 16<<10 || err != nil {
			t.Fatalf("the container is told %d, %v", n, err)
		}
	}
	select {
	case <-cut:
	default:
		t.Error("who reads nothing is still attached")
	}

	r, w, err = os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	to = process.Attached(w, patience, func() { t.Error("who reads was cut off") })
	sent := bytes.Repeat([]byte("0123456789"), 100_000)
	var got bytes.Buffer
	reading := make(chan error, 1)
	go func() {
		_, err := got.ReadFrom(&slowly{r, len(sent)})
		reading <- err
	}()
	if _, err := to.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := <-reading; err != nil || !bytes.Equal(got.Bytes(), sent) {
		t.Errorf("%d bytes of %d arrived, %v", got.Len(), len(sent), err)
	}
}

// slowly reads n bytes in small pieces.
type slowly struct {
	from *os.File
	n    int
}

func (s *slowly) Read(p []byte) (int, error) {
	if s.n == 0 {
		return 0, io.EOF
	}
	n, err := s.from.Read(p[:min(len(p), 512)])
	s.n -= n
	return n, err
}
