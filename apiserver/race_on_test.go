//go:build race

package apiserver_test

// raceEnabled: pools drop what they are given at random.
const raceEnabled = true
