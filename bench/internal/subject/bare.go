package subject

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// bare is a server that does nothing but HTTPS: it reads a body and sends it back, or sends what it
// was given last. It is what is left when all work is taken away. Like the other subjects it is a
// process of its own: this program, started again.
type bare struct {
	processes
	dir string
}

// BareServer is the argument with which a program that measures a bare server is started again, to
// call ServeBare with the argument after it.
const BareServer = "bare-server"

// NewBare returns the bare server; dir is its folder.
func NewBare(dir string) Subject { return &bare{dir: dir} }

func (b *bare) Start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	self, err := os.Executable()
	if err == nil {
		err = b.run(b.dir, self, BareServer, b.addressFile())
	}
	if err == nil {
		err = untilReady(ctx, b)
	}
	return time.Since(began), err
}

func (b *bare) Lists() bool { return false }

func (b *bare) addressFile() string { return filepath.Join(b.dir, "address") }

func (b *bare) Client() (*http.Client, string, error) {
	address, err := os.ReadFile(b.addressFile())
	if err == nil && len(address) == 0 {
		err = fmt.Errorf("%s is empty", b.addressFile())
	}
	return transport(&tls.Config{InsecureSkipVerify: true}, 64), string(address), err
}

// ServeBare runs the server and writes its address to a file; it ends with the process.
func ServeBare(addressFile string) error {
	var last sync.Map
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			body, _ := last.LoadOrStore("body", []byte("ok"))
			_, _ = w.Write(body.([]byte))
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		last.Store("body", body)
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = w.Write(body)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	// Written whole or not at all: the client asks for the file until it is there.
	if err := os.WriteFile(addressFile+".new", []byte(srv.URL), 0o600); err != nil {
		return err
	}
	if err := os.Rename(addressFile+".new", addressFile); err != nil {
		return err
	}
	select {}
}

// transport is the client of every load: HTTP/1.1, a connection for each concurrent request, of
// which as many are kept as there are clients.
func transport(conf *tls.Config, clients int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     conf,
		MaxIdleConnsPerHost: clients,
	}}
}
