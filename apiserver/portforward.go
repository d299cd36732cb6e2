package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/apiserver/streaming"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// podForward connects a client to ports of a pod.
func (s *Server) podForward(w http.ResponseWriter, r *request) error {
	if err := s.authorizeCreate(r); err != nil {
		return err
	}
	ports, err := forwardedPorts(r)
	if err != nil {
		return err
	}
	pod, err := s.object(r)
	if err != nil {
		return err
	}
	t, err := s.agentOfPod(pod, r)
	if err != nil {
		return err
	}
	if phase := tree.Str(pod, "status", "phase"); phase != "Running" {
		return apierrors.NewBadRequest(fmt.Sprintf("pod %q is not running: its phase is %s", r.name, phase))
	}
	ctx, cancel := s.streamContext(r)
	defer cancel(nil)
	moving := s.watchIdle(cancel)
	defer moving.stop()
	dial := func(ctx context.Context, port uint16) (streaming.Port, error) {
		moving.touch()
		conn, err := dialPod(ctx, t, r.namespace, r.name, strconv.Itoa(int(port)))
		if err != nil {
			return nil, err
		}
		return movingPort{conn, moving}, nil
	}
	err = streaming.ServeForward(ctx, w, r.http, ports, dial)
	if err == nil || errors.Is(err, streaming.ErrGone) {
		switched(w)
		return nil
	}
	return err
}

// movingPort notes what moves over a connection.
type movingPort struct {
	*agentStream
	idle *idle
}

func (p movingPort) Write(b []byte) (int, error) {
	p.idle.touch()
	return p.agentStream.Write(b)
}

func (p movingPort) Read(b []byte) (int, error) {
	n, err := p.agentStream.Read(b)
	p.idle.touch()
	return n, err
}

// forwardedPorts reads the ports that a WebSocket's client wants; one that tunnels, or speaks SPDY,
// says later.
func forwardedPorts(r *request) ([]uint16, error) {
	var ports []uint16
	for _, list := range append(r.query["ports"], r.query["port"]...) {
		for text := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, apierrors.NewBadRequest("cannot convert to []int32: " + err.Error())
			}
			if port == 0 {
				return nil, apierrors.NewBadRequest(`ports: found "0", allowed are 1 to 65535`)
			}
			ports = append(ports, uint16(port))
		}
	}
	const most = 100 // two channels each, numbered by a byte
	if len(ports) > most {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("ports: found %d, at most %d are allowed", len(ports), most))
	}
	return ports, nil
}

// agentOfPod returns the agent of the node that the pod of a request is on. Possible errors: 400
// without a node, 404 if it is not there, 503 if it is not connected.
func (s *Server) agentOfPod(pod kinds.Object, r *request) (*tunnel, error) {
	node := tree.Str(pod, "spec", "nodeName")
	if node == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", r.name))
	}
	t, err := s.agentOf(node)
	if err == nil {
		return t, nil
	}
	if _, missing := s.lookUp(r, "nodes", "", node); missing != nil {
		// Kubernetes words it as if a pod of that name were meant.
		return nil, apierrors.NewNotFound(r.kind.GroupResource(), node)
	}
	return nil, err
}
