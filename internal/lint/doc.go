// Package lint holds the rules that the source of the project keeps, as tests: formatting, vet and
// staticcheck, who may import whom, package documentation, file sizes and banned calls. It has no
// code of its own.
package lint
