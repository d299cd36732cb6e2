package lint_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The page lists each requirement with the tests that show it.
const requirementsPage = "docs/requirements.md"

var (
	requirementRow = regexp.MustCompile(`(?m)^\| (R-[A-Z]\d+) \|.*\| ([^|]*) \|$`)
	testName       = regexp.MustCompile("`((?:Test|Example|Fuzz|Benchmark)[A-Za-z0-9_]*)`")
	testFunc       = regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz|Benchmark)[A-Za-z0-9_]*)\(`)
)

// requirementCounts says how many requirements each chapter of the page has to have.
var requirementCounts = map[string]int{
	"S": 10, "C": 5, "Q": 5, "R": 11, "L": 3, "H": 5, "W": 4, "O": 7, "M": 4, "T": 3,
}

// TestRequirementsNameRealTests keeps the page true: every requirement stands on it once, names
// tests that exist or says that it is not met yet.
func TestRequirementsNameRealTests(t *testing.T) {
	page, err := os.ReadFile(root(t, requirementsPage))
	if err != nil {
		t.Fatal(err)
	}
	exists := testsThatExist(t)
	seen, counts := map[string]bool{}, map[string]int{}
	for _, row := range requirementRow.FindAllStringSubmatch(string(page), -1) {
		id, shown := row[1], row[2]
		if seen[id] {
			t.Errorf("%s: %s stands on the page twice", requirementsPage, id)
		}
		seen[id] = true
		counts[id[2:3]]++
		names := testName.FindAllStringSubmatch(shown, -1)
		if len(names) == 0 && !strings.HasPrefix(shown, "not yet") {
			t.Errorf("%s: %s names no test and does not say `not yet`", requirementsPage, id)
		}
		for _, name := range names {
			if !exists[name[1]] {
				t.Errorf("%s: %s names %s, which is no test", requirementsPage, id, name[1])
			}
		}
	}
	for chapter, want := range requirementCounts {
		if counts[chapter] != want {
			t.Errorf("%s: chapter %s has %d requirements, want %d", requirementsPage, chapter, counts[chapter], want)
		}
	}
}

// TestPagesNameRealTests keeps every other page true likewise.
func TestPagesNameRealTests(t *testing.T) {
	exists := testsThatExist(t)
	pages, err := filepath.Glob(root(t, "docs/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, path := range pages {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range testName.FindAllStringSubmatch(string(page), -1) {
			if !exists[name[1]] {
				t.Errorf("docs/%s names %s, which is no test", filepath.Base(path), name[1])
			}
		}
	}
}

func testsThatExist(t *testing.T) map[string]bool {
	t.Helper()
	exists := map[string]bool{}
	for _, file := range goFiles(t) {
		if !strings.HasSuffix(file, "_test.go") && !strings.Contains(file, "storetest/") {
			continue
		}
		source, err := os.ReadFile(root(t, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(source, -1) {
			exists[string(m[1])] = true
		}
	}
	return exists
}
