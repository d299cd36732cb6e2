package volume_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/node/volume"
)

// seen is what a program finds in a volume: paths, modes and contents.
func seen(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name()[0] == '.' {
			continue
		}
		root := filepath.Join(dir, e.Name())
		resolved, err := filepath.EvalSymlinks(root)
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(resolved, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			rel, _ := filepath.Rel(resolved, path)
			got[filepath.Join(filepath.Base(root), rel)] = info.Mode().String() + " " + string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func TestWriteReplacesTheWholeAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	for _, step := range []struct {
		files   volume.Files
		changed bool
		want    map[string]string
	}{
		{volume.Files{"a": {Data: []byte("1"), Mode: 0o644}, "d/b": {Data: []byte("2"), Mode: 0o400}}, true,
			map[string]string{"a": "-rw-r--r-- 1", "d/b": "-r-------- 2"}},
		{volume.Files{"a": {Data: []byte("1"), Mode: 0o644}, "d/b": {Data: []byte("2"), Mode: 0o400}}, false,
			map[string]string{"a": "-rw-r--r-- 1", "d/b": "-r-------- 2"}},
		{volume.Files{"a": {Data: []byte("1"), Mode: 0o600}, "c": {Data: []byte("3"), Mode: 0o666}}, true,
			map[string]string{"a": "-rw------- 1", "c": "-rw-rw-rw- 3"}},
		{volume.Files{"c": {Data: []byte("3"), Mode: 0o666}}, true, map[string]string{"c": "-rw-rw-rw- 3"}},
		{volume.Files{}, true, map[string]string{}},
	} {
		changed, err := volume.Write(dir, step.files)
		if err != nil || changed != step.changed {
			t.Fatalf("Write: changed %v, %v; want %v", changed, err, step.changed)
		}
		if diff := cmp.Diff(step.want, seen(t, dir)); diff != "" {
			t.Errorf("after Write (-want +got):\n%s", diff)
		}
		versions, _ := filepath.Glob(filepath.Join(dir, "..V*"))
		if len(versions) != 1 {
			t.Errorf("versions: %v, want one", versions)
		}
	}
}

// A reader that opened the directory of a version goes on to see all of it.
func TestAnOpenVersionIsWhole(t *testing.T) {
	dir := t.TempDir()
	files := volume.Files{"a": {Data: []byte("1"), Mode: 0o644}, "b": {Data: []byte("1"), Mode: 0o644}}
	if _, err := volume.Write(dir, files); err != nil {
		t.Fatal(err)
	}
	before, err := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	// What an interrupted update leaves must not be in the way.
	if err := os.Symlink("nowhere", filepath.Join(dir, "..data_next")); err != nil {
		t.Fatal(err)
	}
	files["a"] = volume.File{Data: []byte("2"), Mode: 0o644}
	if _, err := volume.Write(dir, files); err != nil {
		t.Fatal(err)
	}
	after, _ := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
	if before == after {
		t.Error("the update changed a version that readers may have open")
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "a")); string(data) != "2" {
		t.Errorf("a is %q", data)
	}
}

func TestPathsStayInside(t *testing.T) {
	for _, path := range []string{"../a", "/a", "a/../../b", "..data", "..x/y", "", "a//b"} {
		if _, err := volume.Write(t.TempDir(), volume.Files{path: {}}); err == nil {
			t.Errorf("%q: no error", path)
		}
	}
}
