package kubectl_test

import (
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/conformance/server"
)

// TestCommandsDoWhatTheySay runs the commands that people use, and looks at the objects afterwards.
func TestCommandsDoWhatTheySay(t *testing.T) {
	for name, k := range kubectls(t) {
		t.Run(name, func(t *testing.T) {
			k := k.on(t, server.Start(t, "up", "--no-service-proxy", "--node-name", "machine"))
			for name, test := range map[string]func(kubectl){
				"apply": apply, "diff": diff, "edit": edit, "create": create, "get": get, "describe": describe,
				"labels": labels, "auth": auth, "set": set, "workloads": workloads, "processes": processes,
				"kustomize": kustomize, "custom": custom,
			} {
				t.Run(name, func(t *testing.T) { test(k.in(t, "test-"+name)) })
			}
			// The node is everybody's: it is taken away from the others when they have done with it.
			t.Run("nodes", func(t *testing.T) { nodes(k.in(t, "test-nodes")) })
		})
	}
}

const config = `apiVersion: v1
kind: ConfigMap
metadata: {name: a, labels: {app: a}}
data: {k: VALUE, other: "1"}
`

func configOf(value string) string { return strings.Replace(config, "VALUE", value, 1) }

func apply(k kubectl) {
	k.given(configOf("one"), "apply", "-f", "-")
	k.is("one", "configmap/a", ".data.k")
	k.given(strings.Replace(configOf("two"), `, other: "1"`, "", 1), "apply", "-f", "-")
	k.is("two", "configmap/a", ".data.k")
	k.is("", "configmap/a", ".data.other")
	if out := k.given(strings.Replace(configOf("two"), `, other: "1"`, "", 1), "apply", "-f", "-"); !strings.Contains(out, "unchanged") {
		k.t.Errorf("an apply of the same says %q", out)
	}
	k.says([]string{"k: two"}, "apply", "view-last-applied", "configmap/a")
	k.given(configOf("three"), "apply", "-f", "-", "--dry-run=server")
	k.is("two", "configmap/a", ".data.k")

	k.given(configOf("four"), "apply", "--server-side", "-f", "-")
	k.is("four", "configmap/a", ".data.k")
	if out := k.run("get", "configmap", "a", "--show-managed-fields", "-o", "yaml"); strings.Contains(out, "client-side-apply") {
		k.t.Errorf("what was applied by the client before is not the server's to apply now:\n%s", out)
	}
	k.run("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", k.file("five.yaml", configOf("five")))
	k.fails("conflict", "apply", "--server-side", "-f", k.file("six.yaml", configOf("six")))
	k.is("five", "configmap/a", ".data.k")

	k.file("set.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, labels: {app: a}}")
	k.run("apply", "-f", k.dir+"/set.yaml", "--prune", "-l", "app=a", "--prune-allowlist=core/v1/ConfigMap")
	k.is("b", "configmap/b", ".metadata.name")
	k.fails("unknown field", "apply", "-f", k.file("bad.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndta: {}"))
	k.run("replace", "-f", k.file("replace.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {k: replaced}"))
	k.is("replaced", "configmap/b", ".data.k")
	k.run("patch", "configmap", "b", "--type=json", "-p", `[{"op":"replace","path":"/data/k","value":"patched"}]`)
	k.is("patched", "configmap/b", ".data.k")
	k.run("delete", "configmap", "b", "--wait")
	k.fails("NotFound", "get", "configmap", "b")
}

func diff(k kubectl) {
	k.given(configOf("one"), "apply", "-f", "-")
	k.given(configOf("one"), "diff", "-f", "-")
	for _, how := range [][]string{{"diff"}, {"diff", "--server-side", "--force-conflicts"}} {
		out, errs, err := k.start(configOf("two"), append(how, "-f", "-")...)
		if err == nil || !strings.Contains(out, "-  k: one") || !strings.Contains(out, "+  k: two") {
			k.t.Errorf("%v: %v\n%s%s", how, err, out, errs)
		}
	}
	k.is("one", "configmap/a", ".data.k")
}

