package lint_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goSnippet = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// TestSnippetsAreOfTheSource keeps the Go on pages true: it stands in the project's source, and so is
// compiled. A line of "…" leaves out lines, and a "…" in a line the rest of it.
func TestSnippetsAreOfTheSource(t *testing.T) {
	var sources []string
	for _, file := range goFiles(t) {
		source, err := os.ReadFile(root(t, file))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, unindented(string(source)))
	}
	pages, err := filepath.Glob(root(t, "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, root(t, "README.md")) {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, snippet := range goSnippet.FindAllStringSubmatch(string(page), -1) {
			for _, piece := range pieces(snippet[1]) {
				if !standsIn(sources, piece) {
					t.Errorf("%s: this stands in no Go file:\n%s", filepath.Base(path), piece)
				}
			}
		}
	}
}

// pieces are the parts of a snippet that stand together in the source.
func pieces(snippet string) (whole []string) {
	for piece := range strings.SplitSeq("\n"+snippet, "\n…\n") {
		if piece = unindented(piece); piece != "" {
			whole = append(whole, piece)
		}
	}
	return whole
}

func unindented(source string) string {
	var lines []string
	for line := range strings.Lines(source) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// standsIn says whether one of the sources has the piece, from the beginning of a line on.
func standsIn(sources []string, piece string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(piece), "…", `.*`)
	stands := regexp.MustCompile(`(?m)^` + pattern + `( \{)?$`)
	for _, source := range sources {
		if stands.MatchString(source) {
			return true
		}
	}
	return false
}
