// Fuzzall runs every fuzz target of the module for a while, one after another, and says how each went:
//
//	go run ./internal/fuzzall -time 30s [-only REGEXP]
//
// It ends with an error if any target found something; what it found lies in the package's testdata/fuzz
// then, and fails the ordinary tests from there on.
package main

import (
	"bytes"
	"flag"
	"fmt"
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

func main() {
	each := flag.Duration("time", 30*time.Second, "how long each target runs")
	only := flag.String("only", "", "run the targets that this regular expression matches")
	flag.Parse()
	if err := run(*each, *only); err != nil {
		fmt.Fprintln(os.Stderr, "fuzzall:", err)
		os.Exit(1)
	}
}

func run(each time.Duration, only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	targets, err := find(".")
	if err != nil {
		return err
	}
	var found []string
	for _, t := range targets {
		if !wanted.MatchString(t.name) {
			continue
		}
		begun := time.Now()
		out, failed := t.fuzz(each)
		fmt.Printf("%-28s %-24s %6.1fs  %s\n", t.dir, t.name, time.Since(begun).Seconds(), lastProgress(out))
		if failed {
			os.Stdout.Write(out)
			found = append(found, t.dir+" "+t.name)
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("found something: %s", strings.Join(found, ", "))
	}
	return nil
}

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

// fuzz runs the target. That the time was over while an input was under way is no failure: go test says
// so in these words, and has nothing to show then.
func (t target) fuzz(each time.Duration) (out []byte, failed bool) {
	cmd := exec.Command("go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", each.String(), "./"+t.dir)
	out, err := cmd.CombinedOutput()
	late := bytes.Contains(out, []byte("context deadline exceeded")) && !bytes.Contains(out, []byte("Failing input"))
	return out, err != nil && !late
}

// lastProgress is the last that go test said of how far it had come.
func lastProgress(out []byte) string {
	last := ""
	for line := range strings.Lines(string(out)) {
		if _, said, ok := strings.Cut(line, "execs: "); ok {
			last = "execs: " + strings.TrimSpace(said)
		}
	}
	return last
}
