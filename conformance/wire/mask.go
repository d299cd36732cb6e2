package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mask replaces what differs between two servers that do the same, and between two runs of one:
//
//   - a uid is <uid N>, and the revision of an object <revision N>, N counting those that the script has
//     seen: what was the same stays the same. The revision of a list is <revision>.
//   - a time is <time>, unless it is one of 2001 to 2020, which are the scripts' own; an age is <age>.
//   - a name that the server made up is <generated>, an address and a port that it chose for a service
//     <address> and <port>, and a continue token <token>.
//   - several causes of an error are in order, and the message that lists them again ends before it does:
//     Kubernetes finds some by walking over maps.
//   - managedFields of one operation are in order of their managers: they are ordered by seconds, and how
//     many of these pass differs.
//   - the description of a table's column is left out: it is for people.
type mask struct {
	uids, revisions, names map[string]string
}

func newMask() *mask {
	return &mask{uids: map[string]string{}, revisions: map[string]string{}, names: map[string]string{}}
}

var (
	uidPattern  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)
	timePattern = regexp.MustCompile(`20(?:2[1-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z`)
	agePattern  = regexp.MustCompile(`^(?:\d+[dhms])+$`)
	manyPattern = regexp.MustCompile(`[a-z]{200,}`)
	listPattern = regexp.MustCompile(`(?s)(is invalid:|conflicts?:) .*`)
	revPattern  = regexp.MustCompile(`(?i)(resource ?version\W{1,7}|in record \(|current: )\d+`)
)

func (m *mask) value(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m.object(v)
		for k := range v {
			v[k] = m.value(v[k])
		}
	case []any:
		for i := range v {
			v[i] = m.value(v[i])
		}
	case string:
		return m.text(v)
	}
	return v
}

// object masks what is known by its place.
func (m *mask) object(v map[string]any) {
	if meta, ok := v["metadata"].(map[string]any); ok {
		m.metadata(v, meta)
	}
	if causes, ok := at(v, "details.causes").([]any); ok && len(causes) > 1 {
		m.causes(v, causes)
	}
	if _, isColumn := v["priority"]; isColumn && v["format"] != nil {
		delete(v, "description")
	}
	if cells, ok := v["cells"].([]any); ok {
		for i := range cells {
			if s, ok := cells[i].(string); ok && (agePattern.MatchString(s) || s == "<unknown>") {
				cells[i] = "<age>"
			}
		}
	}
	if ip, ok := v["clusterIP"].(string); ok && strings.HasPrefix(ip, "10.0.0.") {
		v["clusterIP"], v["clusterIPs"] = "<address>", "<address>"
	}
	if _, ok := v["nodePort"].(float64); ok {
		v["nodePort"] = "<port>"
	}
}

func (m *mask) causes(status map[string]any, causes []any) {
	slices.SortFunc(causes, func(a, b any) int {
		return cmp.Compare(fmt.Sprint(at(a, "field"), at(a, "message")), fmt.Sprint(at(b, "field"), at(b, "message")))
	})
	if message, ok := status["message"].(string); ok {
		status["message"] = listPattern.ReplaceAllString(message, "$1 <causes>")
	}
}

func (m *mask) metadata(owner, meta map[string]any) {
	kind, _ := owner["kind"].(string)
	_, hasItems := owner["items"]
	if rv, ok := meta["resourceVersion"].(string); ok && rv != "" {
		if hasItems || strings.HasSuffix(kind, "List") || kind == "Table" || meta["uid"] == nil {
			meta["resourceVersion"] = "<revision>"
		} else {
			meta["resourceVersion"] = numbered(m.revisions, "revision", rv)
		}
	}
	if token, ok := meta["continue"].(string); ok && token != "" {
		meta["continue"] = "<token>"
	}
	if entries, ok := meta["managedFields"].([]any); ok {
		orderByManager(entries)
	}
	prefix, _ := meta["generateName"].(string)
	name, _ := meta["name"].(string)
	if prefix != "" && len(name) > 5 {
		m.names[name] = name[:len(name)-5] + "<generated>"
	}
}

// orderByManager sorts what stands together of the same operation.
func orderByManager(entries []any) {
	for len(entries) > 0 {
		same := slices.IndexFunc(entries, func(e any) bool { return at(e, "operation") != at(entries[0], "operation") })
		if same < 0 {
			same = len(entries)
		}
		slices.SortStableFunc(entries[:same], func(a, b any) int {
			return cmp.Compare(fmt.Sprint(at(a, "manager"), at(a, "subresource")), fmt.Sprint(at(b, "manager"), at(b, "subresource")))
		})
		entries = entries[same:]
	}
}

func (m *mask) text(s string) string {
	s = uidPattern.ReplaceAllStringFunc(s, func(uid string) string { return numbered(m.uids, "uid", uid) })
	s = timePattern.ReplaceAllString(s, "<time>")
	s = revPattern.ReplaceAllString(s, "${1}<revision>")
	for name, as := range m.names {
		s = strings.ReplaceAll(s, name, as)
	}
	return manyPattern.ReplaceAllStringFunc(s, func(run string) string {
		if strings.Trim(run, run[:1]) != "" {
			return run
		}
		return fmt.Sprintf("{%s*%d}", run[:1], len(run))
	})
}

func numbered(seen map[string]string, what, value string) string {
	if seen[value] == "" {
		seen[value] = fmt.Sprintf("<%s %d>", what, len(seen)+1)
	}
	return seen[value]
}

// dropFields removes managedFields wherever they are.
func dropFields(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "managedFields")
		for k := range v {
			dropFields(v[k])
		}
	case []any:
		for i := range v {
			dropFields(v[i])
		}
	}
}

// at returns what is at a path, or nil.
func at(v any, path string) any {
	for _, step := range strings.Split(path, ".") {
		switch node := v.(type) {
		case map[string]any:
			v = node[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(node) {
				return nil
			}
			v = node[i]
		default:
			return nil
		}
	}
	return v
}

// pick returns a copy of v with nothing but what is at the paths.
func pick(v any, paths []string) any {
	var out any
	for _, path := range paths {
		out = copyPath(out, v, strings.Split(path, "."))
	}
	return out
}

func copyPath(to, from any, path []string) any {
	if len(path) == 0 {
		return from
	}
	switch from := from.(type) {
	case map[string]any:
		out, _ := to.(map[string]any)
		if out == nil {
			out = map[string]any{}
		}
		for key, value := range from {
			if path[0] == key || path[0] == "*" {
				out[key] = copyPath(out[key], value, path[1:])
			}
		}
		return out
	case []any:
		out, _ := to.([]any)
		if out == nil {
			out = make([]any, len(from))
		}
		for i := range from {
			if path[0] == strconv.Itoa(i) || path[0] == "*" {
				out[i] = copyPath(out[i], from[i], path[1:])
			}
		}
		return out
	}
	return to
}

// drop removes what is at a path.
func drop(v any, path []string) {
	switch node := v.(type) {
	case map[string]any:
		for key := range node {
			if path[0] == key || path[0] == "*" {
				if len(path) == 1 {
					delete(node, key)
				} else {
					drop(node[key], path[1:])
				}
			}
		}
	case []any:
		for i := range node {
			if len(path) > 1 && (path[0] == strconv.Itoa(i) || path[0] == "*") {
				drop(node[i], path[1:])
			}
		}
	}
}

// pretty is JSON for people to read, keys in order.
func pretty(v any) string {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err.Error() + "\n"
	}
	return out.String()
}
