// Package benchmarks measures the rooms of the loop beside what they take the place of, in one run:
//
//	go test -run '^$' -bench . ./benchmarks
//
// Metrics x-slower and x-larger are the ratios to ours, of the same run.
package benchmarks
