package builtin

import (
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const certificatesGroup = "certificates.k8s.io"

// The conditions of a CertificateSigningRequest that decide about it. They are true, or not there.
const (
	approved = "Approved"
	denied   = "Denied"
	failed   = "Failed"
)

func certificateSigningRequest() *kinds.Kind {
	return &kinds.Kind{
		Group: certificatesGroup, Version: "v1", Kind: "CertificateSigningRequest",
		Resource: "certificatesigningrequests", Singular: "certificatesigningrequest",
		ShortNames: []string{"csr"},
		Schema:     schema.Builtin("io.k8s.api.certificates.v1.CertificateSigningRequest"),
		Columns:    csrColumns(),
		Status:     true, SpecUnowned: true,
		Subresources: []kinds.Subresource{{
			Name: "approval", Verbs: []string{"get", "patch", "update"},
			Strategy: &kinds.Strategy{PrepareForUpdate: prepareApproval, ValidateUpdate: validateApproval},
		}},
		DefaultPropagation: "Background",
		Fields:             fieldsOf("spec.signerName"),
		NameRule:           func(name string, _ bool) []string { return content.IsPathSegmentName(name) },
		Strategy: kinds.Strategy{
			PrepareForCreate: prepareCSR,
			PrepareForUpdate: func(env *kinds.Env, obj, old kinds.Object) error {
				keepSpec(env, obj, old)
				return keepStatus(env, obj, old)
			},
			PrepareForStatusUpdate: prepareCSRStatus,
			ValidateCreate:         validateNewCSR,
			ValidateUpdate:         validateCSRUpdate,
			ValidateStatusUpdate:   validateCSRStatus,
		},
	}
}

// fieldsOf makes the field selectors of strings at dotted paths.
func fieldsOf(paths ...string) map[string]func(kinds.Object) string {
	fields := make(map[string]func(kinds.Object) string, len(paths))
	for _, path := range paths {
		keys := split(path)
		fields[path] = func(obj kinds.Object) string { return tree.Str(obj, keys...) }
	}
	return fields
}

func csrColumns() []kinds.Column {
	doc := certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()
	return []kinds.Column{
		table.Name(),
		table.Age(),
		table.Column("SignerName", doc["signerName"], func(obj kinds.Object, _ time.Time) any {
			return table.Or(tree.Str(obj, "spec", "signerName"), table.None)
		}),
		table.Text("Requestor", doc["request"], "spec", "username"),
		table.Column("RequestedDuration", doc["expirationSeconds"], func(obj kinds.Object, _ time.Time) any {
			if !tree.Has(obj, "spec", "expirationSeconds") {
				return table.None
			}
			return duration.HumanDuration(time.Duration(tree.Int(obj, "spec", "expirationSeconds")) * time.Second)
		}),
		table.Column("Condition", certificatesv1beta1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"], csrState),
	}
}

// csrState sums up what became of a request: "Approved,Issued".
func csrState(obj kinds.Object, _ time.Time) any {
	conditions := tree.List(obj, "status", "conditions")
	has := func(kind string) bool { return tree.Find(conditions, "type", kind) != nil }
	state := "Pending"
	switch {
	case has(denied):
		state = denied
	case has(approved):
		state = approved
	}
	if has(failed) {
		state += ",Failed"
	}
	if tree.Str(obj, "status", "certificate") != "" {
		state += ",Issued"
	}
	return state
}

// prepareCSR writes down who asks: a signer issues a certificate on the strength of that.
func prepareCSR(env *kinds.Env, obj kinds.Object) error {
	spec := tree.Ensure(obj, "spec")
	for _, name := range []string{"username", "uid", "groups", "extra"} {
		delete(spec, name)
	}
	u := env.User
	setUnless(spec, "username", u.Name, u.Name == "")
	setUnless(spec, "uid", u.UID, u.UID == "")
	setUnless(spec, "groups", anyList(u.Groups), len(u.Groups) == 0)
	extra := make(map[string]any, len(u.Extra))
	for key, values := range u.Extra {
		extra[key] = anyList(values)
	}
	setUnless(spec, "extra", extra, len(extra) == 0)
	obj["status"] = map[string]any{}
	return refusePrivilegedSubject(obj)
}

func setUnless(m map[string]any, key string, value any, empty bool) {
	if !empty {
		m[key] = value
	}
}

func anyList(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// prepareCSRStatus lets a signer write all of the status but the decision.
func prepareCSRStatus(env *kinds.Env, obj, old kinds.Object) {
	keepSpec(env, obj, old)
	keepConditions(obj, old, approved)
	keepConditions(obj, old, denied)
	stampConditions(env, obj, old)
}

// keepConditions puts conditions of a type back as they were, if as many are there.
func keepConditions(obj, old kinds.Object, kind string) {
	before := conditionsOf(old, kind)
	list := tree.List(obj, "status", "conditions")
	if len(conditionsOf(obj, kind)) != len(before) {
		return
	}
	for i, c := range list {
		if m, _ := c.(map[string]any); m["type"] == kind {
			list[i], before = tree.Copy(before[0]), before[1:]
		}
	}
}

func conditionsOf(obj kinds.Object, kind string) []any {
	var found []any
	for _, c := range tree.Maps(obj, "status", "conditions") {
		if c["type"] == kind {
			found = append(found, c)
		}
	}
	return found
}

// stampConditions says of new conditions when they came about.
func stampConditions(env *kinds.Env, obj, old kinds.Object) {
	now := env.Now.UTC().Format(time.RFC3339)
	for _, c := range tree.Maps(obj, "status", "conditions") {
		tree.Default(c, now, "lastUpdateTime")
		if tree.Has(c, "lastTransitionTime") {
			continue
		}
		c["lastTransitionTime"] = now
		for _, was := range tree.Maps(old, "status", "conditions") {
			if at := was["lastTransitionTime"]; at != nil && was["type"] == c["type"] && was["status"] == c["status"] {
				c["lastTransitionTime"] = at
				break
			}
		}
	}
}

// prepareApproval lets an approver write conditions and nothing else.
func prepareApproval(env *kinds.Env, obj, old kinds.Object) error {
	stampConditions(env, obj, old)
	conditions := tree.List(obj, "status", "conditions")
	keepSpec(env, obj, old)
	obj["status"] = tree.CopyMap(tree.Map(old, "status"))
	if len(conditions) > 0 {
		tree.Set(obj, conditions, "status", "conditions")
	} else {
		tree.Delete(obj, "status", "conditions")
	}
	return nil
}
