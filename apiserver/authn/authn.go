// Package authn finds out who sends a request: by client certificate, by bearer token, or as
// nobody in particular. It also reads the headers with which one user asks to act as another.
//
// Everything here may be used concurrently.
package authn

import (
	"context"
	"errors"
	"net/http"
	"slices"
)

// Users and groups that mean something to the server itself.
const (
	Anonymous       = "system:anonymous"
	Masters         = "system:masters"
	Nodes           = "system:nodes"
	NodePrefix      = "system:node:"
	Authenticated   = "system:authenticated"
	Unauthenticated = "system:unauthenticated"

	serviceAccounts      = "system:serviceaccounts"
	serviceAccountPrefix = "system:serviceaccount:"
)

// User is who acts. A User is shared by all that looks at a request, and never changed.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// In says whether the user is in a group.
func (u *User) In(group string) bool { return slices.Contains(u.Groups, group) }

// Known returns the user as a member of system:authenticated.
func (u *User) Known() *User { return u.with(Authenticated) }

// with returns the user as a member of one more group.
func (u *User) with(group string) *User {
	if u.In(group) {
		return u
	}
	copied := *u
	copied.Groups = append(slices.Clip(slices.Clone(u.Groups)), group)
	return &copied
}

// ErrUnauthorized says that a request has credentials and they are not good. A client sees 401.
var ErrUnauthorized = errors.New("authn: credentials are not valid")

// Authenticator recognises one kind of credentials.
type Authenticator interface {
	// Authenticate returns the user, or nil if the request has no credentials of this kind.
	// Possible errors: ErrUnauthorized.
	Authenticate(r *http.Request) (*User, error)
}

// Func is an Authenticator.
type Func func(r *http.Request) (*User, error)

func (f Func) Authenticate(r *http.Request) (*User, error) { return f(r) }

// Chain asks one authenticator after another. Who is recognised gets the group
// system:authenticated; a request without any credentials is system:anonymous's; one with bad
// credentials is refused even if other credentials would do.
func Chain(all ...Authenticator) Authenticator {
	return Func(func(r *http.Request) (*User, error) {
		for _, a := range all {
			u, err := a.Authenticate(r)
			if err != nil {
				return nil, err
			}
			if u != nil {
				return u.Known(), nil
			}
		}
		return &User{Name: Anonymous, Groups: []string{Unauthenticated}}, nil
	})
}

type contextKey struct{}

// WithUser returns a context whose requests are the user's. Only code in the process can make
// one: it is how the in-process transport says on whose behalf it calls.
func WithUser(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, contextKey{}, u.Known())
}

// FromContext returns the user that WithUser put there, or nil.
func FromContext(ctx context.Context) *User {
	u, _ := ctx.Value(contextKey{}).(*User)
	return u
}
