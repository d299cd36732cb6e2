package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

func newEcho() *cobra.Command {
	e := &echo{
		greeting: cmp.Or(os.Getenv("GREETING"), "hello"),
		hostname: cmp.Or(os.Getenv("HOSTNAME"), "localhost"),
	}
	addr := net.JoinHostPort(cmp.Or(os.Getenv("POD_IP"), "127.0.0.1"), cmp.Or(os.Getenv("PORT"), "8080"))
	cmd := &cobra.Command{
		Use:   "echo",
		Short: "A small HTTP server for the examples",
		Long: `A small HTTP server to declare as a workload. It listens on $POD_IP:$PORT (127.0.0.1:8080 where they
are not set) and answers

  GET  /         $GREETING, the pod's name and the process id
  GET  /ready    200 until it is asked to end, then 503: a readiness probe
  GET  /healthz  200 until it is asked to fail, then 500: a liveness probe
  POST /fail     makes /healthz fail from now on

On SIGTERM it goes on answering for --drain, so that whoever still sends requests here has time to
learn that it is going, finishes the requests under way, and ends.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd.Context(), addr) },
	}
	cmd.Flags().StringVar(&addr, "listen", addr, "`address` to listen on")
	cmd.Flags().DurationVar(&e.drain, "drain", 2*time.Second, "how long to go on answering after SIGTERM")
	return cmd
}

// echo is the server of the examples.
type echo struct {
	greeting, hostname string
	drain              time.Duration
	ending, failing    atomic.Bool
}

func (e *echo) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s from %s, process %d\n", e.greeting, e.hostname, os.Getpid())
	})
	mux.HandleFunc("GET /ready", unless(&e.ending, http.StatusServiceUnavailable))
	mux.HandleFunc("GET /healthz", unless(&e.failing, http.StatusInternalServerError))
	mux.HandleFunc("POST /fail", func(w http.ResponseWriter, _ *http.Request) {
		e.failing.Store(true)
		fmt.Fprintln(w, "failing from now on")
	})
	return mux
}

// unless answers ok, or the code once the switch is on.
func unless(on *atomic.Bool, code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if on.Load() {
			http.Error(w, http.StatusText(code), code)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// run serves until ctx is done, and then for the drain.
func (e *echo) run(ctx context.Context, addr string) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("%s: listening on %s\n", e.hostname, listener.Addr())
	server := &http.Server{Handler: e.handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	fmt.Printf("%s: asked to end, answering for another %s\n", e.hostname, e.drain)
	e.ending.Store(true)
	time.Sleep(e.drain)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(grace)
	if served := <-served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
