package main

import (
	"regexp"
	"strings"
	"time"
)

// outOfTime is all that is printed of a target that failed because its time was over. Whether it was
// is for the number to tell.
var outOfTime = regexp.MustCompile(`(?m)^--- FAIL: Fuzz\w+ \(([\d.]+s)\)\n` +
	`    (context deadline exceeded|fuzzing process hung or terminated unexpectedly: .*)\nFAIL\n?`)

// late says of the output of a target that failed that there was no more to it than that its time was
// over while a worker was busy. go test calls that a failure now and then: a worker that does not answer
// at once is killed, and either the end of the time or the death of the worker is what it reports, and
// nothing else. What an input does, to fail, to hang for ten seconds or to end the process, has a file
// named below it, or was reported before the time was over.
func late(out []byte, each time.Duration) bool {
	said := outOfTime.FindSubmatch(out)
	if said == nil {
		return false
	}
	took, err := time.ParseDuration(string(said[1]))
	return err == nil && took >= each
}

var written = regexp.MustCompile(`(?m)^    Failing input written to (\S+)$`)

// failingInput is the path, in the folder of the package, of the input that a target failed with; "" if
// it has written none.
func failingInput(out []byte) string {
	if said := written.FindSubmatch(out); said != nil {
		return string(said[1])
	}
	return ""
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
