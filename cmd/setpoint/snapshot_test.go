package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("apiVersion: v1\nkind: ConfigMap\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, "full")
	if _, err := runCommand(t, "", "snapshot", "restore", file, "--data-dir", full); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"setpoint wrote?":             {"snapshot", "restore", text, "--data-dir", filepath.Join(dir, "text2")},
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

// TestB020_SnapshotOfADamagedFolder flips a bit of an object's value. The server refuses the folder and
// says what to do; who does that has all other objects, is told which one is lost, and can delete it.
func TestB020_SnapshotOfADamagedFolder(t *testing.T) {
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "salvaged")
	p := newPlane(t, setpoint.Options{DataDir: data})
	p.change(settings("lost", "to-be-damaged"))
	p.change(settings("kept", "one"))
	p.stop()
	segments, err := filepath.Glob(filepath.Join(data, "store", "wal", "*.wal"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments %v, %v; want one", segments, err)
	}
	log, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	log[bytes.Index(log, []byte("to-be-damaged"))] ^= 1
	if err := os.WriteFile(segments[0], log, 0o600); err != nil {
		t.Fatal(err)
	}

	advice := "setpoint snapshot save salvaged.snapshot --salvage --data-dir " + data
	for _, args := range [][]string{
		{"server", "--data-dir", data, "--listen", "127.0.0.1:0"},
		{"snapshot", "save", file, "--data-dir", data},
	} {
		if _, err := runCommand(t, "", args...); err == nil || !strings.Contains(err.Error(), advice) {
			t.Errorf("%v: %v, want the advice %q", args, err, advice)
		}
	}
	out, err := runCommand(t, "", "snapshot", "save", file, "--salvage", "--data-dir", data)
	if err != nil || !strings.HasPrefix(out, "lost: configmaps/default/lost: its checksum is ") {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Rename(filepath.Join(data, "store"), filepath.Join(data, "store.damaged")); err != nil {
		t.Fatal(err)
	}
	if _, err := runCommand(t, "", "snapshot", "restore", file, "--data-dir", data); err != nil {
		t.Fatal(err)
	}
	again := newPlane(t, setpoint.Options{DataDir: data})
	config, err := clientcmd.BuildConfigFromFlags("", again.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "kept"}, &corev1.ConfigMap{}); err != nil {
		t.Error(err)
	}
	lost := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lost"}}
	if err := c.Delete(t.Context(), lost); apierrors.ReasonForError(err) != metav1.StatusReasonStoreReadError {
		t.Errorf("deleting it as others are: %v", err)
	}
	unsafely := &client.DeleteOptions{Raw: &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}}
	if err := c.Delete(t.Context(), lost, unsafely); err != nil {
		t.Error(err)
	}
	if err := c.List(t.Context(), &corev1.ConfigMapList{}); err != nil {
		t.Errorf("what is left: %v", err)
	}
}
