package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of the transport. A client that sends or reads slowly, or not at all, holds a connection
// for no longer than this; for watches and logs, stallMax takes the place of answerTimeout.
const (
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 60 * time.Second
	answerTimeout  = 120 * time.Second
	idleTimeout    = 3 * time.Minute
	headerBytesMax = 64 << 10
	// drainMax is how long a stop waits for answers under way.
	drainMax = 10 * time.Second
	// streamsMax lets one client watch everything over one connection.
	streamsMax = 1000
	// unsentMax is what the kernel takes for a client beyond what the client's window and the network
	// allow: enough to keep both busy. Without a bound it is some megabytes for each who does not
	// read.
	unsentMax = 64 << 10
)

// Serve answers over TLS, in HTTP/1.1 and HTTP/2, until the context ends. Then it ends watches,
// waits a little for other answers, and returns nil. The listener is closed.
func (s *Server) Serve(ctx context.Context, listener net.Listener, conf *tls.Config) error {
	conf = conf.Clone()
	conf.NextProtos = []string{"h2", "http/1.1"}
	if conf.MinVersion < tls.VersionTLS12 {
		conf.MinVersion = tls.VersionTLS12
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(s.fromNetwork),
		TLSConfig:         conf,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streamsMax},
		ConnContext:       boundUnsent,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.Stop()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainMax)
	defer cancel()
	err := server.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-failed
	return err
}

// fromNetwork bounds the time that a body and an answer may take; within a process neither waits
// for anybody else. A transport that has no deadlines says so, and then there are none.
func (s *Server) fromNetwork(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if r.Header.Get("Upgrade") == "" {
		_ = control.SetWriteDeadline(time.Now().Add(answerTimeout))
		if r.ContentLength != 0 {
			_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
		}
	}
	s.ServeHTTP(w, r)
}

// boundUnsent makes a connection keep to unsentMax. Where there is no socket below, or one that knows
// no such bound, there is nothing to bound.
func boundUnsent(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if socket, ok := conn.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentMax)
			})
		}
	}
	return ctx
}
