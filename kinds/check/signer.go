package check

import (
	"fmt"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
)

// signerNameMax is long enough for a domain, a slash and a name that has a namespace in it.
const signerNameMax = 571

// How long a pod's certificate may live, in seconds; Kubernetes' own signers give a day at most.
const (
	CertificateSecondsMin = 60 * 60
	certificateSecondsMax = 91 * 24 * 60 * 60
	ownCertificateMax     = 24 * 60 * 60
)

// CertificateSecondsMax is how long a signer's certificate for a pod may live.
func CertificateSecondsMax(signer string) int64 {
	host, _, _ := strings.Cut(signer, "/")
	if host == "kubernetes.io" || strings.HasSuffix(host, ".kubernetes.io") {
		return ownCertificateMax
	}
	return certificateSecondsMax
}

// SignerName checks who is to sign: "example.com/some-name".
func (e *Errors) SignerName(path Path, name string) {
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
	e.signerLabels(path, parts[0], domain, validation.IsDNS1123Label)
	if len(domain) < 2 {
		e.Invalid(path, parts[0], "should be a domain with at least two segments separated by dots")
	}
	e.signerLabels(path, parts[1], strings.Split(parts[1], "."), validation.IsDNS1123Subdomain)
	if len(name) > signerNameMax {
		e.TooLong(path, signerNameMax)
	}
}

// signerLabels complains about the first label of a part that breaks the rule.
func (e *Errors) signerLabels(path Path, part string, labels []string, rule func(string) []string) {
	for _, label := range labels {
		if messages := rule(label); len(messages) > 0 {
			for _, msg := range messages {
				e.Invalid(path, part, fmt.Sprintf("validating label %q: %s", label, msg))
			}
			return
		}
	}
}

// TrustBundleName says what is wrong with the name of a ClusterTrustBundle. It begins with the
// signer's if there is one: who may write certificates of a signer is told by the names.
func TrustBundleName(name, signer string) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return apivalidation.NameIsDNSSubdomain(name, false)
	}
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix)}
	}
	return apivalidation.NameIsDNSSubdomain(rest, false)
}
