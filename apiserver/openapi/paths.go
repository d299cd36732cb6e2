package openapi

import (
	"slices"
	"strings"

	"github.com/setpoint-dev/setpoint/kinds"
)

// paths are all that can be asked of the kinds.
func paths(own []*kinds.Kind) map[string]any {
	all := map[string]any{}
	for _, k := range own {
		root := "/" + Path(k) + "/"
		if k.Namespaced {
			if slices.Contains(verbs(k), "list") {
				all[root+k.Resource] = item(nil, operations{"get": list(k, "ForAllNamespaces")})
			}
			root += "namespaces/{namespace}/"
		}
		collection, object := operations{}, operations{}
		for _, verb := range verbs(k) {
			switch verb {
			case "list":
				collection["get"] = list(k, "")
			case "create":
				collection["post"] = write(k, "post", "create", "", k.Schema.Name, "*/*")
			case "deletecollection":
				collection["delete"] = remove(k, "deletecollection", "deleteCollection")
			case "get":
				object["get"] = read(k, "", k.Schema.Name)
			case "update":
				object["put"] = write(k, "put", "replace", "", k.Schema.Name, "*/*")
			case "patch":
				object["patch"] = patch(k, "")
			case "delete":
				object["delete"] = remove(k, "delete", "delete")
			}
		}
		addItem(all, root+k.Resource, scope(k, false), collection)
		addItem(all, root+k.Resource+"/{name}", scope(k, true), object)
		subresourcePaths(all, root+k.Resource+"/{name}/", k)
	}
	return all
}

func addItem(all map[string]any, path string, params []any, ops operations) {
	if len(ops) > 0 {
		all[path] = item(params, ops)
	}
}

func verbs(k *kinds.Kind) []string {
	if k.Verbs != nil {
		return k.Verbs
	}
	return kinds.AllVerbs
}

func subresourcePaths(all map[string]any, root string, k *kinds.Kind) {
	subs := slices.Clone(k.Subresources)
	readAndWrite := []string{"get", "patch", "update"}
	if k.Status {
		subs = append(subs, kinds.Subresource{Name: "status", Verbs: readAndWrite})
	}
	if k.Scale != nil {
		subs = append(subs, kinds.Subresource{
			Name: "scale", Group: "autoscaling", Version: "v1", Kind: "Scale", Verbs: readAndWrite})
	}
	for _, s := range subs {
		body, of := k.Schema.Name, k
		if name := bodyName(k, s); name != "" {
			body = name
			of = &kinds.Kind{Group: k.Group, Version: k.Version, Kind: s.Kind, Namespaced: k.Namespaced}
			if s.Group != "" {
				of.Group, of.Version = s.Group, s.Version
			}
		}
		ops := operations{}
		for _, verb := range s.Verbs {
			switch verb {
			case "get":
				ops["get"] = read(of, s.Name, body)
			case "update":
				ops["put"] = write(of, "put", "replace", s.Name, body, "*/*")
			case "patch":
				ops["patch"] = patchOf(of, s.Name, body)
			case "create":
				ops["post"] = write(of, "post", "create", s.Name, body, "*/*")
			}
		}
		addItem(all, root+s.Name, scope(k, true), ops)
	}
}

type operations map[string]map[string]any

func item(params []any, ops operations) map[string]any {
	out := map[string]any{"parameters": append([]any{query("pretty", "string",
		"If true, the answer is indented. The default is true for browsers, curl and wget.")}, params...)}
	for method, op := range ops {
		out[method] = op
	}
	return out
}

// scope are the parameters in the path.
func scope(k *kinds.Kind, named bool) []any {
	var params []any
	if k.Namespaced {
		params = append(params, inPath("namespace", "The namespace of the object."))
	}
	if named {
		params = append(params, inPath("name", "The name of the "+k.Kind+"."))
	}
	return params
}

func inPath(name, text string) map[string]any {
	return map[string]any{
		"name": name, "in": "path", "required": true, "description": text,
		"schema": map[string]any{"type": "string", "uniqueItems": true},
	}
}

func query(name, kind, text string) map[string]any {
	return map[string]any{
		"name": name, "in": "query", "description": text,
		"schema": map[string]any{"type": kind, "uniqueItems": true},
	}
}

