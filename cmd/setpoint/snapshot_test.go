package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint"
)

// saved returns how many objects were saved, and at which revision.
func saved(t *testing.T, out string) (objects, revision int) {
	t.Helper()
	m := regexp.MustCompile(`^saved (\d+) objects at revision (\d+) to `).FindStringSubmatch(out)
	if m == nil {
		t.Fatal(out)
	}
	objects, _ = strconv.Atoi(m[1])
	revision, _ = strconv.Atoi(m[2])
	return objects, revision
}

func TestSnapshot(t *testing.T) {
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "saved")
	p := newPlane(t, setpoint.Options{DataDir: data})
	kept, err := strconv.Atoi(p.change(settings("kept", "one")))
	if err != nil {
		t.Fatal(err)
	}
	objects, revision := saved(t, p.must("", "snapshot", "save", file))
	if revision != kept {
		t.Errorf("saved at revision %d, want %d", revision, kept)
	}
	p.change(settings("lost", "one"))
	p.stop()

	out, err := runCommand(t, "", "snapshot", "save", file+"-stopped", "--data-dir", data)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := saved(t, out); n != objects+1 {
		t.Errorf("from the folder: %s, want %d objects", out, objects+1)
	}

	restored := filepath.Join(dir, "restored")
	if out, err = runCommand(t, "", "snapshot", "restore", file, "--data-dir", restored); err != nil {
		t.Fatal(err)
	}
	if want := "restored to " + restored + " at revision 1000"; !strings.HasPrefix(out, want) {
		t.Errorf("%q, want it to begin with %q", out, want)
	}
	again := newPlane(t, setpoint.Options{DataDir: restored})
	if out, err := again.run("", "history", "cm/lost"); err == nil {
		t.Errorf("what was made after the snapshot is there: %s", out)
	}
	if out := again.must("", "history", "cm/kept"); !strings.HasPrefix(out, "nothing happened to default/configmaps/kept since") {
		t.Errorf("%s, want what was saved, without its past", out)
	}
	if revision := again.change(settings("new", "one")); revision <= "1000000000" || len(revision) != len("1000000000") {
		t.Errorf("it goes on at revision %s, want one after 1000000000", revision)
	}
}

func TestSnapshotRefusals(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	dir := t.TempDir()
	file := filepath.Join(dir, "saved")
	p := newPlane(t, setpoint.Options{})
	p.must("", "snapshot", "save", file)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(dir, "torn")
	if err := os.WriteFile(torn, whole[:len(whole)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, "full")
	if _, err := runCommand(t, "", "snapshot", "restore", file, "--data-dir", full); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--data-dir: want the folder": {"snapshot", "restore", file},
		"--kubeconfig or --data-dir":  {"snapshot", "save", file + "2"},
		"no such file":                {"snapshot", "restore", file + "2", "--data-dir", filepath.Join(dir, "a")},
		torn:                          {"snapshot", "restore", torn, "--data-dir", filepath.Join(dir, "b")},
		full:                          {"snapshot", "restore", file, "--data-dir", full},
		filepath.Join(dir, "none"):    {"snapshot", "save", file + "2", "--data-dir", filepath.Join(dir, "none")},
	} {
		if out, err := runCommand(t, "", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v %s, want an error with %q", args, err, out, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*2*")); len(left) > 0 {
		t.Errorf("what failed left %v", left)
	}
}