func edit(k kubectl) {
	k.given(configOf("one"), "apply", "-f", "-")
	k.env = append(k.env, "KUBE_EDITOR="+k.file("editor", "#!/bin/sh\nexec sed -i 's/k: one/k: edited/' \"$1\"\n"))
	k.run("edit", "configmap", "a")
	k.is("edited", "configmap/a", ".data.k")

	k.env = append(k.env, "KUBE_EDITOR="+k.file("same", "#!/bin/sh\nexit 0\n"))
	k.run("edit", "configmap", "a")
	k.is("edited", "configmap/a", ".data.k")

	k.env = append(k.env, "KUBE_EDITOR="+k.file("status", "#!/bin/sh\nexec sed -i 's/phase: Pending/phase: Failed/' \"$1\"\n"))
	k.run("run", "p", "--image=host", `--overrides={"spec":{"schedulerName":"nobody"}}`)
	k.run("edit", "pod", "p", "--subresource=status")
	k.is("Failed", "pod/p", ".status.phase")
}

// create runs every generator of kubectl.
func create(k kubectl) {
	for _, c := range []struct{ args, object, field, want string }{
		{"configmap c --from-literal=a=b", "configmap/c", ".data.a", "b"},
		{"secret generic s --from-literal=a=b", "secret/s", ".data.a", "Yg=="},
		{"secret docker-registry d --docker-username=u --docker-password=p", "secret/d", ".type", "kubernetes.io/dockerconfigjson"},
		{"serviceaccount a", "serviceaccount/a", ".metadata.name", "a"},
		{"deployment d --image=host --replicas=0 --port=80", "deployment/d", ".spec.template.spec.containers[0].ports[0].containerPort", "80"},
		{"service clusterip c --tcp=80:8080", "service/c", ".spec.ports[0].targetPort", "8080"},
		{"service nodeport n --tcp=80", "service/n", ".spec.type", "NodePort"},
		{"service externalname e --external-name=example.com", "service/e", ".spec.externalName", "example.com"},
		{"service loadbalancer l --tcp=80", "service/l", ".spec.type", "LoadBalancer"},
		{"ingress i --class=c --rule=a.example.com/x*=s:80", "ingress/i", ".spec.rules[0].http.paths[0].pathType", "Prefix"},
		{"job j --image=host -- true", "job/j", ".spec.template.spec.containers[0].command[0]", "true"},
		{"cronjob c --image=host --schedule=@yearly -- true", "cronjob/c", ".spec.schedule", "@yearly"},
		{"job from --from=cronjob/c", "job/from", ".metadata.ownerReferences[0].kind", "CronJob"},
		{"role r --verb=get,list --resource=pods", "role/r", ".rules[0].verbs[1]", "list"},
		{"rolebinding r --role=r --serviceaccount=test-create:a", "rolebinding/r", ".subjects[0].name", "a"},
		{"quota q --hard=pods=20", "resourcequota/q", ".spec.hard.pods", "20"},
		{"poddisruptionbudget p --selector=a=b --max-unavailable=1", "poddisruptionbudget/p", ".spec.maxUnavailable", "1"},
	} {
		k.run(append([]string{"create"}, strings.Fields(c.args)...)...)
		k.is(c.want, c.object, c.field)
	}
	for object, args := range map[string]string{
		"clusterrole/test-create":        "clusterrole test-create --verb=get --resource=nodes",
		"clusterrolebinding/test-create": "clusterrolebinding test-create --clusterrole=test-create --user=u",
		"priorityclass/test-create":      "priorityclass test-create --value=5",
	} {
		k.run(append([]string{"create"}, strings.Fields(args)...)...)
		k.run("delete", object)
	}
	token := k.run("create", "configmap", "dry", "--dry-run=server", "-o", "name")
	if strings.TrimSpace(token) != "configmap/dry" {
		k.t.Errorf("a dry run printed %q", token)
	}
	k.fails("NotFound", "get", "configmap", "dry")
}

