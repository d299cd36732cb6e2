package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// mediaTypes are what the lines type and accept may say in short.
var mediaTypes = map[string]string{
	"json":      "application/json",
	"yaml":      "application/yaml",
	"protobuf":  "application/vnd.kubernetes.protobuf",
	"jsonpatch": "application/json-patch+json",
	"merge":     "application/merge-patch+json",
	"strategic": "application/strategic-merge-patch+json",
	"apply":     "application/apply-patch+yaml",
	"table":     "application/json;as=Table;v=v1;g=meta.k8s.io",
	"partial":   "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
	"partials":  "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
}

// headers are those of an answer that are written down, if it has them.
var headers = []string{"Content-Type", "Warning", "Allow", "Location", "Retry-After"}

// patience bounds one request; a server that has not said by then what is asked of it never will.
const patience = time.Minute

// Server is an API server to send scripts to, as an administrator.
type Server struct {
	base   string
	client *http.Client
}

// Connect returns the server that a client's configuration leads to.
func Connect(config *rest.Config) (*Server, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &Server{base: strings.TrimSuffix(base.String(), "/"), client: client}, nil
}

// Run sends the requests of a script, one after the other, and gives each answer to the function as the
// script would hold it. An error is the network's or the script's.
func (s *Server) Run(ctx context.Context, script *Script, answered func(r *Request, answer string)) error {
	run := &run{server: s, mask: newMask(), variables: map[string]string{"ns": "wire-" + script.Name}}
	if err := run.prepare(ctx); err != nil {
		return err
	}
	for i := range script.Requests {
		r := &script.Requests[i]
		answer, err := run.do(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", script.Name, r.Name, err)
		}
		answered(r, answer)
	}
	return nil
}

// run is one script under way.
type run struct {
	server    *Server
	mask      *mask
	variables map[string]string
}

// prepare makes what every script needs: its namespace, and the service account that pods there have.
func (run *run) prepare(ctx context.Context) error {
	for _, r := range []Request{
		{Path: "/api/v1/namespaces", Body: "metadata: {name: '{ns}'}"},
		{Path: "/api/v1/namespaces/{ns}/serviceaccounts", Body: "metadata: {name: default}"},
	} {
		r.Method, r.Type, r.Accept = http.MethodPost, "json", "json"
		answer, err := run.do(ctx, &r)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(answer, "201\n") {
			return fmt.Errorf("%s: %s", r.Path, answer)
		}
	}
	run.mask = newMask()
	return nil
}

func (run *run) do(ctx context.Context, r *Request) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := run.request(ctx, r)
	if err != nil {
		return "", err
	}
	res, err := run.server.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	bodies, err := read(res, r.Events)
	if err != nil {
		return "", err
	}
	for name, path := range r.Save {
		for _, body := range bodies {
			if value := at(body, path); value != nil {
				run.variables[name] = fmt.Sprint(value)
			}
		}
	}
	return run.render(r, res, bodies), nil
}

func (run *run) request(ctx context.Context, r *Request) (*http.Request, error) {
	body, err := encode(r.Type, expand(r.Body, run.variables))
	if err != nil {
		return nil, err
	}
	path := strings.ReplaceAll(expand(r.Path, run.variables), " ", "%20")
	req, err := http.NewRequestWithContext(ctx, r.Method, run.server.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", mediaType(r.Accept))
	if len(body) > 0 {
		req.Header.Set("Content-Type", mediaType(r.Type))
	}
	if r.As != "" {
		req.Header.Set("Impersonate-User", r.As)
	}
	return req, nil
}

func mediaType(short string) string {
	if long, ok := mediaTypes[short]; ok {
		return long
	}
	return short
}

// encode brings the body of a request, which is YAML, into the form that its type says.
func encode(mediaType, body string) ([]byte, error) {
	switch mediaType {
	case "json", "merge", "jsonpatch", "strategic", "protobuf":
	default:
		return []byte(body), nil
	}
	if body == "" {
		return nil, nil
	}
	text, err := yaml.YAMLToJSON([]byte(body))
	if err != nil || mediaType != "protobuf" {
		return text, err
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	return runtime.Encode(protobufs, obj)
}

var protobufs = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// read returns the body as values of JSON: one, or as many as a watch is to be followed for. A body that
// is no JSON is one string.
func read(res *http.Response, events int) (bodies []any, err error) {
	switch kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";"); kind {
	case "application/json":
		dec := json.NewDecoder(res.Body)
		for range max(events, 1) {
			var body any
			if err := dec.Decode(&body); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			bodies = append(bodies, body)
		}
		return bodies, nil
	case "application/vnd.kubernetes.protobuf":
		return readProtobuf(res.Body)
	}
	text, err := io.ReadAll(res.Body)
	if len(text) > 0 {
		bodies = []any{string(text)}
	}
	return bodies, err
}

func readProtobuf(r io.Reader) ([]any, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	obj, _, err := protobufs.Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	return []any{body}, err
}

func (run *run) render(r *Request, res *http.Response, bodies []any) string {
	var out strings.Builder
	fmt.Fprintln(&out, res.StatusCode)
	for _, name := range headers {
		for _, value := range res.Header.Values(name) {
			if value != "application/json" {
				fmt.Fprintf(&out, "%s: %s\n", name, run.mask.text(strings.ReplaceAll(value, run.server.base, "")))
			}
		}
	}
	nothing := slices.Equal(r.Only, []string{"nothing"}) && res.StatusCode < 400
	for _, body := range bodies {
		if !r.Fields {
			dropFields(body)
		}
		body = run.mask.value(body)
		if nothing {
			continue
		}
		if len(r.Only) > 0 && res.StatusCode < 400 {
			body = pick(body, r.Only)
		}
		for _, path := range r.Drop {
			drop(body, strings.Split(path, "."))
		}
		if text, ok := body.(string); ok {
			fmt.Fprintf(&out, "\n%s\n", strings.TrimSuffix(text, "\n"))
		} else {
			fmt.Fprintf(&out, "\n%s", pretty(body))
		}
	}
	return out.String()
}
