package levelvsedge_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/examples/levelvsedge"
)

func run(config levelvsedge.Config, seed uint64) levelvsedge.Outcome {
	out, err := levelvsedge.Run(config, seed)
	if err != nil {
		panic(err)
	}
	return out
}

// The figures of seed 42 are those published with the experiment, to the last digit.
func Example() {
	controller := levelvsedge.Controller
	noDedupe, noSkip, edge := controller, controller, controller
	noDedupe.Deduplicate = false
	noSkip.SkipUnchanged = false
	edge.Level = false

	base := run(controller, 42)
	fmt.Printf("level-triggered: %d reconciles, %d writes\n", base.Reconciles, base.Writes)
	fmt.Printf("without deduplication: %d reconciles\n", run(noDedupe, 42).Reconciles)
	fmt.Printf("without the no-op check: %d writes\n", run(noSkip, 42).Writes)

	converged, drifted := 0, 0
	for i := range uint64(20) {
		seed := (i + 1) * 7919
		if run(controller, seed).Converged {
			converged++
		}
		if !run(edge, seed).Converged {
			drifted++
		}
	}
	fmt.Printf("level-triggered converged in %d of 20, edge-triggered drifted in %d of 20\n", converged, drifted)
	// Output:
	// level-triggered: 499 reconciles, 28 writes
	// without deduplication: 588 reconciles
	// without the no-op check: 463 writes
	// level-triggered converged in 20 of 20, edge-triggered drifted in 20 of 20
}

// TestRunsRepeat has one seed give one outcome, whatever the scheduler of goroutines does.
func TestRunsRepeat(t *testing.T) {
	first := run(levelvsedge.Controller, 7)
	for range 20 {
		if diff := cmp.Diff(first, run(levelvsedge.Controller, 7)); diff != "" {
			t.Fatalf("the same seed, another outcome:\n%s", diff)
		}
	}
}

// TestPictureIsOfThisRun compares the picture in docs with what the experiment gives now.
func TestPictureIsOfThisRun(t *testing.T) {
	got, err := levelvsedge.Plot(42)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile("../../docs/level-vs-edge.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, kept) {
		t.Error("the picture is of another run; go run ./examples/levelvsedge/plot > docs/level-vs-edge.svg draws it")
	}
}
