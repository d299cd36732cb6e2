package main

import (
	"testing"
	"time"
)

const (
	progress = "fuzz: elapsed: 3s, execs: 100 (33/sec), new interesting: 2 (total: 5)\n"
	kept     = "    \n    Failing input written to testdata/fuzz/FuzzX/1\n    To re-run:\n    go test -run=FuzzX/1\nFAIL\n"
)

// What go test prints when the time is over is no finding, unless it has found something, too.
func TestLate(t *testing.T) {
	const hung = "    fuzzing process hung or terminated unexpectedly: exit status 2\n"
	for _, c := range []struct {
		name, out string
		want      bool
	}{
		{"a slow worker", "--- FAIL: FuzzX (3.05s)\n    context deadline exceeded\nFAIL\n", true},
		{"a worker that was killed at the end", "--- FAIL: FuzzX (4.10s)\n" + hung + "FAIL\n", true},
		{"a worker that died before the end", "--- FAIL: FuzzX (2.10s)\n" + hung + "FAIL\n", false},
		{"a seed that hangs", "failure while testing seed corpus entry: FuzzX/seed#0\n--- FAIL: FuzzX (2.99s)\n" +
			hung + "FAIL\n", false},
		{"a finding", "--- FAIL: FuzzX (3.05s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:5: bad\n" + kept, false},
		{"a hang", "--- FAIL: FuzzX (13.05s)\n" + hung + kept, false},
		{"a finding in the words of a late one", "--- FAIL: FuzzX (3.05s)\n    --- FAIL: FuzzX (0.00s)\n" +
			"        x_test.go:5: context deadline exceeded\n    \nFAIL\n", false},
		{"a process that was killed", "--- FAIL: FuzzX (3.05s)\n    fuzzing process terminated by unexpected " +
			"signal; no crash will be recorded: signal: killed\nFAIL\n", false},
		{"a crash", "panic: context deadline exceeded\n", false},
	} {
		if got := late([]byte(progress+c.out), 3*time.Second); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func TestFailingInput(t *testing.T) {
	for _, c := range []struct{ name, out, want string }{
		{"a finding", progress + "--- FAIL: FuzzX (0.05s)\n    --- FAIL: FuzzX (0.00s)\n" + kept, "testdata/fuzz/FuzzX/1"},
		{"nothing", progress + "PASS\n", ""},
		{"what a test prints", "        x_test.go:5: Failing input written to testdata/fuzz/FuzzX/1\n", ""},
	} {
		if got := failingInput([]byte(c.out)); got != c.want {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
}

func TestLastProgress(t *testing.T) {
	const want = "execs: 100 (33/sec), new interesting: 2 (total: 5)"
	if got := lastProgress([]byte("fuzz: elapsed: 0s, execs: 1 (0/sec)\n" + progress + "PASS\n")); got != want {
		t.Errorf("got %q", got)
	}
}
