package lint_test

import (
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/setpoint-dev/setpoint"

// ladder lists the rooms from the top down. A package may import what stands below its own room,
// and other packages of its room; what is not here may be imported by nobody but its own room.
// Rooms on one line stand side by side: they do not import each other.
var ladder = [][]string{
	{"cmd/setpoint"},
	{"demo"},
	{"setpointtest"},
	{"."},
	{"controllers", "scheduler", "node"},
	{"controller"},
	{"cache", "workqueue", "lease", "client"},
	{"apiserver"},
	{"kinds"},
	{"store"},
	{"clock", "invariant"},
}

// extra lists imports that the ladder does not allow and that are right all the same.
var extra = map[[2]string]string{
	{"client", "cache"}:          "a controller's client reads from the cache",
	{"cmd/setpoint", "examples"}: "the demonstration applies an example",
}

func TestImportsGoDown(t *testing.T) {
	level := map[string]int{}
	for i, rooms := range ladder {
		for _, room := range rooms {
			level[room] = i
		}
	}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		from := roomOf(file)
		fromLevel, onLadder := level[from]
		if !onLadder {
			continue // beside the ladder: nothing on it may import this, which is checked below
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), root(t, file), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if path != module && !strings.HasPrefix(path, module+"/") {
				continue
			}
			to := roomOf(strings.TrimPrefix(strings.TrimPrefix(path, module), "/") + "/x.go")
			toLevel, known := level[to]
			if to == from && !siblings(file, path) {
				continue
			}
			if _, ok := extra[[2]string{from, to}]; ok {
				continue
			}
			if internalOf(file, path) {
				continue
			}
			if to == from || !known || toLevel <= fromLevel {
				t.Errorf("%s imports %s: imports go down the ladder only", file, path)
			}
		}
	}
}

// siblings says whether both belong to different controllers: those never import each other.
func siblings(file, path string) bool {
	if !strings.HasPrefix(file, "controllers/") {
		return false
	}
	a := strings.Split(file, "/")[1]
	parts := strings.Split(strings.TrimPrefix(path, module+"/"), "/")
	if len(parts) < 2 {
		return false
	}
	shared := []string{"backends", "podfacts", "ownership", "podcontrol", "revisions", "scales", "controllertest"}
	return parts[1] != a && !slices.Contains(shared, parts[1])
}

// internalOf allows what lies in an internal folder of the importing room, or at the module's root.
func internalOf(file, path string) bool {
	rest := strings.TrimPrefix(path, module+"/")
	i := strings.Index(rest, "internal/")
	if i < 0 {
		return false
	}
	return strings.HasPrefix(file, rest[:i])
}

// roomOf is the room a file belongs to: the first folder, or two for what is listed with two.
func roomOf(file string) string {
	parts := strings.Split(file, "/")
	switch {
	case len(parts) == 1 || file == "/x.go":
		return "."
	case parts[0] == "cmd" || parts[0] == "internal":
		return strings.Join(parts[:2], "/")
	default:
		return parts[0]
	}
}
