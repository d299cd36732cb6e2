// Package flux runs Flux, a public project built on controller-runtime, against Setpoint: its
// source-controller and kustomize-controller, unchanged, as their own module builds them.
//
// The module is apart from the others because its dependencies are Flux's and not Setpoint's.
package flux
