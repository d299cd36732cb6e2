package main

import "testing"

// What go test prints when the time is over is no finding, unless it has found something, too.
func TestLate(t *testing.T) {
	const progress = "fuzz: elapsed: 3s, execs: 100 (33/sec), new interesting: 2 (total: 5)\n"
	for _, c := range []struct {
		name, out string
		want      bool
	}{
		{"a slow worker", progress + "--- FAIL: FuzzX (3.05s)\n    context deadline exceeded\nFAIL\n", true},
		{"a finding", progress + "--- FAIL: FuzzX (3.05s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:5: bad\n" +
			"    \n    Failing input written to testdata/fuzz/FuzzX/1\nFAIL\n", false},
		{"a hang", progress + "--- FAIL: FuzzX (13.05s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\n" +
			"    Failing input written to testdata/fuzz/FuzzX/1\nFAIL\n", false},
		{"a finding in the words of a late one", progress + "--- FAIL: FuzzX (3.05s)\n    --- FAIL: FuzzX (0.00s)\n" +
			"        x_test.go:5: context deadline exceeded\n    \nFAIL\n", false},
		{"a crash", "panic: context deadline exceeded\n", false},
	} {
		if got := late([]byte(c.out)); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}
