package builtin

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

// signerNameMax is long enough for a domain, a slash and a name that has a namespace in it.
const signerNameMax = 571

// signerName checks who is to sign: "example.com/some-name".
func signerName(e *check.Errors, path check.Path, name string) {
	if name == "" {
		e.Required(path, "")
		return
	}
	parts := strings.Split(name, "/")
	if len(parts) != 2 {
		e.Invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
		return
	}
	if len(parts[0]) > validation.DNS1123SubdomainMaxLength {
		e.TooLong(path, validation.DNS1123SubdomainMaxLength)
	}
	domain := strings.Split(parts[0], ".")
	signerLabels(e, path, parts[0], domain, validation.IsDNS1123Label)
	if len(domain) < 2 {
		e.Invalid(path, parts[0], "should be a domain with at least two segments separated by dots")
	}
	signerLabels(e, path, parts[1], strings.Split(parts[1], "."), validation.IsDNS1123Subdomain)
	if len(name) > signerNameMax {
		e.TooLong(path, signerNameMax)
	}
}

// signerLabels complains about the first label of a part that breaks the rule.
func signerLabels(e *check.Errors, path check.Path, part string, labels []string, rule func(string) []string) {
	for _, label := range labels {
		if messages := rule(label); len(messages) > 0 {
			for _, msg := range messages {
				e.Invalid(path, part, fmt.Sprintf("validating label %q: %s", label, msg))
			}
			return
		}
	}
}

// ownSigner says whether a signer is one of Kubernetes' own.
func ownSigner(name string) bool {
	host, _, _ := strings.Cut(name, "/")
	return host == "kubernetes.io" || strings.HasSuffix(host, ".kubernetes.io")
}
