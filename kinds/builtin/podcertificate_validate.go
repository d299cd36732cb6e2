package builtin

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// podCertificateSeconds is how long a pod's certificate may live unless asked otherwise.
const podCertificateSeconds = 24 * 60 * 60

// Upstream's bounds, in bytes.
const (
	uidMax              = 128
	publicKeyMax        = 10 << 10
	certificateChainMax = 100 << 10
)

// refreshMargin is how long a certificate is left alone at its beginning and before its end.
const refreshMargin = 10 * time.Minute

func validatePodCertificateRequest(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	e.SignerName(check.NewPath("spec", "signerName"), spec.Str("signerName"))
	for _, key := range slices.Sorted(maps.Keys(spec.StringMap("unverifiedUserAnnotations"))) {
		e.Add(validation.IsDomainPrefixedKey(spec.At("unverifiedUserAnnotations").Field(), strings.ToLower(key))...)
	}
	for _, who := range []struct {
		field string
		rule  apivalidation.ValidateNameFunc
	}{
		{"pod", apivalidation.NameIsDNSSubdomain},
		{"serviceAccount", apivalidation.ValidateServiceAccountName},
		{"node", apivalidation.NameIsDNSSubdomain},
	} {
		name := spec.Str(who.field + "Name")
		e.Messages(check.NewPath("spec", who.field+"Name"), name, who.rule(name, false))
		uid, path := spec.Str(who.field+"UID"), check.NewPath("spec", who.field+"UID")
		if uid == "" {
			e.Invalid(path, uid, "must not be empty")
		} else if len(uid) > uidMax {
			e.TooLong(path, uidMax)
		}
	}
	most := check.CertificateSecondsMax(spec.Str("signerName"))
	if n := spec.Int("maxExpirationSeconds"); n < check.CertificateSecondsMin || n > most {
		e.Invalid(spec.At("maxExpirationSeconds"), n,
			fmt.Sprintf("must be in the range [%d, %d]", check.CertificateSecondsMin, most))
	}
	podPublicKey(&e, spec)
	return e.List()
}

// podPublicKey checks the key that is to be certified, and that who asks has the other half.
func podPublicKey(e *check.Errors, spec check.At) {
	stub, public, proof := spec.Str("stubPKCS10Request"), spec.Str("pkixPublicKey"), spec.Str("proofOfPossession")
	var name string
	switch {
	case stub != "" && public == "" && proof == "":
		name = "stubPKCS10Request"
	case stub == "" && public != "" && proof != "":
		name = "pkixPublicKey"
	default:
		e.Invalid(check.NewPath("spec"), field.OmitValueType{},
			"exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set")
		return
	}
	for _, name := range []string{"stubPKCS10Request", "pkixPublicKey", "proofOfPossession"} {
		if base64.StdEncoding.DecodedLen(len(spec.Str(name))) > publicKeyMax+2 {
			e.TooLong(spec.At(name), publicKeyMax)
			return
		}
	}
	key, err := requestedKey(spec)
	if err != nil {
		e.Invalid(spec.At(name), field.OmitValueType{}, err.Error())
		return
	}
	if why := weakKey(key); why != "" {
		e.Invalid(spec.At(name), field.OmitValueType{}, why)
		return
	}
	if stub != "" {
		if request, err := x509.ParseCertificateRequest(decoded(stub)); err != nil || request.CheckSignature() != nil {
			e.Invalid(spec.At(name), field.OmitValueType{}, "invalid signature")
		}
	} else if !signed(key, []byte(spec.Str("podUID")), decoded(proof)) {
		e.Invalid(spec.At("proofOfPossession"), field.OmitValueType{}, "could not verify proof-of-possession signature")
	}
}

// requestedKey returns the public key that a request is about.
func requestedKey(spec check.At) (crypto.PublicKey, error) {
	if stub := spec.Str("stubPKCS10Request"); stub != "" {
		request, err := x509.ParseCertificateRequest(decoded(stub))
		if err != nil {
			return nil, errors.New("must be a valid PKCS#10 CSR")
		}
		return request.PublicKey, nil
	}
	key, err := x509.ParsePKIXPublicKey(decoded(spec.Str("pkixPublicKey")))
	if err != nil {
		return nil, errors.New("must be a valid PKIX-serialized public key")
	}
	return key, nil
}

func weakKey(key crypto.PublicKey) string {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return ""
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return "elliptic public keys must use curve P256, P384, or P521"
		}
		return ""
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return "RSA keys must have modulus size 3072 or 4096"
		}
		return ""
	}
	return "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
}

func signed(key crypto.PublicKey, text, signature []byte) bool {
	hash := sha256.Sum256(text)
	switch key := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, text, signature)
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, hash[:], signature)
	case *rsa.PublicKey:
		return rsa.VerifyPSS(key, crypto.SHA256, hash[:], signature, nil) == nil
	}
	return false
}

