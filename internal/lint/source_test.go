package lint_test

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root returns the path of a file named from the module's root.
func root(t *testing.T, file string) string {
	t.Helper()
	return filepath.Join("..", "..", file)
}

// goFiles returns the Go files of the product's module, generated ones aside, named from the root.
func goFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-co", "--exclude-standard", "*.go")
	cmd.Dir = root(t, "")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var files []string
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSpace(file)
		if _, err := os.Stat(root(t, file)); err != nil || strings.Contains(file, "zz_generated") {
			continue
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		t.Fatal("no Go files found")
	}
	return files
}

// ofProduct leaves out files that belong to modules of their own.
func ofProduct(file string) bool {
	return !slices.ContainsFunc([]string{"tools/", "bench/", "conformance/"}, func(p string) bool {
		return strings.HasPrefix(file, p)
	})
}

func TestFormat(t *testing.T) {
	for _, file := range goFiles(t) {
		source, err := os.ReadFile(root(t, file))
		if err != nil {
			t.Fatal(err)
		}
		formatted, err := format.Source(source)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		} else if !bytes.Equal(source, formatted) {
			t.Errorf("%s is not as gofmt writes it", file)
		}
	}
}

// fileLinesMax is where a file has become several: readers hold a few hundred lines in mind.
const fileLinesMax = 700

func TestFileLength(t *testing.T) {
	for _, file := range goFiles(t) {
		source, err := os.ReadFile(root(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(source, []byte("\n")); n > fileLinesMax {
			t.Errorf("%s has %d lines; a file has at most %d", file, n, fileLinesMax)
		}
	}
}

func TestPackagesAreDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), root(t, file), nil,
			parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(file)
		documented[dir] = documented[dir] || parsed.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

// A ban names a call that some files may not make, and what to use in its place.
type ban struct {
	pkg, name string
	in        func(file string) bool
	use       string
}

var bans = []ban{
	{"time", "Sleep", isTest, "testing/synctest, a channel or a fake clock"},
	{"time", "Now", isCore, "the time that is handed in"},
	{"rand", "Int", isCore, "the randomness that is handed in"},
	{"fmt", "Println", isLibrary, "a *slog.Logger or an io.Writer that is handed in"},
	{"fmt", "Printf", isLibrary, "a *slog.Logger or an io.Writer that is handed in"},
	{"log", "Printf", isLibrary, "a *slog.Logger that is handed in"},
	{"log", "Fatal", isLibrary, "an error"},
	{"os", "Exit", isLibrary, "an error"},
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.go") }

// isCore says whether a file decides: such code takes its clock and randomness as arguments (D4).
func isCore(file string) bool {
	return !isTest(file) && (filepath.Base(file) == "plan.go" || filepath.Base(file) == "graph.go" ||
		strings.HasPrefix(file, "kinds/"))
}

// isLibrary says whether programs of others can contain a file. Those of our own may print and end.
func isLibrary(file string) bool {
	program := func(folder string) bool { return strings.HasPrefix(file, folder) }
	return !isTest(file) && ofProduct(file) &&
		!slices.ContainsFunc([]string{"cmd/", "examples/", "internal/fuzzall/"}, program)
}

func TestBannedCalls(t *testing.T) {
	for _, file := range goFiles(t) {
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, root(t, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := call.X.(*ast.Ident)
			if !ok || pkg.Obj != nil {
				return true
			}
			for _, b := range bans {
				if b.pkg == pkg.Name && b.name == call.Sel.Name && b.in(file) {
					t.Errorf("%s: %s.%s: use %s", fset.Position(call.Pos()), b.pkg, b.name, b.use)
				}
			}
			return true
		})
	}
}

func TestVet(t *testing.T) { run(t, "go", "vet", "./...") }
func TestStaticcheck(t *testing.T) {
	run(t, "go", "tool", "-modfile=tools/go.mod", "staticcheck", "./...")
}

// run runs a command at the module's root and shows what it says if it fails.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root(t, "")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func TestGoModHasNoReplace(t *testing.T) {
	data, err := os.ReadFile(root(t, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(data, []byte("=>")) {
		t.Error("go.mod has a replace line: nobody could go get the module")
	}
}
