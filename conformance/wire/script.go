// Package wire sends scripts of requests to an API server and writes down what it answers.
//
// A script is a txtar archive. What comes before the first file says what the script is about. Each
// request stands in a file NAME.request, and what a Kubernetes API server answered to it in NAME.answer
// below, which only the recorder writes:
//
//	-- create.request --
//	POST /api/v1/namespaces/{ns}/configmaps?dryRun=All
//	save: rv=metadata.resourceVersion
//
//	metadata: {name: a}
//	-- create.answer --
//	201
//
//	{
//	  "apiVersion": "v1",
//	  …
//
// The body is YAML and sent as JSON. See Request for the lines between. {ns} is a namespace of the
// script's own, with which the names of cluster-wide objects begin; {rv} is what a line save has kept;
// {x*3} is xxx.
//
// What no two servers agree on is masked; see mask.
package wire

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"
)

// Script is one file of requests and the answers to them.
type Script struct {
	Name     string
	About    string
	Requests []Request
}

// Request is one request, and what is kept of the answer.
type Request struct {
	Name   string
	Answer string // as it was recorded; empty before the first time

	Method, Path string
	Body         string
	// Type is the media type of the body, and Accept that of the answer, by their short names:
	// mediaTypes. The body is sent as JSON if its type is json, merge, jsonpatch or strategic, as
	// Kubernetes protobuf if it is protobuf, and else as it stands.
	Type, Accept string
	// As is the user to ask as, of no groups but those that all users are in.
	As string
	// Events is how many events of a watch to read.
	Events int
	// Save keeps values of the answer for later requests: a name for each path.
	Save map[string]string
	// Only are the paths that are kept of a body, Drop those that are left out. A path is names and
	// indexes with dots between them, * being all; "nothing" keeps the status code only.
	Only, Drop []string
	// Fields keeps managedFields, which are left out otherwise: they would be most of each answer.
	Fields bool

	// Differs says why Setpoint does not answer as Kubernetes does; docs/differences.md says it to people.
	Differs string

	text string // the file
}

// Load reads a script.
func Load(file string) (*Script, error) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		return nil, err
	}
	s := &Script{
		Name:  strings.TrimSuffix(filepath.Base(file), ".txtar"),
		About: strings.TrimSpace(string(archive.Comment)),
	}
	for _, f := range archive.Files {
		name, isRequest := strings.CutSuffix(f.Name, ".request")
		if isRequest {
			r, err := parseRequest(name, string(f.Data))
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, f.Name, err)
			}
			s.Requests = append(s.Requests, r)
			continue
		}
		last := len(s.Requests) - 1
		if last < 0 || f.Name != s.Requests[last].Name+".answer" {
			return nil, fmt.Errorf("%s: %s: want a NAME.request, or the answer to the one above", file, f.Name)
		}
		s.Requests[last].Answer = string(f.Data)
	}
	return s, nil
}

// Write writes the script with the answers it has.
func (s *Script) Write(file string) error {
	archive := &txtar.Archive{Comment: []byte(s.About + "\n\n")}
	for _, r := range s.Requests {
		archive.Files = append(archive.Files,
			txtar.File{Name: r.Name + ".request", Data: []byte(r.text)},
			txtar.File{Name: r.Name + ".answer", Data: []byte(r.Answer)})
	}
	return os.WriteFile(file, txtar.Format(archive), 0o644)
}

func parseRequest(name, text string) (r Request, err error) {
	r = Request{Name: name, Type: "json", Accept: "json", text: text}
	head, body, _ := strings.Cut(text, "\n\n")
	r.Body = body
	lines := strings.Split(strings.TrimSpace(head), "\n")
	method, path, ok := strings.Cut(lines[0], " ")
	if !ok || !strings.HasPrefix(path, "/") {
		return r, fmt.Errorf("%q: want a method and a path", lines[0])
	}
	r.Method, r.Path = method, path
	for _, line := range lines[1:] {
		key, value, ok := strings.Cut(line, ": ")
		if !ok {
			return r, fmt.Errorf("%q: want \"key: value\"", line)
		}
		if err := r.set(key, value); err != nil {
			return r, fmt.Errorf("%q: %w", line, err)
		}
	}
	return r, nil
}

func (r *Request) set(key, value string) (err error) {
	switch key {
	case "type":
		r.Type = value
	case "accept":
		r.Accept = value
	case "as":
		r.As = value
	case "events":
		r.Events, err = strconv.Atoi(value)
	case "save":
		r.Save = map[string]string{}
		for _, pair := range strings.Fields(value) {
			name, path, ok := strings.Cut(pair, "=")
			if !ok {
				return fmt.Errorf("%q: want name=path", pair)
			}
			r.Save[name] = path
		}
	case "only":
		r.Only = strings.Fields(value)
	case "drop":
		r.Drop = strings.Fields(value)
	case "fields":
		r.Fields, err = strconv.ParseBool(value)
	case "differs":
		r.Differs = value
	default:
		return fmt.Errorf("key %q: want type, accept, as, events, save, only, drop, fields or differs", key)
	}
	return err
}

var (
	variable = regexp.MustCompile(`\{([A-Za-z][A-Za-z0-9]*)\}`)
	repeated = regexp.MustCompile(`\{([^{}*\s]+)\*([0-9]+)\}`)
)

// expand replaces the names of variables by what they are, and {x*3} by xxx.
func expand(s string, variables map[string]string) string {
	s = variable.ReplaceAllStringFunc(s, func(name string) string {
		if value, ok := variables[name[1:len(name)-1]]; ok {
			return value
		}
		return name
	})
	return repeated.ReplaceAllStringFunc(s, func(m string) string {
		parts := repeated.FindStringSubmatch(m)
		n, _ := strconv.Atoi(parts[2]) // digits, by the expression
		return strings.Repeat(parts[1], n)
	})
}
