// Fuzzall runs every fuzz target of the module for a while, and says how each went:
//
//	go run ./internal/fuzzall -time 30s [-only REGEXP] [-at-once 2]
//
// Each package is built once, with the instruments of coverage; a target has one worker, and several
// targets run at once. It ends with an error if any target found something; what it found lies in the
// package's testdata/fuzz then, and fails the ordinary tests from there on.
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
	"sync"
	"time"
)

func main() {
	each := flag.Duration("time", 30*time.Second, "how long each target runs")
	only := flag.String("only", "", "run the targets that this regular expression matches")
	atOnce := flag.Int("at-once", 2, "how many targets run at once")
	flag.Parse()
	if err := run(*each, *only, *atOnce); err != nil {
		fmt.Fprintln(os.Stderr, "fuzzall:", err)
		os.Exit(1)
	}
}

// target is a fuzz function, and the folder of its package.
type target struct{ dir, name string }

func run(each time.Duration, only string, atOnce int) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	targets, err := find(".")
	if err != nil {
		return err
	}
	targets = slices.DeleteFunc(targets, func(t target) bool { return !wanted.MatchString(t.name) })
	bin, err := os.MkdirTemp("", "fuzzall")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	if err := build(targets, bin); err != nil {
		return err
	}
	if failed := fuzzAll(targets, bin, each, atOnce); len(failed) > 0 {
		return fmt.Errorf("found something: %s", strings.Join(failed, ", "))
	}
	return nil
}

// build makes the binary of each package of the targets, in a folder.
func build(targets []target, bin string) error {
	for i, t := range targets {
		if i > 0 && targets[i-1].dir == t.dir {
			continue
		}
		out, err := exec.Command("go", "test", "-c", "-fuzz", ".", "-o", t.binary(bin), "./"+t.dir).CombinedOutput()
		if err != nil {
			return fmt.Errorf("building %s: %w\n%s", t.dir, err, out)
		}
	}
	return nil
}

func (t target) binary(bin string) string {
	return filepath.Join(bin, strings.ReplaceAll(t.dir, "/", "_"))
}

// fuzzAll runs the targets and returns the names of those that failed.
func fuzzAll(targets []target, bin string, each time.Duration, atOnce int) (failed []string) {
	var wg sync.WaitGroup
	var mu sync.Mutex // around failed, and what is printed
	slots := make(chan struct{}, max(1, atOnce))
	for _, t := range targets {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			begun := time.Now()
			out, err := t.fuzz(bin, each)
			mu.Lock()
			defer mu.Unlock()
			fmt.Printf("%-28s %-24s %6.1fs  %s\n", t.dir, t.name, time.Since(begun).Seconds(), lastProgress(out))
			if err != nil && !late(out) {
				os.Stdout.Write(out)
				failed = append(failed, t.dir+" "+t.name)
			}
		})
	}
	wg.Wait()
	return failed
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

// simplify bounds how long go test makes a new input smaller, in which nothing else is tried: by itself it
// takes a minute for each, and a target of a minute tries little else.
const simplify = time.Second

// fuzz runs the target in its folder. What it learns stays in a folder of its own, and goes with it.
func (t target) fuzz(bin string, each time.Duration) (out []byte, err error) {
	cmd := exec.Command(t.binary(bin), "-test.run", "^$", "-test.fuzz", "^"+t.name+"$", "-test.parallel", "1",
		"-test.fuzztime", each.String(), "-test.fuzzminimizetime", simplify.String(),
		"-test.fuzzcachedir", t.binary(bin)+"."+t.name)
	cmd.Dir = t.dir
	return cmd.CombinedOutput()
}

var lateOnly = regexp.MustCompile(`(?m)^--- FAIL: Fuzz\w+ \([\d.]+s\)\n    context deadline exceeded\nFAIL\n?`)

// late says that a target failed for no more than that its time was over while a worker was busy: that
// is all that stands under the failure then. An input that failed, or hung for ten seconds, has a
// message and a file of its own.
func late(out []byte) bool {
	return lateOnly.Match(out) && bytes.Count(out, []byte("--- FAIL")) == 1 &&
		!bytes.Contains(out, []byte("Failing input written")) &&
		!bytes.Contains(out, []byte("hung or terminated unexpectedly"))
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
