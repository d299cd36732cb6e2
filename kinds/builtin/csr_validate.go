package builtin

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kindschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Signers that are special, and the group that may do everything.
const (
	legacySigner = "kubernetes.io/legacy-unknown"
	clientSigner = "kubernetes.io/kube-apiserver-client"
	mastersGroup = "system:masters"
)

// csrSecondsMin is the shortest life, in seconds, that a certificate may be asked for.
const csrSecondsMin = 600

// keyUsages are what a certificate can be for, sorted.
var keyUsages = []string{
	"any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
	"decipher only", "digital signature", "email protection", "encipher only", "ipsec end system",
	"ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc",
	"ocsp signing", "s/mime", "server auth", "signing", "timestamping",
}

// refusePrivilegedSubject keeps anybody from asking for a client certificate that may do everything.
func refusePrivilegedSubject(obj kinds.Object) error {
	spec := tree.Map(obj, "spec")
	csr, err := parseCSR(tree.Str(spec, "request"))
	if err != nil || tree.Str(spec, "signerName") != clientSigner ||
		!slices.Contains(csr.Subject.Organization, mastersGroup) {
		return nil // whatever else is wrong is found later
	}
	return apierrors.NewForbidden(
		kindschema.GroupResource{Group: certificatesGroup, Resource: "certificatesigningrequests"},
		tree.Str(obj, "metadata", "name"),
		fmt.Errorf("use of %s signer with %s group is not allowed", clientSigner, mastersGroup))
}

// parseCSR reads a request: PEM, in base64 as JSON has it.
func parseCSR(text string) (*x509.CertificateRequest, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

func validateNewCSR(obj kinds.Object) field.ErrorList {
	var e check.Errors
	csr(&e, obj, nil)
	return e.List()
}

// csr checks a request; what was wrong with the old one already may stay.
func csr(e *check.Errors, obj, old kinds.Object) {
	spec := check.Root(obj).Child("spec")
	request, err := parseCSR(spec.Str("request"))
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		e.Invalid(check.NewPath("spec", "request"), spec.Get("request"), err.Error())
	}
	if old == nil {
		csrUsages(e, spec)
	}
	name, path := spec.Str("signerName"), check.NewPath("spec", "signerName")
	if name == legacySigner && tree.Str(old, "spec", "signerName") != legacySigner {
		e.Invalid(path, name, "the legacy signerName is not allowed via this API version")
	} else {
		e.SignerName(path, name)
	}
	if n := spec.Int("expirationSeconds"); spec.Has("expirationSeconds") && n < csrSecondsMin {
		e.Invalid(spec.At("expirationSeconds"), n,
			"may not specify a duration less than 600 seconds (10 minutes)")
	}
	csrConditions(e, obj, old)
	certificate := tree.Str(obj, "status", "certificate")
	if certificate != tree.Str(old, "status", "certificate") {
		if err := checkCertificates(certificate); err != nil {
			e.Invalid(check.NewPath("status", "certificate"), "<certificate data>", err.Error())
		}
	}
}

func csrUsages(e *check.Errors, spec check.At) {
	usages, path := spec.Strings("usages"), check.NewPath("spec", "usages")
	if len(usages) == 0 {
		e.Required(path, "")
	}
	for i, usage := range usages {
		if !slices.Contains(keyUsages, usage) {
			e.NotSupported(path.Index(i), usage, keyUsages...)
		}
	}
	for i, usage := range usages {
		if slices.Index(usages, usage) < i {
			e.Duplicate(path.Index(i), usage)
		}
	}
}

// eitherDecision is how messages name the two conditions of which there can be one.
var eitherDecision = [2]string{`conditions[{"type": "Approved"}]`, `conditions[{"type": "Denied"}]`}

func csrConditions(e *check.Errors, obj, old kinds.Object) {
	both := len(conditionsOf(old, approved)) > 0 && len(conditionsOf(old, denied)) > 0
	var seen []string
	for _, c := range check.Root(obj).Child("status").Each("conditions") {
		kind := c.Str("type")
		if kind == "" {
			e.Required(c.At("type"), "")
		}
		if kind == approved || kind == denied || kind == failed {
			e.OneOf(c, "status", "True")
		} else {
			e.OneOf(c, "status", "False", "True", "Unknown")
		}
		opposite := kind == approved && slices.Contains(seen, denied) ||
			kind == denied && slices.Contains(seen, approved)
		if opposite && !both {
			e.Later().Invalid(check.NewPath("status", "conditions"), "{"+eitherDecision[0]+", "+eitherDecision[1]+"}",
				"must specify at most one of: `"+eitherDecision[0]+"`, `"+eitherDecision[1]+"`")
		}
		if slices.Contains(seen, kind) && len(conditionsOf(old, kind)) < 2 {
			e.Duplicate(c.At("type"), kind)
		}
		seen = append(seen, kind)
	}
}

// checkCertificates checks that a text in base64 is nothing but certificates in PEM; "" is right.
func checkCertificates(text string) error {
	if text == "" {
		return nil
	}
	rest, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if n == 0 {
				return errors.New("must contain at least one CERTIFICATE PEM block")
			}
			return nil
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) != 0 {
			return errors.New("no PEM block headers are permitted")
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
	}
}

// The three ways to change a request differ in what of the status each may write.
func validateCSRUpdate(obj, old kinds.Object) field.ErrorList {
	return csrChange(obj, old, false, false)
}
func validateCSRStatus(obj, old kinds.Object) field.ErrorList {
	return csrChange(obj, old, false, true)
}
func validateApproval(obj, old kinds.Object) field.ErrorList { return csrChange(obj, old, true, false) }

func csrChange(obj, old kinds.Object, mayDecide, mayIssue bool) field.ErrorList {
	var e check.Errors
	csr(&e, obj, old)
	path := check.NewPath("status", "conditions")
	for _, kind := range []string{approved, denied, failed} {
		if len(conditionsOf(obj, kind)) < len(conditionsOf(old, kind)) {
			e.Forbidden(path, fmt.Sprintf("updates may not remove a condition of type %q", kind))
		}
	}
	if !mayDecide {
		csrDecisionKept(&e, path, obj, old)
	}
	before := tree.Str(old, "status", "certificate")
	if tree.Str(obj, "status", "certificate") != before {
		if !mayIssue {
			e.Forbidden(check.NewPath("status", "certificate"), "updates may not set certificate content")
		} else if before != "" {
			e.Forbidden(check.NewPath("status", "certificate"), "updates may not modify existing certificate content")
		}
	}
	return e.List()
}

func csrDecisionKept(e *check.Errors, path check.Path, obj, old kinds.Object) {
	for _, kind := range []string{approved, denied} {
		is, was := conditionsOf(obj, kind), conditionsOf(old, kind)
		switch {
		case len(is) > len(was):
			e.Forbidden(path, fmt.Sprintf("updates may not add a condition of type %q", kind))
		case len(is) == len(was) && !tree.Equal(is, was):
			e.Forbidden(path, fmt.Sprintf("updates may not modify a condition of type %q\n%v", kind, diff.Diff(was, is)))
		}
	}
}
