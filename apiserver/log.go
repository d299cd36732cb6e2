package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
)

// podLog streams what a container wrote, from the agent of its node. A pod that has no node yet
// has an empty log.
func (s *Server) podLog(w http.ResponseWriter, r *request) error {
	pod, err := s.object(r)
	if err != nil {
		return err
	}
	if err := checkLogOptions(r.query); err != nil {
		return err
	}
	container, err := logContainer(pod, r.name, r.query.Get("container"))
	if err != nil {
		return err
	}
	spec, _ := pod["spec"].(map[string]any)
	node, _ := spec["nodeName"].(string)
	if node == "" {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	tunnel := s.agents.get(node)
	if tunnel == nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf(
			"the log of pod %q cannot be read: the agent of its node %q is not connected", r.name, node))
	}
	return s.streamLog(w, r, tunnel, container)
}

// object returns the tree of the object that the request names.
func (s *Server) object(r *request) (kinds.Object, error) {
	snap, err := s.snapshot(r, 0)
	if err != nil {
		return nil, err
	}
	e := snap.Get(r.key())
	if e == nil {
		return nil, apierrors.NewNotFound(r.kind.GroupResource(), r.name)
	}
	return decodeStored(r.http.Context(), r.kinds, r.kind, e.Value)
}

// streamLog asks the agent and passes on what it says, as it comes.
func (s *Server) streamLog(w http.ResponseWriter, r *request, t *tunnel, container string) error {
	ctx, cancel := context.WithCancel(r.http.Context())
	defer cancel()
	go func() { // ends with the request
		select {
		case <-s.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, logURL(r, container), nil)
	if err != nil {
		return err
	}
	answer, err := t.client.RoundTrip(ask)
	if err != nil {
		return apierrors.NewServiceUnavailable("the agent does not answer: " + err.Error())
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return agentError(answer)
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	if err := copyFlushed(w, answer.Body); ctx.Err() == nil {
		return err
	}
	return nil // the client has gone, or the server stops
}

// logURL is the agent's address of a log. The host is the tunnel's and means nothing.
func logURL(r *request, container string) string {
	passed := url.Values{}
	for _, name := range []string{"follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes"} {
		if v := r.query.Get(name); v != "" {
			passed.Set(name, v)
		}
	}
	u := url.URL{Scheme: "http", Host: "node", RawQuery: passed.Encode()}
	return u.JoinPath("containerLogs", r.namespace, r.name, container).String()
}

// agentError passes on why an agent refuses, in its own words.
func agentError(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	msg := strings.TrimSpace(string(text))
	switch answer.StatusCode {
	case http.StatusBadRequest, http.StatusNotFound:
		return apierrors.NewBadRequest(msg)
	case http.StatusBadGateway: // nothing listens there
		return apierrors.NewServiceUnavailable(msg)
	}
	return apierrors.NewInternalError(fmt.Errorf("the agent answers %s: %s", answer.Status, msg))
}

// copyFlushed copies and sends on at once what has come.
func copyFlushed(w http.ResponseWriter, from io.Reader) error {
	out := &stream{w: w, control: http.NewResponseController(w)}
	if err := out.write(); err != nil {
		return err
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			out.buf = buf[:n]
			if err := out.write(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// checkLogOptions says which of the options cannot be.
func checkLogOptions(query url.Values) error {
	var errs field.ErrorList
	for name, least := range map[string]int64{"tailLines": 0, "limitBytes": 1, "sinceSeconds": 1} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("%s: %v", name, err))
		}
		if n < least {
			errs = append(errs, field.Invalid(field.NewPath(name), n, fmt.Sprintf("must be greater than or equal to %d", least)))
		}
	}
	if text := query.Get("sinceTime"); text != "" {
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("sinceTime: %v", err))
		}
		if query.Get("sinceSeconds") != "" {
			errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
		}
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, "", errs)
	}
	return nil
}

// defaultContainer is the annotation with which a pod says whose log is meant.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// logContainer returns the container that the client means.
func logContainer(pod kinds.Object, name, asked string) (string, error) {
	spec, _ := pod["spec"].(map[string]any)
	main := containerNames(spec, "containers")
	more := append(containerNames(spec, "initContainers"), containerNames(spec, "ephemeralContainers")...)
	if asked == "" {
		if len(main) == 1 {
			return main[0], nil
		}
		metadata, _ := pod["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		asked, _ = annotations[defaultContainer].(string)
	}
	for _, c := range append(main, more...) {
		if c == asked {
			return c, nil
		}
	}
	if asked != "" {
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", asked, name))
	}
	msg := fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", name, main)
	if len(more) > 0 {
		msg += fmt.Sprintf(" or one of the init or ephemeral containers: %v", more)
	}
	return "", apierrors.NewBadRequest(msg)
}

func containerNames(spec map[string]any, list string) []string {
	containers, _ := spec[list].([]any)
	names := make([]string, 0, len(containers))
	for _, c := range containers {
		container, _ := c.(map[string]any)
		name, _ := container["name"].(string)
		names = append(names, name)
	}
	return names
}
