//go:build race

package schema_test

// raceEnabled: pools drop what they are given at random, and everything takes ten times as long.
const raceEnabled = true
