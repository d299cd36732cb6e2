package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Of several targets, those that found something are named, and what they found is printed.
func TestFuzzAll(t *testing.T) {
	bin := t.TempDir()
	stands := func(script string) target { // for a package's binary
		of := target{t.TempDir(), "FuzzX"}
		if err := os.WriteFile(of.binary(bin), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		return of
	}
	passes := stands("echo PASS")
	late := stands("printf -- '--- FAIL: FuzzX (1.0s)\n    context deadline exceeded\nFAIL\n'; exit 1")
	finds := stands("mkdir -p testdata && echo 'go test fuzz v1' > testdata/1\n" +
		"printf -- '--- FAIL: FuzzX (1.0s)\n    Failing input written to testdata/1\n'; exit 1")
	crashes := stands("echo panic: no; exit 2")
	var said strings.Builder
	got := fuzzAll(&said, []target{passes, late, finds, crashes}, bin, time.Second, 1)
	if d := cmp.Diff([]string{finds.dir + " FuzzX", crashes.dir + " FuzzX"}, got); d != "" {
		t.Error(d)
	}
	want := filepath.Join(finds.dir, "testdata/1") + ":\ngo test fuzz v1\n"
	if !strings.Contains(said.String(), want) || !strings.Contains(said.String(), "panic: no") {
		t.Errorf("printed %s", said.String())
	}
}
