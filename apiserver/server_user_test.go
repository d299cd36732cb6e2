package apiserver_test

import (
	"context"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authz"
)

// Only the server itself is not asked about: whoever goes by its name may do no more than the authorizer
// says.
func TestNameOfTheServerOpensNothing(t *testing.T) {
	s := newSite(t, func(o *apiserver.Options) {
		o.Authorizer = authz.Func(func(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
			if a.Verb == "impersonate" {
				return authz.Allow, "", nil
			}
			return authz.NoOpinion, "", nil
		})
	})
	r := s.ask("GET", cm, "", "Impersonate-User", "system:apiserver", "Impersonate-Group", "system:masters")
	if r.code != 403 {
		t.Errorf("%d %s, want 403", r.code, r.text)
	}
}