func get(k kubectl) {
	k.given(configOf("one"), "apply", "-f", "-")
	k.says([]string{"NAME", "DATA", "AGE", "a ", "2"}, "get", "configmaps")
	k.says([]string{"LABELS", "app=a"}, "get", "configmap", "a", "--show-labels")
	k.says([]string{"APP"}, "get", "configmap", "-L", "app")
	k.says([]string{`"k": "one"`, `"kind": "ConfigMap"`}, "get", "configmap", "a", "-o", "json")
	k.says([]string{"k: one", "kind: ConfigMap"}, "get", "configmap", "a", "-o", "yaml")
	k.says([]string{"NAME", "K", "one"}, "get", "configmap", "a", "-o", "custom-columns=NAME:.metadata.name,K:.data.k")
	k.says([]string{"one"}, "get", "configmaps", "-l", "app=a", "-o", `go-template={{range .items}}{{.data.k}}{{end}}`)
	k.says([]string{"configmap/a"}, "get", "cm", "--field-selector=metadata.name=a", "-o", "name")
	k.says([]string{"INTERNAL-IP", "OS-IMAGE", "machine"}, "get", "nodes", "-o", "wide")
	k.says([]string{"serviceaccount/default", "configmap/a"}, "get", "sa,cm", "-o", "name")
	k.says([]string{"kube-system"}, "get", "namespaces", "--sort-by=.metadata.name", "--chunk-size=2")
	k.says([]string{"test-get"}, "get", "configmaps", "-A")
	k.says([]string{`"gitVersion"`}, "get", "--raw", "/version")
	k.says([]string{"configmaps", "cm", "true"}, "api-resources", "--api-group=", "-o", "wide")
	k.says([]string{"apps/v1", "v1"}, "api-versions")
	if out, _, _ := k.start("", "version"); !strings.Contains(out, "Server Version: v1.37") { // a client of no version fails
		k.t.Errorf("the version is %q", out)
	}
	k.says([]string{"is running at"}, "cluster-info")
	k.fails(`the server doesn't have a resource type "nothings"`, "get", "nothings")
	k.run("get", "all")
	k.run("events", "--for=configmap/a")
}

func describe(k kubectl) {
	k.given(configOf("one"), "apply", "-f", "-")
	k.says([]string{"Name:", "Namespace:", "test-describe", "one"}, "describe", "configmap", "a")
	k.says([]string{"Taints:", "Allocatable:", "Conditions:", "Ready"}, "describe", "node", "machine")
	k.run("create", "deployment", "d", "--image=host", "--replicas=1", "--", "sleep", "1000000")
	k.run("rollout", "status", "deployment/d", "--timeout=3m")
	k.says([]string{"Replicas:", "1 available", "NewReplicaSet:", "Events:"}, "describe", "deployment", "d")
	k.says([]string{"Node:", "machine/", "Containers:", "State:", "Running", "Controlled By:"}, "describe", "pods", "-l", "app=d")
	k.says([]string{"Type:", "ClusterIP", "Endpoints:"}, "describe", "service", "kubernetes", "-n", "default")
	k.says([]string{"Status:", "Active"}, "describe", "namespace", "test-describe")
}

func labels(k kubectl) {
	k.given(configOf("one"), "apply", "-f", "-")
	k.run("label", "configmap", "a", "tier=front")
	k.is("front", "configmap/a", ".metadata.labels.tier")
	k.fails("overwrite", "label", "configmap", "a", "tier=back")
	k.run("label", "configmap", "a", "tier=back", "--overwrite")
	k.run("label", "configmap", "a", "app-")
	k.is(`{"tier":"back"}`, "configmap/a", ".metadata.labels")
	k.run("annotate", "configmap", "a", "note=x")
	k.is("x", "configmap/a", ".metadata.annotations.note")
}

func auth(k kubectl) {
	k.says([]string{"yes"}, "auth", "can-i", "create", "pods")
	out, _, err := k.start("", "auth", "can-i", "delete", "nodes", "--as=somebody")
	if err == nil || !strings.Contains(out, "no") {
		k.t.Errorf("somebody may delete nodes: %s", out)
	}
	k.says([]string{"Resources", "*.*"}, "auth", "can-i", "--list")
	k.says([]string{"system:masters"}, "auth", "whoami")
	k.run("auth", "reconcile", "-f", k.file("role.yaml", `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: test-auth}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
`))
	k.is("get", "role/r", ".rules[0].verbs[0]")
}

func kustomize(k kubectl) {
	k.file("a.yaml", configOf("one"))
	k.file("kustomization.yaml", "namePrefix: pre-\nresources: [a.yaml]\n")
	k.run("apply", "-k", k.dir)
	k.is("one", "configmap/pre-a", ".data.k")
	k.run("delete", "-k", k.dir)
	k.fails("NotFound", "get", "configmap", "pre-a")
}
