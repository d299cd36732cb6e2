package builtin

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// trustBundleMax is upstream's bound, in bytes.
const trustBundleMax = 1 << 20

func clusterTrustBundle() *kinds.Kind {
	return &kinds.Kind{
		Group: certificatesGroup, Version: "v1", Kind: "ClusterTrustBundle",
		Resource: "clustertrustbundles", Singular: "clustertrustbundle",
		Schema: schema.Builtin("io.k8s.api.certificates.v1.ClusterTrustBundle"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("SignerName", certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"],
				func(obj kinds.Object, _ time.Time) any {
					return table.Or(tree.Str(obj, "spec", "signerName"), table.None)
				}),
		},
		UpdateNamesRevision: true,
		DefaultPropagation:  "Background",
		Fields:              fieldsOf("spec.signerName"),
		NameRule:            func(name string, _ bool) []string { return content.IsPathSegmentName(name) },
		Strategy: kinds.Strategy{
			Validate: validateTrustBundle,
			ValidateCreate: func(obj kinds.Object) field.ErrorList {
				return trustAnchors(tree.Str(obj, "spec", "trustBundle"))
			},
			ValidateUpdate: validateTrustBundleUpdate,
		},
	}
}

func validateTrustBundle(obj kinds.Object) field.ErrorList {
	var e check.Errors
	name, signer := tree.Str(obj, "metadata", "name"), tree.Str(obj, "spec", "signerName")
	if name != "" { // that there is none is said elsewhere
		e.Messages(check.NewPath("metadata", "name"), name, check.TrustBundleName(name, signer))
	}
	if signer != "" {
		e.SignerName(check.NewPath("spec", "signerName"), signer)
	}
	return e.List()
}

func validateTrustBundleUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	if bundle := tree.Str(obj, "spec", "trustBundle"); bundle != tree.Str(old, "spec", "trustBundle") {
		e.Add(trustAnchors(bundle)...)
	}
	e.Add(declaredImmutable("spec.signerName")(obj, old)...)
	return e.List()
}

// trustAnchors checks that a bundle is certificates of authorities, each there once.
func trustAnchors(bundle string) field.ErrorList {
	var e check.Errors
	path := check.NewPath("spec", "trustBundle")
	if len(bundle) > trustBundleMax {
		e.TooLong(path, trustBundleMax)
		return e.List()
	}
	found := map[string][]int{}
	var order []string
	rest := []byte(bundle)
	for i := 0; ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if why := notAnAuthority(block); why != "" {
			e.Invalid(path, "<value omitted>", fmt.Sprintf("entry %d %s", i, why))
			continue
		}
		der := string(block.Bytes)
		if found[der] == nil {
			order = append(order, der)
		}
		found[der] = append(found[der], i)
	}
	if !e.OK() {
		return e.List()
	}
	if len(found) == 0 {
		e.Invalid(path, "<value omitted>", "at least one trust anchor must be provided")
	}
	for _, der := range order {
		if at := found[der]; len(at) > 1 {
			e.Invalid(path, "<value omitted>", fmt.Sprintf("duplicate trust anchor (indices %v)", at))
		}
	}
	return e.List()
}

// notAnAuthority says why a block of PEM is not the certificate of an authority, or "".
func notAnAuthority(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) != 0 {
		return "has PEM block headers"
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return "does not parse as X.509"
	case !certificate.IsCA:
		return "does not have the CA bit set"
	case !certificate.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
