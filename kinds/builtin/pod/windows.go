package pod

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

// What Windows allows in the names of users and their domains, and what a specification of credentials may take.
const (
	windowsSpecBytesMax  = 64 << 10
	windowsDomainCharMax = 256
	windowsUserCharMax   = 104
)

var (
	controlCharacters = regexp.MustCompile(`[[:cntrl:]]+`)
	netBIOSDomain     = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	dnsDomain         = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
)

// windowsOptions checks what a security context says to nodes that run Windows.
func windowsOptions(e *check.Errors, w check.At) {
	if w.Has("gmsaCredentialSpecName") {
		name := w.Str("gmsaCredentialSpecName")
		e.Messages(w.At("gmsaCredentialSpecName"), name, validation.IsDNS1123Subdomain(name))
	}
	if path, spec := w.At("gmsaCredentialSpec"), w.Str("gmsaCredentialSpec"); w.Has("gmsaCredentialSpec") {
		if spec == "" {
			e.Invalid(path, spec, "gmsaCredentialSpec cannot be an empty string")
		} else if len(spec) > windowsSpecBytesMax {
			e.Invalid(path, spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", windowsSpecBytesMax>>10))
		}
	}
	if w.Has("runAsUserName") {
		name := w.Str("runAsUserName")
		for _, text := range windowsUserName(name) {
			e.Invalid(w.At("runAsUserName"), name, "runAsUserName"+text)
		}
	}
}

// windowsUserName says what is wrong with "USER" or "DOMAIN\USER".
func windowsUserName(name string) (wrong []string) {
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	switch {
	case name == "":
		return []string{" cannot be an empty string"}
	case controlCharacters.MatchString(name):
		return []string{" cannot contain control characters"}
	case strings.Contains(user, `\`):
		return []string{" cannot contain more than one backslash"}
	}
	if len(domain) >= windowsDomainCharMax {
		wrong = append(wrong, fmt.Sprintf("'s Domain length must be under %d characters", windowsDomainCharMax))
	}
	if hasDomain && !netBIOSDomain.MatchString(domain) && !dnsDomain.MatchString(domain) {
		wrong = append(wrong, "'s Domain doesn't match the NetBios nor the DNS format")
	}
	switch {
	case user == "":
		wrong = append(wrong, "'s User cannot be empty")
	case len(user) > windowsUserCharMax:
		wrong = append(wrong, fmt.Sprintf("'s User length must not be longer than %d characters", windowsUserCharMax))
	}
	if user != "" && strings.Trim(user, ". ") == "" {
		wrong = append(wrong, "'s User cannot contain only periods or spaces")
	}
	if never := `"/\:;|=,+*?<>@[]`; strings.ContainsAny(user, never) {
		wrong = append(wrong, "'s User cannot contain the following characters: "+never)
	}
	return wrong
}
