package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/apiserver"
)

// applyFlags are the flags of apply.
type applyFlags struct {
	access
	files                 []string
	manager               string
	atomic, dryRun, force bool
}

func newApply() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply --atomic -f FILE",
		Short: "Apply all objects of files in one step, or none",
		Long: `Applies the objects of the files, in their order, by server-side apply. With --atomic they are one
change: either all are applied, in one revision that everybody sees whole, or, if one is refused, none.
Without it each is a change by itself, and the first that is refused ends the command.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "`file` with objects as YAML or JSON, - for the standard input; may be repeated")
	f.addTo(flags)
	flags.StringVar(&f.manager, "field-manager", "setpoint", "`name` that comes to own what is applied")
	flags.BoolVar(&f.atomic, "atomic", false, "apply all or nothing")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only say what would be done")
	flags.BoolVar(&f.force, "force-conflicts", false, "take fields over that others own")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

func (f *applyFlags) run(cmd *cobra.Command) error {
	objects, err := f.read(cmd.InOrStdin())
	if err != nil {
		return err
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	for rest := objects; len(rest) > 0; {
		n := 1
		if f.atomic {
			n = len(rest)
		}
		if err := f.apply(cmd.Context(), client, rest[:n], cmd.OutOrStdout()); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// read returns the objects of all files, those of lists one by one.
func (f *applyFlags) read(stdin io.Reader) (all []*unstructured.Unstructured, err error) {
	for _, name := range f.files {
		data, err := io.ReadAll(stdin)
		if name != "-" {
			data, err = os.ReadFile(name)
		}
		if err != nil {
			return nil, err
		}
		documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4<<10)
		for {
			object := &unstructured.Unstructured{}
			if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			switch {
			case len(object.Object) == 0: // nothing between two separators
			case object.IsList():
				err = object.EachListItem(func(item runtime.Object) error {
					all = append(all, item.(*unstructured.Unstructured))
					return nil
				})
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			default:
				all = append(all, object)
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there is no object in the files")
	}
	return all, nil
}

// apply applies some objects in one request, and says what has become of them.
func (f *applyFlags) apply(ctx context.Context, client *rest.RESTClient, objects []*unstructured.Unstructured, out io.Writer) error {
	type operation struct {
		Verb   string                     `json:"verb"`
		Object *unstructured.Unstructured `json:"object"`
	}
	var body struct {
		Operations []operation `json:"operations"`
	}
	for _, o := range objects {
		body.Operations = append(body.Operations, operation{"apply", o})
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request := client.Post().AbsPath(apiserver.AtomicPath).SetHeader("Content-Type", "application/json").
		Param("fieldManager", f.manager).Param("force", fmt.Sprint(f.force)).Body(data)
	applied := "applied"
	if f.dryRun {
		request, applied = request.Param("dryRun", "All"), "applied (dry run)"
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	answer, err := result.Raw()
	if err != nil {
		return err
	}
	var list unstructured.UnstructuredList
	if err := json.Unmarshal(answer, &list); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	for _, o := range list.Items {
		name := o.GetName()
		if o.GetNamespace() != "" {
			name = o.GetNamespace() + "/" + name
		}
		fmt.Fprintf(out, "%s %s %s\n", o.GetKind(), name, applied)
	}
	if f.atomic && !f.dryRun {
		fmt.Fprintf(out, "all at revision %s\n", list.GetResourceVersion())
	}
	return nil
}
