package pod

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

const (
	fileModeMax = 0o777
	fileMode    = "must be a number between 0 and 0777 (octal), both inclusive"
	oneVolume   = "may not specify more than 1 volume type"
)

// volumeFieldPaths are what a file of a downwardAPI volume may hold.
var volumeFieldPaths = []string{
	"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
}

// volumeSource is one of the ways to get a volume: the field's name, and the rules for it.
type volumeSource struct {
	name  string
	rules func(e *check.Errors, source check.At)
}

// volumeSources is in the order in which a second one is complained about.
var volumeSources = []volumeSource{
	{"emptyDir", emptyDir},
	{"hostPath", hostPath},
	{"gitRepo", requires("repository")},
	{"gcePersistentDisk", disk("pdName")},
	{"awsElasticBlockStore", disk("volumeID")},
	{"secret", secretVolume},
	{"nfs", nfs},
	{"iscsi", iscsi},
	{"glusterfs", requires("endpoints", "path")},
	{"flocker", flocker},
	{"persistentVolumeClaim", requires("claimName")},
	{"rbd", requires("monitors", "image")},
	{"cinder", cinder},
	{"cephfs", requires("monitors")},
	{"quobyte", quobyte},
	{"downwardAPI", downwardAPI},
	{"fc", fibreChannel},
	{"flexVolume", flexVolume},
	{"configMap", configMapVolume},
	{"azureFile", requires("secretName", "shareName")},
	{"vsphereVolume", requires("volumePath")},
	{"photonPersistentDisk", requires("pdID")},
	{"portworxVolume", requires("volumeID")},
	{"azureDisk", azureDisk},
	{"storageos", storageOS},
	{"projected", projected},
	{"scaleIO", requires("gateway", "system", "volumeName")},
	{"csi", inlineCSI},
	{"ephemeral", ephemeralVolume},
	{"image", imageVolume},
}

// requires makes the rule of the sources that name something elsewhere, of which we check no more
// than that they name it.
func requires(fields ...string) func(*check.Errors, check.At) {
	return func(e *check.Errors, source check.At) {
		for _, name := range fields {
			if absent(source.Get(name)) {
				e.Required(source.At(name), "")
			}
		}
	}
}

// absent says that a field has nothing in it.
func absent(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	}
	return false
}

// volumes checks a pod's volumes and returns those that are right, by name.
func volumes(e *check.Errors, spec check.At) map[string]any {
	right := map[string]any{}
	for _, v := range spec.Each("volumes") {
		var one check.Errors
		source(&one, v)
		name := v.Str("name")
		if name == "" {
			one.Required(v.At("name"), "")
		} else {
			one.DNSLabel(v.At("name"), name)
		}
		if _, ok := right[name]; ok {
			one.Duplicate(v.At("name"), name)
		}
		if one.OK() {
			right[name] = v.Map
		}
		e.Add(one.List()...)
	}
	return right
}

func source(e *check.Errors, v check.At) { oneSource(e, v, volumeSources, "") }

// persistentSources are the ways to get a PersistentVolume, in that order. What is in a cluster's storage
// is named as in a pod, but for credentials.
var persistentSources = []volumeSource{
	{"hostPath", hostPath},
	{"gcePersistentDisk", disk("pdName")},
	{"awsElasticBlockStore", disk("volumeID")},
	{"glusterfs", persistentGlusterfs},
	{"flocker", flocker},
	{"nfs", nfs},
	{"rbd", requires("monitors", "image")},
	{"quobyte", quobyte},
	{"cephfs", requires("monitors")},
	{"iscsi", persistentISCSI},
	{"cinder", persistentCinder},
	{"fc", fibreChannel},
	{"flexVolume", flexVolume},
	{"azureFile", persistentAzureFile},
	{"vsphereVolume", requires("volumePath")},
	{"photonPersistentDisk", requires("pdID")},
	{"portworxVolume", requires("volumeID")},
	{"azureDisk", azureDisk},
	{"scaleIO", requires("gateway", "system", "volumeName")},
	{"local", localVolume},
	{"storageos", persistentStorageOS},
	{"csi", csiVolume},
}

// CheckPersistentSource checks where the spec of a PersistentVolume says that it is.
func CheckPersistentSource(e *check.Errors, spec check.At) {
	oneSource(e, spec, persistentSources, "flexVolume") // upstream lets this one stand beside another
}

// PersistentSource returns what a PersistentVolume's spec says of where it is, by the field it says it in.
func PersistentSource(spec map[string]any) map[string]any {
	out := map[string]any{}
	for _, s := range persistentSources {
		if v := spec[s.name]; v != nil {
			out[s.name] = v
		}
	}
	return out
}

func localVolume(e *check.Errors, s check.At) {
	if path := s.Str("path"); path == "" {
		e.Required(s.At("path"), "")
	} else {
		e.NoBacksteps(s.At("path"), path)
	}
}

