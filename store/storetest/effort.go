package storetest

import (
	"os"
	"strconv"
	"testing"
)

// Seed is what the randomness of a test comes from: always the same, unless SETPOINT_SEED says another,
// so that a run that fails can be had again, and other runs can be had on purpose.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, _ := number(t, "SETPOINT_SEED", 1)
	t.Logf("SETPOINT_SEED=%d", seed)
	return seed
}

// Rounds is how often a test does what it repeats: so often, or as often as SETPOINT_TORTURE says.
func Rounds(t testing.TB, few int) int {
	t.Helper()
	rounds, _ := number(t, "SETPOINT_TORTURE", uint64(few))
	return int(rounds)
}

// Tortured says whether somebody wants all that there is.
func Tortured(t testing.TB) bool {
	t.Helper()
	_, set := number(t, "SETPOINT_TORTURE", 0)
	return set
}

// number reads a variable of the environment.
func number(t testing.TB, name string, unset uint64) (n uint64, set bool) {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return unset, false
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 {
		t.Fatalf("%s is %q, want a number from 1 on", name, text)
	}
	return n, true
}
