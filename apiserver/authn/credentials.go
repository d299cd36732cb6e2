package authn

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// Certificates recognises the client certificate that the TLS layer has verified: its common name
// is the user and its organisations are the groups, as in every Kubernetes cluster.
func Certificates() Authenticator {
	return Func(func(r *http.Request) (*User, error) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			return nil, nil
		}
		subject := r.TLS.VerifiedChains[0][0].Subject
		if subject.CommonName == "" {
			return nil, ErrUnauthorized
		}
		return &User{Name: subject.CommonName, Groups: subject.Organization}, nil
	})
}

// Tokens recognises fixed bearer tokens. Tokens are compared by their hashes, in constant time.
func Tokens(users map[string]*User) Authenticator {
	type known struct {
		hash [sha256.Size]byte
		user *User
	}
	all := make([]known, 0, len(users))
	for token, u := range users {
		all = append(all, known{sha256.Sum256([]byte(token)), u})
	}
	return Func(func(r *http.Request) (*User, error) {
		token, ok := bearer(r)
		if !ok {
			return nil, nil
		}
		hash := sha256.Sum256([]byte(token))
		var found *User
		for i := range all {
			if subtle.ConstantTimeCompare(hash[:], all[i].hash[:]) == 1 {
				found = all[i].user
			}
		}
		if found == nil {
			return nil, ErrUnauthorized
		}
		return found, nil
	})
}

// bearer returns the token of the Authorization header. Another scheme is no token at all.
func bearer(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, token != ""
}
