package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// servePodPort connects to a port of a pod. From then on both bodies are what
// goes over the connection.
func (a *Agent) servePodPort(rw http.ResponseWriter, req *http.Request) {
	_, w, err := a.podOf(req)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	servePort(rw, req, func(port uint16) (net.Conn, error) {
		return a.Runtime.Dial(req.Context(), w.uid, port)
	})
}

// serveNodePort connects to a port of the machine.
func (a *Agent) serveNodePort(rw http.ResponseWriter, req *http.Request) {
	servePort(rw, req, func(port uint16) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(req.Context(), "tcp", net.JoinHostPort(a.Address, strconv.Itoa(int(port))))
	})
}

// servePort copies between a request and the connection that dial makes. The
// client may end its half first; when the other side ends, all of it does.
func servePort(rw http.ResponseWriter, req *http.Request, dial func(uint16) (net.Conn, error)) {
	port, err := strconv.ParseUint(req.PathValue("port"), 10, 16)
	if err != nil || port == 0 {
		http.Error(rw, fmt.Sprintf("port: found %q, allowed are 1 to 65535", req.PathValue("port")), http.StatusBadRequest)
		return
	}
	conn, err := dial(uint16(port))
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadGateway)
		return
	}
	defer conn.Close()
	stop := context.AfterFunc(req.Context(), func() { conn.Close() })
	defer stop()
	rw.WriteHeader(http.StatusOK)
	out := &flushedWriter{rw, http.NewResponseController(rw)}
	if out.control.Flush() != nil {
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := io.Copy(conn, req.Body); err != nil {
			return
		}
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	_, err = io.Copy(out, conn)
	conn.Close()
	req.Body.Close()
	<-sent
	if err != nil && req.Context().Err() == nil {
		panic(http.ErrAbortHandler) // what broke off must not look complete
	}
}
