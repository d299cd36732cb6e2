package kubectl_test

import (
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/conformance/server"
)

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.kubectl.example.com}
spec:
  group: kubectl.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList, shortNames: [gd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        description: A gadget of some size.
        properties:
          spec:
            type: object
            description: What is wanted.
            properties: {size: {type: integer, description: How large it is., enum: [1, 2, 3]}}
          status: {type: object, properties: {size: {type: integer}}}
`

// custom does with a custom resource what is done with the others.
func custom(k kubectl) {
	k.given(definition, "apply", "-f", "-")
	k.run("wait", "crd/gadgets.kubectl.example.com", "--for=condition=Established", "--timeout=3m")
	defer k.run("delete", "crd/gadgets.kubectl.example.com")
	k.says([]string{"A gadget of some size.", "spec", "What is wanted."}, "explain", "gadgets")
	k.says([]string{"size", "How large it is.", "enum: 1, 2, 3"}, "explain", "gadgets.spec")
	k.says([]string{"size\t<integer>"}, "explain", "gadgets", "--recursive")
	k.given("apiVersion: kubectl.example.com/v1\nkind: Gadget\nmetadata: {name: g}\nspec: {size: 1}", "apply", "-f", "-")
	k.says([]string{"SIZE", "g "}, "get", "gd")
	k.says([]string{"gadget.kubectl.example.com/g"}, "get", "all", "-o", "name")
	k.run("scale", "gadget/g", "--replicas=3")
	k.is("3", "gadget/g", ".spec.size")
	k.fails("Unsupported value", "scale", "gadget/g", "--replicas=4")
	k.run("patch", "gadget", "g", "--subresource=status", "--type=merge", "-p", `{"status":{"size":3}}`)
	k.is("3", "gadget/g", ".status.size")
	k.says([]string{"Size:"}, "describe", "gadget", "g")
}

// TestExplainKnowsEveryKind asks for each kind that the server has, and for all of its fields.
func TestExplainKnowsEveryKind(t *testing.T) {
	k := kubectls(t)["0.37"].on(t, server.Start(t, "server", "--controllers=none"))
	kinds := strings.Split(strings.TrimSpace(k.run("api-resources", "--no-headers")), "\n")
	if len(kinds) < 60 {
		t.Fatalf("the server has %d kinds: %v", len(kinds), kinds)
	}
	for _, line := range kinds {
		columns := strings.Fields(line) // the name, perhaps short names, and three more
		name, version := columns[0], columns[len(columns)-3]
		out := k.run("explain", name, "--api-version", version, "--recursive")
		_, description, _ := strings.Cut(out, "DESCRIPTION:")
		description, fields, _ := strings.Cut(description, "FIELDS:")
		if strings.TrimSpace(description) == "" || strings.Contains(description, "<empty>") {
			t.Errorf("%s is not described:\n%s", name, out)
		}
		if !strings.Contains(fields, "apiVersion\t<string>") {
			t.Errorf("%s has no fields:\n%s", name, out)
		}
	}
	for _, field := range []string{"pods.spec.containers.livenessProbe.httpGet", "deployments.spec.strategy", "services.spec.ports"} {
		k.says([]string{"DESCRIPTION:", "FIELDS:"}, "explain", field)
	}
}

// TestHelp asks every command of kubectl what it is for: none may need more of a server than there is.
func TestHelp(t *testing.T) {
	for name, k := range kubectls(t) {
		t.Run(name, func(t *testing.T) {
			k := k.on(t, server.Start(t, "server", "--controllers=none"))
			commands := 0
			for _, line := range strings.Split(k.run("--help"), "\n") {
				name, _, isCommand := strings.Cut(strings.TrimPrefix(line, "  "), " ")
				if !isCommand || !strings.HasPrefix(line, "  ") || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz-") != "" || name == "" || name == "kubectl" {
					continue
				}
				commands++
				k.says([]string{"Usage:"}, name, "--help")
			}
			if commands < 35 {
				t.Errorf("found %d commands", commands)
			}
		})
	}
}
