package pod

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

// oldSources are kinds of volumes that nothing serves any more, or soon.
var oldSources = []struct{ name, text string }{
	{"photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
	{"gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"},
	{"scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
	{"flocker", "deprecated in v1.22, non-functional in v1.25+"},
	{"storageos", "deprecated in v1.22, non-functional in v1.25+"},
	{"quobyte", "deprecated in v1.22, non-functional in v1.25+"},
	{"glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
	{"ephemeral", ""},
	{"cephfs", "deprecated in v1.28, non-functional in v1.31+"},
	{"rbd", "deprecated in v1.28, non-functional in v1.31+"},
}

// volume tells of a volume of a kind that is going away.
func (w *warner) volume(v check.At) {
	for _, source := range oldSources {
		switch {
		case !v.Has(source.name):
		case source.name == "ephemeral":
			w.list = append(w.list, ClaimWarnings(v.Child("ephemeral").Child("volumeClaimTemplate").Child("spec"))...)
		case source.name == "storageos":
			w.add(v.At("storageOS"), source.text) // so upstream
		default:
			w.add(v.At(source.name), source.text)
		}
	}
}

// ClaimWarnings tells of sizes in parts of a byte in the spec of a claim.
func ClaimWarnings(spec check.At) []string {
	w := warner{}
	for _, list := range []string{"requests", "limits"} {
		w.fraction(spec.Child("resources").Child(list), "storage")
	}
	return w.list
}

// placed is a file in a volume, and where it comes from if the volume has several sources.
type placed struct{ path, source string }

func (p placed) String() string {
	if p.source == "" {
		return fmt.Sprintf("%q", p.path)
	}
	return fmt.Sprintf("%q (%s)", p.path, p.source)
}

// overlaps tells of files of a volume that are in each other's place.
func (w *warner) overlaps(v check.At) {
	name := v.Str("name")
	tell := func(what string, files []placed) []placed {
		return w.collide(name, what, nil, files)
	}
	if a := v.Child("configMap"); a.Exists() {
		tell(fmt.Sprintf("ConfigMap %q", a.Str("name")), items(a, ""))
	}
	if a := v.Child("secret"); a.Exists() {
		tell(fmt.Sprintf("Secret %q", a.Str("secretName")), items(a, ""))
	}
	if a := v.Child("downwardAPI"); a.Exists() {
		tell("DownwardAPI", items(a, ""))
	}
	var all []placed
	for _, source := range v.Child("projected").Each("sources") {
		if len(source.Map) == 0 {
			w.list = append(w.list, fmt.Sprintf("volume %q (Projected) has no sources provided", name))
			continue
		}
		all = w.collide(name, "Projected", all, projectedFiles(source))
	}
}

// collide tells of those files that are in the place of one before them, and returns all.
func (w *warner) collide(volume, what string, before, files []placed) []placed {
	for _, f := range files {
		f.path = strings.TrimRight(f.path, "/")
		for _, other := range before {
			if other == f || f.path != "" && other.path != "" &&
				(strings.HasPrefix(other.path+"/", f.path+"/") || strings.HasPrefix(f.path+"/", other.path+"/")) {
				w.list = append(w.list, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", volume, what, f, other))
			}
		}
		before = append(before, f)
	}
	return slices.Clip(before)
}

func items(a check.At, source string) (files []placed) {
	for _, item := range a.Each("items") {
		files = append(files, placed{item.Str("path"), source})
	}
	return files
}

func projectedFiles(source check.At) []placed {
	switch {
	case source.Child("configMap").Has("items"):
		a := source.Child("configMap")
		return items(a, fmt.Sprintf("ConfigMap %q", a.Str("name")))
	case source.Child("secret").Has("items"):
		a := source.Child("secret")
		return items(a, fmt.Sprintf("Secret %q", a.Str("name")))
	case source.Child("downwardAPI").Has("items"):
		return items(source.Child("downwardAPI"), "DownwardAPI")
	case source.Has("serviceAccountToken"):
		return []placed{{source.Child("serviceAccountToken").Str("path"), "ServiceAccountToken"}}
	case source.Has("clusterTrustBundle"):
		a := source.Child("clusterTrustBundle")
		name := a.Str("name")
		if !a.Has("name") {
			name = a.Str("signerName")
		}
		return []placed{{a.Str("path"), fmt.Sprintf("ClusterTrustBundle %q", name)}}
	}
	var files []placed
	a := source.Child("podCertificate")
	for _, part := range []struct{ field, source string }{
		{"certificateChainPath", "PodCertificate chain"}, {"keyPath", "PodCertificate key"},
		{"credentialBundlePath", "PodCertificate credential bundle"},
	} {
		if path := a.Str(part.field); path != "" {
			files = append(files, placed{path, part.source})
		}
	}
	return files
}
