// Package benchmarks measures the rooms of the loop beside what they take the place of, in one run:
//
//	go test -bench . ./benchmarks
package benchmarks
