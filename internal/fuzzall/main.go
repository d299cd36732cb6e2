// Fuzzall runs every fuzz target of the module for a while, and says how each went:
//
//	go run ./internal/fuzzall -time 30s [-only REGEXP] [-at-once 2]
//
// Each package is built once, with the instruments of coverage; a target has one worker, and several
// targets run at once. It ends with an error if any target found something. The input is printed, and
// lies in the package's testdata/fuzz: kept there, it fails the ordinary tests from then on.
package main

import (
	"flag"
	"fmt"
	"io"
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
	if failed := fuzzAll(os.Stdout, targets, bin, each, atOnce); len(failed) > 0 {
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

// fuzzAll runs the targets, prints how each went, and returns the names of those that found something.
func fuzzAll(w io.Writer, targets []target, bin string, each time.Duration, atOnce int) (failed []string) {
	var wg sync.WaitGroup
	var mu sync.Mutex // around failed and w
	slots := make(chan struct{}, max(1, atOnce))
	for _, t := range targets {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			begun := time.Now()
			out, err := t.fuzz(bin, each)
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(w, "%-28s %-24s %6.1fs  %s\n", t.dir, t.name, time.Since(begun).Seconds(), lastProgress(out))
			if err != nil && !late(out, each) {
				fmt.Fprintf(w, "%s\n%v\n%s", out, err, t.input(out))
				failed = append(failed, t.dir+" "+t.name)
			}
		})
	}
	wg.Wait()
	return failed
}

// input shows the input that the target failed with, so that it can be kept where the folder cannot.
func (t target) input(out []byte) string {
	path := failingInput(out)
	if path == "" {
		return ""
	}
	path = filepath.Join(t.dir, path)
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error() + "\n"
	}
	return fmt.Sprintf("%s:\n%s\n", path, text)
}
