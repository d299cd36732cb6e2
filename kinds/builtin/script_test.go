package builtin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

var update = flag.Bool("update", false, "write what came out into testdata; read it before you commit it")

// TestScripts writes objects as a server does and compares what becomes of them, or what is said to be
// wrong. A script is named after a resource and reads
//
//	-- create NAME --            an object
//	-- want --                   the object as it is kept (without metadata a server sets), or complaints
//	-- update NAME: BASE --      a merge patch on the object that a step before kept
//	-- want --                   what it changes, or complaints
//	-- status NAME: BASE --      the same, through the status subresource
//	-- finalize NAME: BASE --    the same, through a subresource that is a view of the object
//
// Warnings follow what is wanted.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &script{kind: kindOf(t, name), kept: map[string]kinds.Object{}, world: newWorld()}
			for i := 0; i+1 < len(archive.Files); i += 2 {
				step, want := archive.Files[i], &archive.Files[i+1]
				if want.Name != "want" {
					t.Fatalf("%s is not followed by want but by %s", step.Name, want.Name)
				}
				got := s.run(t, step.Name, step.Data)
				if d := cmp.Diff(string(want.Data), got); d != "" && !*update {
					t.Errorf("%s (-want +got):\n%s", step.Name, d)
				}
				want.Data = []byte(got)
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func kindOf(t testing.TB, resource string) *kinds.Kind {
	t.Helper()
	for _, k := range builtin.All() {
		if k.GroupResource().String() == resource {
			return k
		}
	}
	t.Fatalf("no kind has the resource %q", resource)
	return nil
}

type script struct {
	kind  *kinds.Kind
	kept  map[string]kinds.Object
	world *world
}

func (s *script) run(t *testing.T, step string, text []byte) string {
	t.Helper()
	verb, name, _ := strings.Cut(step, " ")
	name, base, _ := strings.Cut(name, ": ")
	if verb == "create" {
		return s.result(t, name, nil, func(obj kinds.Object) ([]string, error) { return s.create(obj) },
			s.decode(t, text))
	}
	old := s.kept[base]
	if old == nil {
		t.Fatalf("%s: there is no %q to change", step, base)
	}
	obj := s.decode(t, merge(t, old, text))
	return s.result(t, name, old, func(obj kinds.Object) ([]string, error) { return s.change(t, verb, obj, old) }, obj)
}

func (s *script) result(t *testing.T, name string, old kinds.Object, write func(kinds.Object) ([]string, error), obj kinds.Object) string {
	t.Helper()
	complaints, err := write(obj)
	if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
		complaints = append(complaints, "error: "+status.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	if len(complaints) > 0 {
		return strings.Join(complaints, "\n") + "\n"
	}
	s.kept[name] = s.conform(t, obj)
	data := changes(old, s.kept[name])
	if old == nil {
		data = whole(t, s.kept[name])
	}
	if hook := s.kind.Strategy.Warnings; hook != nil {
		for _, w := range hook(obj, old) {
			data = append(data, "warning: "+w+"\n"...)
		}
	}
	return string(data)
}

func whole(t *testing.T, obj kinds.Object) []byte {
	t.Helper()
	out := tree.CopyMap(obj)
	delete(out, "apiVersion")
	delete(out, "kind")
	tree.Delete(out, "metadata", "name")
	tree.Delete(out, "metadata", "namespace")
	if len(tree.Map(out, "metadata")) == 0 {
		delete(out, "metadata")
	}
	data, err := yaml.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// changes writes each leaf that is new, changed or gone.
func changes(old, obj kinds.Object) []byte {
	was, is := map[string]string{}, map[string]string{}
	leaves(was, "", old)
	leaves(is, "", obj)
	var out bytes.Buffer
	for path := range was {
		if _, ok := is[path]; !ok {
			is[path] = "(gone)"
		}
	}
	for _, path := range slices.Sorted(maps.Keys(is)) {
		if is[path] != was[path] {
			fmt.Fprintf(&out, "%s: %s\n", path, is[path])
		}
	}
	return out.Bytes()
}

func leaves(out map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			leaves(out, strings.TrimPrefix(path+"."+key, "."), value)
		}
		if len(v) > 0 {
			return
		}
	case []any:
		for i, value := range v {
			leaves(out, fmt.Sprintf("%s[%d]", path, i), value)
		}
		if len(v) > 0 {
			return
		}
	}
	data, _ := json.Marshal(v)
	out[path] = string(data)
}

func (s *script) create(obj kinds.Object) ([]string, error) {
	st := &s.kind.Strategy
	s.kind.Schema.Default(obj)
	call(st.Default, obj)
	if st.PrepareForCreate != nil {
		if err := st.PrepareForCreate(s.world.env(), obj); err != nil {
			return nil, err
		}
	}
	return lines(list(st.Validate, obj), list(st.ValidateCreate, obj)), nil
}

func (s *script) change(t *testing.T, verb string, obj, old kinds.Object) ([]string, error) {
	t.Helper()
	before := tree.CopyMap(old)
	defer func() {
		if d := cmp.Diff(before, old); d != "" {
			t.Errorf("%s changed the old object:\n%s", verb, d)
		}
	}()
	st := &s.kind.Strategy
	s.kind.Schema.Default(obj)
	if verb == "status" {
		call(st.Default, obj)
		st.PrepareForStatusUpdate(s.world.env(), obj, old)
		if st.ValidateStatusUpdate == nil {
			return nil, nil
		}
		return lines(st.ValidateStatusUpdate(obj, old)), nil
	}
	if verb != "update" {
		i := slices.IndexFunc(s.kind.Subresources, func(sub kinds.Subresource) bool { return sub.Name == verb })
		if i < 0 {
			t.Fatalf("there is no subresource %q", verb)
		}
		st = s.kind.Subresources[i].Strategy
	}
	call(st.Default, obj)
	if st.PrepareForUpdate != nil {
		if err := st.PrepareForUpdate(s.world.env(), obj, old); err != nil {
			return nil, err
		}
	}
	var changed field.ErrorList
	if st.ValidateUpdate != nil {
		changed = st.ValidateUpdate(obj, old)
	}
	return lines(list(st.Validate, obj), changed), nil
}

func call(hook func(kinds.Object), obj kinds.Object) {
	if hook != nil {
		hook(obj)
		again := tree.CopyMap(obj)
		hook(again)
		if !cmp.Equal(obj, again) {
			panic("a default is not idempotent: " + cmp.Diff(obj, again))
		}
	}
}

func list(hook func(kinds.Object) field.ErrorList, obj kinds.Object) field.ErrorList {
	if hook == nil {
		return nil
	}
	return hook(obj)
}

func lines(lists ...field.ErrorList) (out []string) {
	for _, l := range lists {
		for _, err := range l {
			out = append(out, err.Error())
		}
	}
	return out
}

func (s *script) decode(t *testing.T, text []byte) kinds.Object {
	t.Helper()
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	decoded, err := s.kind.Schema.DecodeJSON(data)
	if err != nil || len(decoded.Findings) > 0 {
		t.Fatalf("%v %v in\n%s", err, decoded.Findings, text)
	}
	if tree.Str(decoded.Object, "metadata", "name") == "" {
		tree.Set(decoded.Object, "x", "metadata", "name")
	}
	if s.kind.Namespaced {
		tree.Default(decoded.Object, "ns", "metadata", "namespace")
	}
	return decoded.Object
}

// conform checks that what is kept is in canonical form, and returns it as it is read again.
func (s *script) conform(t *testing.T, obj kinds.Object) kinds.Object {
	t.Helper()
	data, _ := s.kind.Schema.Append(nil, obj)
	decoded, err := s.kind.Schema.DecodeJSON(data)
	if err != nil || len(decoded.Findings) > 0 {
		t.Errorf("what the hooks made cannot be read: %v %v\n%s", err, decoded.Findings, data)
		return obj
	}
	if again, _ := s.kind.Schema.Append(nil, decoded.Object); !bytes.Equal(again, data) {
		t.Errorf("what the hooks made is not canonical:\n%s\n%s", data, again)
	}
	tree.Delete(decoded.Object, "metadata", "resourceVersion")
	tree.Delete(decoded.Object, "metadata", "creationTimestamp")
	return decoded.Object
}

func merge(t *testing.T, old kinds.Object, patch []byte) []byte {
	t.Helper()
	before, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	change, err := yaml.YAMLToJSON(patch)
	if err != nil {
		t.Fatalf("%v in\n%s", err, patch)
	}
	after, err := jsonpatch.MergePatch(before, change)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// world is what a server knows beside the object: other objects, and what it can allocate.
type world struct {
	objects map[string]kinds.Object
	ips     map[string]bool
	ports   map[int64]bool
}

func newWorld() *world {
	return &world{
		objects: map[string]kinds.Object{
			"serviceaccounts/ns/puller": {"imagePullSecrets": []any{map[string]any{"name": "pull"}}},
			"priorityclasses//high":     {"value": int64(1000), "preemptionPolicy": "Never"},
		},
		ips: map[string]bool{}, ports: map[int64]bool{},
	}
}

func (w *world) env() *kinds.Env {
	return &kinds.Env{
		Context: context.Background(),
		Now:     time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		User:    kinds.User{Name: "jane", Groups: []string{"readers"}, Extra: map[string][]string{"k": {"v"}}},
		Get: func(_, resource, namespace, name string) kinds.Object {
			return w.objects[resource+"/"+namespace+"/"+name]
		},
		AllocateIP: func(ip string) (string, error) {
			for i := 1; ip == ""; i++ {
				if next := fmt.Sprintf("10.0.0.%d", i); !w.ips[next] {
					ip = next
				}
			}
			if !strings.HasPrefix(ip, "10.0.0.") {
				return "", errors.New("the provided network does not match the current range")
			}
			if w.ips[ip] {
				return "", errors.New("provided IP is already allocated")
			}
			w.ips[ip] = true
			return ip, nil
		},
		AllocatePort: func(port int64) (int64, error) {
			asked := port
			for port = max(port, 30000); w.ports[port]; port++ {
				if asked != 0 {
					return 0, errors.New("provided port is already allocated")
				}
			}
			w.ports[port] = true
			return port, nil
		},
	}
}
