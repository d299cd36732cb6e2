// Package volume writes the files of a volume so that a reader sees all of one
// version or all of the next, never a mixture.
//
//	DIR/..data      -> ..V1234      swapped in one step
//	DIR/..V1234/app.conf            the files of a version
//	DIR/app.conf    -> ..data/app.conf
//
// The layout is the one kubelets use, which programs that reload their
// configuration watch for: the name ..data changes once per update.
package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// File is one file of a volume.
type File struct {
	Data []byte
	Mode fs.FileMode // permission bits
}

// Files are the files of a volume by their path inside it, with slashes.
type Files map[string]File

// current is the link to the version that readers see.
const current = "..data"

// Write makes dir hold exactly files, and reports whether that changed
// anything. What an interrupted Write left is cleaned up by the next. Only one
// Write may run on dir at a time.
func Write(dir string, files Files) (changed bool, err error) {
	if err := check(files); err != nil {
		return false, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	old, _ := os.Readlink(filepath.Join(dir, current))
	if old != "" && same(filepath.Join(dir, old), files) {
		return false, link(dir, files)
	}
	version, err := os.MkdirTemp(dir, "..V")
	if err != nil {
		return false, err
	}
	if err := fill(version, files); err != nil {
		return false, errors.Join(err, os.RemoveAll(version))
	}
	next := filepath.Join(dir, "..data_next")
	_ = os.Remove(next)
	if err := os.Symlink(filepath.Base(version), next); err != nil {
		return false, err
	}
	if err := os.Rename(next, filepath.Join(dir, current)); err != nil {
		return false, err
	}
	if err := link(dir, files); err != nil {
		return true, err
	}
	return true, sweep(dir, filepath.Base(version), files)
}

func check(files Files) error {
	for path := range files {
		if !filepath.IsLocal(path) || filepath.Clean(path) != path || strings.HasPrefix(path, "..") {
			return fmt.Errorf("path: found %q, which must stay inside the volume and not begin with %q", path, "..")
		}
	}
	return nil
}

// fill writes the files into a directory that nobody sees yet.
func fill(dir string, files Files) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for path, f := range files {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, f.Data, f.Mode.Perm()); err != nil {
			return err
		}
		if err := os.Chmod(full, f.Mode.Perm()); err != nil { // whatever the umask
			return err
		}
	}
	return nil
}

// same says whether dir holds exactly files.
func same(dir string, files Files) bool {
	seen := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		f, ok := files[filepath.ToSlash(rel)]
		if !ok {
			return fs.SkipAll
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if string(data) == string(f.Data) && info.Mode().Perm() == f.Mode.Perm() {
			seen++
		}
		return nil
	})
	return err == nil && seen == len(files) && countFiles(dir) == seen
}

func countFiles(dir string) int {
	n := 0
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
		}
		return err
	})
	return n
}

// roots are the names that stand in the volume's directory.
func roots(files Files) map[string]bool {
	names := map[string]bool{}
	for path := range files {
		name, _, _ := strings.Cut(path, "/")
		names[name] = true
	}
	return names
}

// link makes the names that lead into the current version.
func link(dir string, files Files) error {
	for name := range roots(files) {
		err := os.Symlink(filepath.Join(current, name), filepath.Join(dir, name))
		if err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

// sweep removes names and versions that are no more.
func sweep(dir, version string, files Files) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	keep := roots(files)
	keep[current], keep[version] = true, true
	for _, e := range entries {
		if !keep[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