// operation is what all operations have. action is what Kubernetes calls the verb here.
func operation(k *kinds.Kind, action, verb, sub, suffix, text string) map[string]any {
	group, _, _ := strings.Cut(k.Group, ".")
	if group == "" {
		group = "core"
	}
	scoped := ""
	if k.Namespaced && suffix == "" {
		scoped = "Namespaced"
	}
	id := verb + title(group) + title(k.Version) + scoped + k.Kind + title(sub) + suffix
	return map[string]any{
		"description": text, "operationId": id, "tags": []any{group + "_" + k.Version},
		"x-kubernetes-action": action,
		identity:              gvk(k.Group, k.Version, k.Kind),
	}
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func list(k *kinds.Kind, suffix string) map[string]any {
	op := operation(k, "list", "list", "", suffix, "List or watch objects of kind "+k.Kind+".")
	op["parameters"] = selection()
	op["responses"] = responses(listName(k), "200")
	return op
}

func selection() []any {
	return []any{
		query("allowWatchBookmarks", "boolean", "Whether a watch may be sent bookmarks."),
		query("continue", "string", "The token of the page before."),
		query("fieldSelector", "string", "Only objects whose fields match."),
		query("labelSelector", "string", "Only objects whose labels match."),
		query("limit", "integer", "At most so many objects."),
		query("resourceVersion", "string", "Which state to show, or to watch from."),
		query("resourceVersionMatch", "string", "How to take resourceVersion: Exact or NotOlderThan."),
		query("sendInitialEvents", "boolean", "Whether a watch begins with what is there."),
		query("timeoutSeconds", "integer", "When to end the watch."),
		query("watch", "boolean", "Watch changes instead of listing."),
	}
}

func read(k *kinds.Kind, sub, body string) map[string]any {
	op := operation(k, "get", "read", sub, "", "Read the "+of(k, sub)+".")
	op["responses"] = responses(body, "200")
	return op
}

func of(k *kinds.Kind, sub string) string {
	if sub == "" {
		return "specified " + k.Kind
	}
	return sub + " of the specified " + k.Kind
}

func writeParameters() []any {
	return []any{
		query("dryRun", "string", "All: run every check and store nothing."),
		query("fieldManager", "string", "Who is making the change; at most 128 printable characters."),
		query("fieldValidation", "string",
			"What to do about unknown and duplicate fields: Ignore, Warn (the default) or Strict."),
	}
}

func write(k *kinds.Kind, action, verb, sub, body, media string) map[string]any {
	op := operation(k, action, verb, sub, "", title(verb)+" the "+of(k, sub)+".")
	op["parameters"] = writeParameters()
	op["requestBody"] = map[string]any{
		"required": true, "content": map[string]any{media: map[string]any{"schema": ref(body)}},
	}
	op["responses"] = responses(body, "200", "201", "202")
	return op
}

func patch(k *kinds.Kind, sub string) map[string]any { return patchOf(k, sub, k.Schema.Name) }

func patchOf(k *kinds.Kind, sub, body string) map[string]any {
	op := operation(k, "patch", "patch", sub, "", "Change parts of the "+of(k, sub)+".")
	op["parameters"] = append(writeParameters(),
		query("force", "boolean", "Let an apply take over fields that others own."))
	content := map[string]any{}
	for _, media := range []string{"apply-patch+yaml", "json-patch+json", "merge-patch+json", "strategic-merge-patch+json"} {
		content["application/"+media] = map[string]any{"schema": ref(patchName)}
	}
	op["requestBody"] = map[string]any{"required": true, "content": content}
	op["responses"] = responses(body, "200", "201")
	return op
}

func remove(k *kinds.Kind, action, verb string) map[string]any {
	op := operation(k, action, verb, "", "", title(verb)+" of "+k.Kind+".")
	params := []any{
		query("dryRun", "string", "All: run every check and delete nothing."),
		query("gracePeriodSeconds", "integer", "How long the object may take to end."),
		query("propagationPolicy", "string", "What becomes of dependents: Orphan, Background or Foreground."),
	}
	if action == "deletecollection" {
		params = append(params, selection()...)
	}
	op["parameters"] = params
	op["requestBody"] = map[string]any{"content": map[string]any{"*/*": map[string]any{"schema": ref(optionName)}}}
	op["responses"] = responses(statusName, "200", "202")
	return op
}

func responses(body string, codes ...string) map[string]any {
	texts := map[string]string{"200": "OK", "201": "Created", "202": "Accepted"}
	out := map[string]any{"401": map[string]any{"description": "Unauthorized"}}
	for _, code := range codes {
		content := map[string]any{}
		for _, media := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"} {
			content[media] = map[string]any{"schema": ref(body)}
		}
		out[code] = map[string]any{"description": texts[code], "content": content}
	}
	return out
}
