package lint_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"golang.org/x/mod/modfile"
)

var dependencyRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// TestDependenciesAreJustified compares the page with what go.mod requires directly.
func TestDependenciesAreJustified(t *testing.T) {
	data, err := os.ReadFile(root(t, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root(t, "DEPENDENCIES.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed, required []string
	for _, row := range dependencyRow.FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, row[1])
	}
	for _, r := range mod.Require {
		if !r.Indirect {
			required = append(required, r.Mod.Path)
		}
	}
	for _, path := range required {
		if !slices.Contains(listed, path) {
			t.Errorf("go.mod requires %s, and DEPENDENCIES.md does not say why", path)
		}
	}
	for _, path := range listed {
		if !slices.Contains(required, path) {
			t.Errorf("DEPENDENCIES.md speaks of %s, which go.mod does not require", path)
		}
	}
}
