// Package authz decides who may do what. The server asks an Authorizer once for each request,
// before it looks at anything the request names.
package authz

import (
	"context"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

// Attributes are what a decision may be based on. A request for an object or a collection has a
// Resource; any other has a Path and a Verb in lower case ("get").
type Attributes struct {
	User *authn.User
	Verb string // get, list, watch, create, update, patch, delete, deletecollection, impersonate

	Group, Version, Resource, Subresource string
	Namespace, Name                       string

	Path string
}

// IsResource says whether the request is for an object or a collection.
func (a *Attributes) IsResource() bool { return a.Path == "" }

// Decision is an authorizer's answer.
type Decision int

const (
	// NoOpinion lets the next authorizer decide; after the last one it is a no.
	NoOpinion Decision = iota
	Allow
	// Deny is final.
	Deny
)

// Authorizer decides. An error is a reason for not knowing, and the request is refused. reason is
// for people; it may be empty.
type Authorizer interface {
	Authorize(ctx context.Context, a *Attributes) (d Decision, reason string, err error)
}

// Func is an Authorizer.
type Func func(ctx context.Context, a *Attributes) (Decision, string, error)

func (f Func) Authorize(ctx context.Context, a *Attributes) (Decision, string, error) {
	return f(ctx, a)
}

// Chain asks one authorizer after another until one has an opinion.
func Chain(all ...Authorizer) Authorizer { return chain(all) }

type chain []Authorizer

func (c chain) Authorize(ctx context.Context, a *Attributes) (Decision, string, error) {
	var reasons string
	for _, next := range c {
		d, reason, err := next.Authorize(ctx, a)
		if err != nil || d != NoOpinion {
			return d, reason, err
		}
		if reason != "" && reasons != "" {
			reasons += ", "
		}
		reasons += reason
	}
	return NoOpinion, reasons, nil
}