// driverMax is how long the name of a CSI driver may be.
const driverMax = 63

// attacher checks the name of the driver of a volume.
func attacher(e *check.Errors, s check.At) {
	if name := s.Str("driver"); name == "" {
		e.Required(s.At("driver"), "")
	} else {
		if len(name) > driverMax {
			e.TooLong(s.At("driver"), driverMax)
		}
		e.Messages(s.At("driver"), name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
	}
}

func csiVolume(e *check.Errors, s check.At) {
	attacher(e, s)
	requires("volumeHandle")(e, s)
	for _, name := range []string{
		"controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef",
	} {
		ref := s.Child(name)
		if !ref.Exists() {
			continue
		}
		requires("name")(e, ref)
		if v := ref.Str("name"); v != "" {
			e.DNSSubdomain(ref.At("name"), v)
		}
		requires("namespace")(e, ref)
		if v := ref.Str("namespace"); v != "" {
			e.DNSLabel(ref.At("namespace"), v)
		}
	}
}

// oddNames are what upstream calls some sources when there is another one before them.
var oddNames = map[string]string{"cephfs": "cephFS", "downwardAPI": "downwarAPI"}

// oneSource checks that there is one of some sources, and that it is right. The one that beside names
// may come second.
func oneSource(e *check.Errors, v check.At, sources []volumeSource, beside string) {
	found := false
	for _, s := range sources {
		at := v.Child(s.name)
		switch {
		case !at.Exists():
		case found && s.name != beside:
			e.Forbidden(v.At(cmp.Or(oddNames[s.name], s.name)), oneVolume)
		default:
			found = true
			s.rules(e, at)
		}
	}
	if !found {
		e.Required(v.Path, "must specify a volume type")
	}
}

func emptyDir(e *check.Errors, s check.At) {
	if q := Quantity(s.Get("sizeLimit")); q.Sign() < 0 {
		e.Forbidden(s.At("sizeLimit"), "SizeLimit field must be a valid resource quantity")
	}
}

func hostPath(e *check.Errors, s check.At) {
	path := s.Str("path")
	if path == "" {
		e.Required(s.At("path"), "")
		return
	}
	e.NoBacksteps(s.At("path"), path)
	e.OptionalOneOf(s, "type", "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate",
		"File", "FileOrCreate", "Socket")
}

func nfs(e *check.Errors, s check.At) {
	requires("server", "path")(e, s)
	if path := s.Str("path"); !strings.HasPrefix(path, "/") {
		e.Invalid(s.At("path"), path, "must be an absolute path")
	}
}

func imageVolume(e *check.Errors, s check.At) {
	requires("reference")(e, s)
	e.OneOf(s, "pullPolicy", "Always", "IfNotPresent", "Never")
}

func secretVolume(e *check.Errors, s check.At) {
	requires("secretName")(e, s)
	mode(e, s, "defaultMode")
	for _, item := range s.Each("items") {
		keyToPath(e, item)
	}
}

func configMapVolume(e *check.Errors, s check.At) {
	requires("name")(e, s)
	mode(e, s, "defaultMode")
	for _, item := range s.Each("items") {
		keyToPath(e, item)
	}
}

func downwardAPI(e *check.Errors, s check.At) {
	mode(e, s, "defaultMode")
	for _, item := range s.Each("items") {
		downwardFile(e, item, s.Path)
	}
}

// downwardFile checks one file; the complaints are at the volume, which is where they are expected.
func downwardFile(e *check.Errors, item check.At, path check.Path) {
	file := check.At{Map: item.Map, Path: path}
	filePath(e, file, "path")
	ref, resourceRef := file.Child("fieldRef"), file.Child("resourceFieldRef")
	switch {
	case ref.Exists():
		fieldRef(e, ref, volumeFieldPaths)
		if resourceRef.Exists() {
			e.Invalid(path, "resource",
				"fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case resourceRef.Exists():
		resourceFieldRef(e, resourceRef, true)
	default:
		e.Required(path, "one of fieldRef and resourceFieldRef is required")
	}
	mode(e, file, "mode")
}

func keyToPath(e *check.Errors, item check.At) {
	requires("key")(e, item)
	filePath(e, item, "path")
	mode(e, item, "mode")
}

func filePath(e *check.Errors, a check.At, name string) {
	requires(name)(e, a)
	localFile(e, a.At(name), a.Str(name))
}

// localFile checks the path of a file in a volume; names that begin with two dots are the volume's own.
func localFile(e *check.Errors, path check.Path, file string) {
	e.LocalPath(path, file)
	if strings.HasPrefix(file, "..") && !strings.HasPrefix(file, "../") && file != ".." {
		e.Invalid(path, file, "must not start with '..'")
	}
}

func mode(e *check.Errors, a check.At, name string) {
	if n := a.Int(name); n < 0 || n > fileModeMax {
		e.Invalid(a.At(name), n, fileMode)
	}
}