func validatePodCertificateStatus(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	status, path := check.Root(obj).Child("status"), check.NewPath("status")
	podCertificateConditions(&e, status)
	if !e.OK() {
		return e.List()
	}
	is, was := obj["status"], old["status"]
	switch state := podCertificateState(obj, time.Time{}); {
	case podCertificateState(old, time.Time{}) != "Pending":
		if !tree.Equal(is, was) {
			e.Invalid(path, field.OmitValueType{}, "immutable after PodCertificateRequest is issued, denied, or failed")
		}
	case state == denied || state == failed:
		if len(status.Map) > 1 {
			e.Invalid(path, field.OmitValueType{},
				"non-condition status fields must be empty when denying or failing the PodCertificateRequest")
		}
	case state == issued:
		issuedChain(&e, check.Root(old).Child("spec"), status)
	case !tree.Equal(is, was):
		e.Invalid(path, field.OmitValueType{},
			`status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
	}
	return e.List()
}

func podCertificateConditions(e *check.Errors, status check.At) {
	decisions := 0
	for i, c := range status.Each("conditions") {
		kind := c.Str("type")
		c.Path = check.NewPath("status", "conditions", fmt.Sprintf("[%d]", i)) // upstream's way to write it
		if kind != issued && kind != denied && kind != failed {
			e.NotSupported(c.At("type"), kind, issued, denied, failed)
			continue
		}
		if decisions++; decisions > 1 {
			e.Invalid(c.At("type"), kind, `There may be at most one condition with type "Issued", "Denied", or "Failed"`)
		}
		if value := c.Str("status"); value != "True" {
			e.NotSupported(c.At("status"), value, "True")
		}
	}
}

// issuedChain checks that what was issued is what was asked for, and that its times are told right.
func issuedChain(e *check.Errors, spec, status check.At) {
	chain, path := status.Str("certificateChain"), status.At("certificateChain")
	if len(chain) > certificateChainMax {
		e.TooLong(path, certificateChainMax)
		return
	}
	leaf, why := parseChain([]byte(chain))
	if why != "" {
		e.Invalid(path, chain, why)
		return
	}
	key, err := requestedKey(spec)
	if equal, ok := key.(interface{ Equal(crypto.PublicKey) bool }); err != nil || !ok || !equal.Equal(leaf.PublicKey) {
		e.Invalid(path, chain, "leaf certificate was not issued to the requested public key")
		return
	}
	issuedTimes(e, spec, status, leaf)
}

func parseChain(rest []byte) (leaf *x509.Certificate, why string) {
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if leaf == nil {
				return nil, "issued certificate chain must contain at least one certificate"
			}
			return leaf, ""
		}
		if block.Type != "CERTIFICATE" {
			return nil, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil && leaf == nil:
			return nil, "leaf certificate does not parse as valid X.509"
		case err != nil:
			return nil, "intermediate certificate does not parse as valid X.509"
		case leaf == nil:
			leaf = certificate
		}
	}
}

func issuedTimes(e *check.Errors, spec, status check.At, leaf *x509.Certificate) {
	for _, name := range []string{"notBefore", "notAfter"} {
		if !status.Has(name) {
			e.Required(status.At(name), "must be present and consistent with the issued certificate")
		}
	}
	if !status.Has("beginRefreshAt") {
		e.Required(status.At("beginRefreshAt"), "must be present and in the range [notbefore+10min, notafter-10min]")
	}
	if !e.OK() {
		return
	}
	notBefore, notAfter := table.Time(status.Str("notBefore")), table.Time(status.Str("notAfter"))
	refresh, lifetime := table.Time(status.Str("beginRefreshAt")), leaf.NotAfter.Sub(leaf.NotBefore)
	chain := status.At("certificateChain")
	switch {
	case !notBefore.Equal(leaf.NotBefore):
		e.Invalid(status.At("notBefore"), notBefore, "must be set to the NotBefore time encoded in the leaf certificate")
	case !notAfter.Equal(leaf.NotAfter):
		e.Invalid(status.At("notAfter"), notAfter, "must be set to the NotAfter time encoded in the leaf certificate")
	case lifetime < time.Hour:
		e.Invalid(chain, lifetime, "leaf certificate lifetime must be >= 1 hour")
	case lifetime > time.Duration(spec.Int("maxExpirationSeconds"))*time.Second:
		e.Invalid(chain, lifetime, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%d)",
			spec.Int("maxExpirationSeconds")))
	case refresh.Before(notBefore.Add(refreshMargin)):
		e.Invalid(status.At("beginRefreshAt"), refresh, "must be at least 10 minutes after status.notBefore")
	case refresh.After(notAfter.Add(-refreshMargin)):
		e.Invalid(status.At("beginRefreshAt"), refresh, "must be at least 10 minutes before status.notAfter")
	}
}
