package pod

import (
	"regexp"
	"strings"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// containerLists are the fields of a pod's spec that hold containers, in the order in which rules
// look at them.
var containerLists = []string{"initContainers", "containers", "ephemeralContainers"}

// DefaultSpec sets what the spec of a pod, or of a template, has when it does not say otherwise.
func DefaultSpec(spec map[string]any) {
	defaultAccount(spec)
	setIfEmpty(spec, "dnsPolicy", "ClusterFirst")
	setIfEmpty(spec, "restartPolicy", "Always")
	setIfEmpty(spec, "schedulerName", "default-scheduler")
	tree.Default(spec, int64(30), "terminationGracePeriodSeconds")
	tree.Default(spec, map[string]any{}, "securityContext")
	for _, list := range containerLists {
		for _, c := range tree.Maps(spec, list) {
			defaultContainer(c)
		}
	}
	for _, v := range tree.Maps(spec, "volumes") {
		defaultVolume(v)
	}
}

// defaultAccount keeps serviceAccount, the older name of serviceAccountName, the same as that.
func defaultAccount(spec map[string]any) {
	setIfEmpty(spec, "serviceAccountName", tree.Str(spec, "serviceAccount"))
	if name := tree.Str(spec, "serviceAccountName"); name != "" {
		spec["serviceAccount"] = name
	}
}

func defaultContainer(c map[string]any) {
	setIfEmpty(c, "imagePullPolicy", pullPolicy(tree.Str(c, "image")))
	setIfEmpty(c, "terminationMessagePath", "/dev/termination-log")
	setIfEmpty(c, "terminationMessagePolicy", "File")
	for _, p := range tree.Maps(c, "ports") {
		setIfEmpty(p, "protocol", "TCP")
	}
	for _, e := range tree.Maps(c, "env") {
		defaultFieldRef(tree.Map(e, "valueFrom", "fieldRef"))
		if f := tree.Map(e, "valueFrom", "fileKeyRef"); f != nil {
			tree.Default(f, false, "optional")
		}
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		if p := tree.Map(c, probe); p != nil {
			defaultProbe(p)
		}
	}
	for _, hook := range []string{"postStart", "preStop"} {
		defaultHTTPGet(tree.Map(c, "lifecycle", hook, "httpGet"))
	}
}

func defaultProbe(p map[string]any) {
	setIfZero(p, "timeoutSeconds", 1)
	setIfZero(p, "periodSeconds", 10)
	setIfZero(p, "successThreshold", 1)
	setIfZero(p, "failureThreshold", 3)
	defaultHTTPGet(tree.Map(p, "httpGet"))
	if grpc := tree.Map(p, "grpc"); grpc != nil {
		tree.Default(grpc, "", "service")
	}
}

func defaultHTTPGet(get map[string]any) {
	if get != nil {
		setIfEmpty(get, "path", "/")
		setIfEmpty(get, "scheme", "HTTP")
	}
}

func defaultFieldRef(ref map[string]any) {
	if ref != nil {
		setIfEmpty(ref, "apiVersion", "v1")
	}
}

func defaultVolume(v map[string]any) {
	if len(v) == 0 || len(v) == 1 && v["name"] != nil {
		v["emptyDir"] = map[string]any{}
	}
	for _, source := range []string{"secret", "configMap", "downwardAPI", "projected"} {
		if s := tree.Map(v, source); s != nil {
			tree.Default(s, int64(0o644), "defaultMode")
		}
	}
	if h := tree.Map(v, "hostPath"); h != nil {
		tree.Default(h, "", "type")
	}
	if i := tree.Map(v, "image"); i != nil {
		setIfEmpty(i, "pullPolicy", pullPolicy(tree.Str(i, "reference")))
	}
	if t := tree.Map(v, "ephemeral", "volumeClaimTemplate"); t != nil {
		tree.Default(t, "Filesystem", "spec", "volumeMode")
	}
	for _, item := range tree.Maps(v, "downwardAPI", "items") {
		defaultFieldRef(tree.Map(item, "fieldRef"))
	}
	for _, source := range tree.Maps(v, "projected", "sources") {
		for _, item := range tree.Maps(source, "downwardAPI", "items") {
			defaultFieldRef(tree.Map(item, "fieldRef"))
		}
		if t := tree.Map(source, "serviceAccountToken"); t != nil {
			tree.Default(t, int64(3600), "expirationSeconds")
		}
	}
}

// defaultPod is what a pod has beyond a template: it must not be put into templates, where it would
// make stored ones differ from what their owners wrote.
func defaultPod(obj map[string]any) {
	spec := tree.Ensure(obj, "spec")
	DefaultSpec(spec)
	if tree.Int(spec, "terminationGracePeriodSeconds") < 0 {
		spec["terminationGracePeriodSeconds"] = int64(1)
	}
	tree.Default(spec, true, "enableServiceLinks")
	for _, list := range []string{"initContainers", "containers"} {
		for _, c := range tree.Maps(spec, list) {
			requestLimits(c)
			if tree.Bool(spec, "hostNetwork") {
				useHostPorts(c)
			}
		}
	}
	defaultStatus(tree.Map(obj, "status"))
}

// requestLimits requests what a limit is set for and nothing requested.
func requestLimits(c map[string]any) {
	for name, quantity := range tree.Map(c, "resources", "limits") {
		tree.Default(c, quantity, "resources", "requests", name)
	}
}

func useHostPorts(c map[string]any) {
	for _, p := range tree.Maps(c, "ports") {
		setIfZero(p, "hostPort", tree.Int(p, "containerPort"))
	}
}

// defaultStatus keeps podIP and the first of podIPs the same; podIP wins, as agents older than the
// list set only that.
func defaultStatus(status map[string]any) {
	if status == nil {
		return
	}
	ip, ips := tree.Str(status, "podIP"), tree.List(status, "podIPs")
	first := ""
	if len(ips) > 0 {
		m, _ := ips[0].(map[string]any)
		first = tree.Str(m, "ip")
	}
	switch {
	case ip == "" && first != "":
		status["podIP"] = first
	case ip != "" && ip != first:
		status["podIPs"] = []any{map[string]any{"ip": ip}}
	}
}

// imageNameMax is how long registries let a name be.
const imageNameMax = 255

// imageName is the grammar of names of images: a host, a path in small letters, a tag, a digest.
var imageName = func() *regexp.Regexp {
	const part = `[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*`
	return regexp.MustCompile(`^(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?` + part + `(?:/` + part + `)*` +
		`(?::\w[\w.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`)
}()

// pullPolicy is Always for an image whose tag may move: latest, or none and no digest.
func pullPolicy(image string) string {
	if len(image) > imageNameMax || !imageName.MatchString(image) {
		return "IfNotPresent" // nobody can pull it, and it is the node that says so
	}
	name, _, digested := strings.Cut(image, "@")
	last := name[strings.LastIndexByte(name, '/')+1:]
	_, tag, tagged := strings.Cut(last, ":")
	if tag == "latest" || !tagged && !digested {
		return "Always"
	}
	return "IfNotPresent"
}

func setIfEmpty(m map[string]any, key, value string) {
	if tree.Str(m, key) == "" && value != "" {
		m[key] = value
	}
}

func setIfZero(m map[string]any, key string, value int64) {
	if tree.Int(m, key) == 0 && value != 0 {
		m[key] = value
	}
}
