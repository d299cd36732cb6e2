package builtin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"
)

// tableNow is when the tables are printed.
var tableNow = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// TestTables prints objects as kubectl get -o wide shows them. Each is followed by its row; the first
// row of a file is the columns' names.
func TestTables(t *testing.T) {
	files, err := filepath.Glob("testdata/tables/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			k := kindOf(t, name)
			var names []string
			for _, c := range k.Columns {
				if c.Priority > 0 {
					c.Name = "(" + c.Name + ")"
				}
				names = append(names, c.Name)
			}
			check := func(step string, want *[]byte, got string) {
				if d := cmp.Diff(string(*want), got); d != "" && !*update {
					t.Errorf("%s (-want +got):\n%s", step, d)
				}
				*want = []byte(got)
			}
			check("columns", &archive.Comment, strings.Join(names, " | ")+"\n")
			for i := 0; i+1 < len(archive.Files); i += 2 {
				data, err := yaml.YAMLToJSON(archive.Files[i].Data)
				if err != nil {
					t.Fatal(err)
				}
				decoded, err := k.Schema.DecodeJSON(data)
				if err != nil || len(decoded.Findings) > 0 {
					t.Fatalf("%s: %v %v", archive.Files[i].Name, err, decoded.Findings)
				}
				var cells []string
				for _, c := range k.Columns {
					cells = append(cells, fmt.Sprint(c.Cell(decoded.Object, tableNow)))
				}
				check(archive.Files[i].Name, &archive.Files[i+1].Data, strings.Join(cells, " | ")+"\n")
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
