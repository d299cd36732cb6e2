package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

func projected(e *check.Errors, s check.At) {
	mode(e, s, "defaultMode")
	taken := sets.Set[string]{}
	for _, src := range s.Each("sources") {
		projection(e, s, src, taken)
	}
}

// projection checks one source of a projected volume. No two may write one file.
func projection(e *check.Errors, volume, src check.At, taken sets.Set[string]) {
	sources := 0
	claim := func(path string, told any) {
		if path != "" && taken.Has(path) {
			e.Invalid(volume.Path, told, "conflicting duplicate paths")
		}
		taken.Insert(path)
	}
	for _, name := range []string{"secret", "configMap"} {
		if at := src.Child(name); at.Exists() {
			sources++
			requires("name")(e, at)
			for _, item := range at.Each("items") {
				keyToPath(e, item)
				claim(item.Str("path"), at.Str("name"))
			}
		}
	}
	if at := src.Child("downwardAPI"); at.Exists() {
		sources++
		for _, item := range at.Each("items") {
			downwardFile(e, item, at.Path)
			claim(item.Str("path"), item.Str("path"))
		}
	}
	if at := src.Child("serviceAccountToken"); at.Exists() {
		sources++
		token(e, volume, at)
	}
	if at := src.Child("clusterTrustBundle"); at.Exists() {
		sources++
		trustBundle(e, at)
		claim(at.Str("path"), at.Str("path"))
	}
	if at := src.Child("podCertificate"); at.Exists() {
		sources++
		podCertificate(e, at, claim)
	}
	if sources > 1 {
		e.Forbidden(src.Path, "may not specify more than 1 volume type per source")
	}
}

// The time a token is good for: upstream's bounds.
const (
	tokenSecondsMin = 10 * 60
	tokenSecondsMax = 1 << 32
)

func token(e *check.Errors, volume, at check.At) {
	n, path := at.Int("expirationSeconds"), at.At("expirationSeconds")
	switch {
	case !at.Has("expirationSeconds"):
		e.Required(path, "")
	case n < tokenSecondsMin:
		e.Invalid(path, n, "may not specify a duration less than 10 minutes")
	case n > tokenSecondsMax:
		e.Invalid(path, n, "may not specify a duration larger than 2^32 seconds")
	}
	if file := at.Str("path"); file == "" {
		e.Required(volume.At("path"), "")
	} else {
		localFile(e, volume.At("path"), file)
	}
}

// trustBundle checks which certificates of authorities are wanted: those of a name, or all of a signer
// that have the labels.
func trustBundle(e *check.Errors, at check.At) {
	name, byName := at.Map["name"].(string)
	signer, bySigner := at.Map["signerName"].(string)
	switch {
	case byName && bySigner:
		e.Invalid(at.Path, bundleAsTold{name, signer, at.Get("labelSelector"), at.Get("optional"), at.Str("path"), nil},
			"only one of name and signerName may be used")
	case byName:
		if name == "" {
			e.Required(at.At("name"), "must be a valid object name")
		}
		for _, msg := range check.TrustBundleName(name, signerOf(name)) {
			e.Invalid(at.At("name"), name, "not a valid clustertrustbundlename: "+msg)
		}
		if at.Has("labelSelector") {
			e.Invalid(at.At("labelSelector"), at.Get("labelSelector"), "labelSelector must be unset if name is specified")
		}
	case bySigner:
		if signer == "" {
			e.Required(at.At("signerName"), "must be a valid signer name")
		}
		e.SignerName(at.At("signerName"), signer)
		e.LabelSelector(at, "labelSelector")
	default:
		e.Required(at.Path, "either name or signerName must be specified")
	}
	filePath(e, at, "path")
}

// bundleAsTold is how upstream shows a projection in its complaint.
type bundleAsTold struct {
	Name, SignerName        string
	LabelSelector, Optional any
	Path                    string
	User                    any
}

// signerOf is the signer that the name of a bundle tells, or "".
func signerOf(bundle string) string {
	i := strings.LastIndexByte(bundle, ':')
	return strings.ReplaceAll(bundle[:max(i, 0)], ":", "/")
}

// podCertificate checks a certificate that is to be made for the pod, and the files it is kept in.
func podCertificate(e *check.Errors, at check.At, claim func(path string, told any)) {
	signer := at.Str("signerName")
	e.SignerName(at.At("signerName"), signer)
	annotations := at.StringMap("userAnnotations")
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		e.Add(validation.IsDomainPrefixedKey(at.At("userAnnotations").Field(), strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		e.TooLong(at.At("userAnnotations"), apivalidation.TotalAnnotationSizeLimitB)
	}
	e.Among(at, "keyType", "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
	if n := at.Int("maxExpirationSeconds"); at.Has("maxExpirationSeconds") {
		if n < check.CertificateSecondsMin {
			e.Invalid(at.At("maxExpirationSeconds"), n,
				fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", check.CertificateSecondsMin))
		}
		if most := check.CertificateSecondsMax(signer); n > most {
			e.Invalid(at.At("maxExpirationSeconds"), n,
				fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most))
		}
	}
	files := 0
	for _, name := range []string{"credentialBundlePath", "keyPath", "certificateChainPath"} {
		if file := at.Str(name); file != "" {
			files++
			localFile(e, at.At(name), file)
			claim(file, file)
		}
	}
	if files == 0 {
		e.Required(at.Path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
	}
}
