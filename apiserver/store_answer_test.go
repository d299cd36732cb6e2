package apiserver_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
)

// wire is between a store and etcd.
type wire struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool          // whoever calls is hung up on
	held  chan struct{} // closed when what is said passes again; nil while it does
	conns map[net.Conn]bool
	group sync.WaitGroup
}

func newWire(t *testing.T, target string) *wire {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, target: target, conns: map[net.Conn]bool{}}
	w.group.Go(w.serve)
	t.Cleanup(func() {
		listener.Close()
		w.set(true, false)
		w.group.Wait()
	})
	return w
}

// set says whether callers are hung up on, and whether what is said is held back.
func (w *wire) set(cut, held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut = cut; cut {
		for conn := range w.conns {
			conn.Close()
		}
	}
	if w.held != nil {
		close(w.held)
		w.held = nil
	}
	if held {
		w.held = make(chan struct{})
	}
}

func (w *wire) serve() {
	for {
		from, err := w.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", w.target)
		if err != nil || !w.keep(from, to) {
			from.Close()
			continue
		}
		w.group.Go(func() { w.copy(from, to) })
		w.group.Go(func() { w.copy(to, from) })
	}
}

func (w *wire) keep(from, to net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		to.Close()
		return false
	}
	w.conns[from], w.conns[to] = true, true
	return true
}

func (w *wire) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	for part := make([]byte, 32<<10); ; {
		n, err := from.Read(part)
		w.mu.Lock()
		held := w.held
		w.mu.Unlock()
		if held != nil {
			<-held
		}
		if _, failed := to.Write(part[:n]); err != nil || failed != nil {
			return
		}
	}
}

// Etcd stops answering, and is gone: each request is told so in time, as Kubernetes' server tells it, health
// says what is wrong, and when etcd answers again so does everything, a watch from before included.
func TestEtcdThatDoesNotAnswer(t *testing.T) {
	const timeout = 3 * time.Second
	etcdAt := etcdtest.Start(t)
	line := newWire(t, etcdAt)
	a := newAPI(t, func(o *apiserver.Options) {
		s, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{line.listener.Addr().String()}, Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		o.Store = store.Store(s)
	})
	first := a.want(http.StatusCreated, "POST "+cms, "application/json", oneMap("one"))
	watch, err := a.client.Get("http://setpoint" + cms + "?watch=1&resourceVersion=" + first.rev())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	for _, fault := range []struct {
		name      string
		cut, held bool
	}{{name: "stopped", held: true}, {name: "gone", cut: true}} {
		t.Run(fault.name, func(t *testing.T) {
			line.set(fault.cut, fault.held)
			var asking sync.WaitGroup
			for _, request := range [][3]string{
				{"GET " + cms + "/one"}, {"GET " + cms}, {"GET " + cms + "?limit=1"}, {"GET " + cms + "?watch=1"},
				{"GET " + cms + "?watch=1&resourceVersion=0"},
				{"GET " + cms + "?resourceVersion=999999999&resourceVersionMatch=Exact"},
				{"POST " + cms, "application/json", oneMap("two")},
				{"POST " + cms + "?dryRun=All", "application/json", oneMap("two")},
				{"PUT " + cms + "/one", "application/json", oneMap("one")},
				{"PATCH " + cms + "/one", "application/merge-patch+json", `{"data":{"b":"2"}}`},
				{"PATCH " + cms + "/three?fieldManager=me", "application/apply-patch+yaml", oneMap("three")},
				{"DELETE " + cms + "/one"}, {"DELETE " + cms},
				{"POST " + apiserver.AtomicPath, "application/json", `{"operations":[{"verb":"create","object":` + oneMap("four") + `}]}`},
			} {
				asking.Go(func() {
					r := a.do(request[0], request[1], request[2])
					if r.code != http.StatusGatewayTimeout || r.str("reason") != "Timeout" ||
						!strings.Contains(r.text, "no answer from etcd") {
						t.Errorf("%s: %d %s", request[0], r.code, r.text)
					}
				})
			}
			for _, path := range []string{"/readyz", "/livez", "/healthz"} {
				asking.Go(func() {
					r := a.do("GET "+path, "", "")
					if r.code != http.StatusInternalServerError || !strings.Contains(r.text, "[-]store failed: no answer in") {
						t.Errorf("%s: %d %s", path, r.code, r.text)
					}
				})
			}
			asking.Wait()
			line.set(false, false)
			for end := time.Now().Add(patience); a.do("GET /readyz", "", "").code != http.StatusOK; {
				if time.Now().After(end) {
					t.Fatal("etcd answers again, and the server is not ready")
				}
			}
			a.want(http.StatusOK, "GET "+cms+"/one", "", "")
		})
	}
	a.want(http.StatusOK, "PATCH "+cms+"/one", "application/merge-patch+json", `{"data":{"c":"3"}}`)
	if said, err := io.ReadAll(io.LimitReader(watch.Body, 20)); err != nil || !strings.Contains(string(said), `"MODIFIED"`) {
		t.Errorf("the watch from before says %q, %v", said, err)
	}
}

func oneMap(name string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"a":"1"}}`
}
