package builtin

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const issued = "Issued"

func podCertificateRequest() *kinds.Kind {
	doc := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return &kinds.Kind{
		Group: certificatesGroup, Version: "v1", Kind: "PodCertificateRequest",
		Resource: "podcertificaterequests", Singular: "podcertificaterequest", Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.certificates.v1.PodCertificateRequest"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("PodName", doc["podName"], "spec", "podName"),
			table.Text("ServiceAccountName", doc["serviceAccountName"], "spec", "serviceAccountName"),
			table.Text("NodeName", doc["nodeName"], "spec", "nodeName"),
			table.Text("SignerName", doc["signerName"], "spec", "signerName"),
			table.Column("State", "Is the request Pending, Issued, Denied, or Failed?", podCertificateState),
			table.Column("UnverifiedUserAnnotations", doc["unverifiedUserAnnotations"],
				func(obj kinds.Object, _ time.Time) any {
					return labels.FormatLabels(tree.StringMap(obj, "spec", "unverifiedUserAnnotations"))
				}),
		},
		Status:              true,
		UpdateNamesRevision: true,
		DefaultPropagation:  "Background",
		Fields:              fieldsOf("spec.signerName", "spec.podName", "spec.nodeName"),
		Strategy: kinds.Strategy{
			Default: func(obj kinds.Object) {
				tree.Default(tree.Ensure(obj, "spec"), int64(podCertificateSeconds), "maxExpirationSeconds")
			},
			PrepareForCreate:       emptyStatus(map[string]any{}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			ValidateCreate:         validatePodCertificateRequest,
			ValidateUpdate:         unchanged("spec"),
			ValidateStatusUpdate:   validatePodCertificateStatus,
		},
	}
}

// podCertificateState is the condition that ended the request, or Pending.
func podCertificateState(obj kinds.Object, _ time.Time) any {
	state := "Pending"
	for _, c := range tree.Maps(obj, "status", "conditions") {
		switch kind := tree.Str(c, "type"); kind {
		case issued, denied, failed:
			state = kind
		}
	}
	return state
}
