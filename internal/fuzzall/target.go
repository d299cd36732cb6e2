package main

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// target is a fuzz function, and the folder of its package.
type target struct{ dir, name string }

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// find lists the targets of the module in a folder; other modules below it are not looked at.
func find(root string) (all []target, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && exists(filepath.Join(path, "go.mod")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range fuzzFunc.FindAllSubmatch(source, -1) {
			all = append(all, target{filepath.Dir(path), string(m[1])})
		}
		return err
	})
	slices.SortFunc(all, func(a, b target) int { return strings.Compare(a.dir+" "+a.name, b.dir+" "+b.name) })
	return all, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// binary is where the tests of the target's package are built, in a folder.
func (t target) binary(bin string) string {
	return filepath.Join(bin, strings.ReplaceAll(t.dir, "/", "_"))
}

// overtime is how long a target may take beyond its time, to start, to try what is kept of earlier runs,
// and to end. One that takes longer hangs, and is ended.
const overtime = 2 * time.Minute

// fuzz runs the target in its folder. What it learns stays in a folder of its own, and goes with it. No
// time is taken to make new inputs smaller: nearly each is new at first, and little else would be tried.
func (t target) fuzz(bin string, each time.Duration) (out []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), each+overtime)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.binary(bin), "-test.run", "^$", "-test.fuzz", "^"+t.name+"$",
		"-test.parallel", "1", "-test.fuzztime", each.String(), "-test.fuzzminimizetime", "0s",
		"-test.fuzzcachedir", t.binary(bin)+"."+t.name)
	cmd.Dir, cmd.WaitDelay = t.dir, time.Second
	return cmd.CombinedOutput()
}
