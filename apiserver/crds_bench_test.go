package apiserver_test

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkInstall installs one definition after another, of 14 KB each: run it with -benchtime 1000x,
// since what one costs may depend on how many there are.
func BenchmarkInstall(b *testing.B) {
	const about = "What the field is for, in the words of who made it. "
	var fields []string
	for i := range 20 {
		fields = append(fields, fmt.Sprintf(`"f%d":{"type":"object","description":%q,"properties":{`+
			`"a":{"type":"string","maxLength":64,"pattern":"^[a-z]*$","description":%[2]q},`+
			`"b":{"type":"array","maxItems":16,"items":{"type":"integer","minimum":0},"description":%[2]q}}}`,
			i, about+about+about))
	}
	spec := `{"type":"object","properties":{` + strings.Join(fields, ",") + `},` +
		`"x-kubernetes-validations":[{"rule":"!has(self.f0) || self.f0.a != 'no'"}]}`
	text := definition(spec, `"subresources":{"status":{}}`,
		`"additionalPrinterColumns":[{"name":"A","type":"string","jsonPath":".spec.f0.a"}]`)
	a := newAPI(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		group := fmt.Sprintf("g%d.example.com", n/20)
		a.send(201, "POST "+crds, "application/json", strings.NewReplacer(`"widgets`, fmt.Sprintf(`"w%ds`, n),
			"example.com", group, `"Widget"`, fmt.Sprintf(`"W%d"`, n)).Replace(text))
	}
}
