package benchmarks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	upstreamcache "k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cache"
)

// held is a cache of pods, ours or client-go's.
type held interface {
	get(name string) *corev1.Pod
	byIndex(app string) int
	byLabel(app string) int
}

type caches struct {
	name string
	make func(b *testing.B, web *pods, onUpdate func(*corev1.Pod)) held
}

var peers = []caches{{"setpoint", newOurs}, {"client-go", newTheirs}, {"controller-runtime", newRuntimes}}

func newOurs(b *testing.B, web *pods, onUpdate func(*corev1.Pod)) held {
	return newRuntime(b, web, onUpdate, cache.NewFunc)
}

func newRuntimes(b *testing.B, web *pods, onUpdate func(*corev1.Pod)) held {
	return newRuntime(b, web, onUpdate, crcache.New)
}

// runtimeCache is a cache with controller-runtime's interface.
type runtimeCache struct{ crcache.Cache }

func newRuntime(b *testing.B, web *pods, onUpdate func(*corev1.Pod), fn crcache.NewCacheFunc) held {
	c, err := fn(&rest.Config{Host: "http://pods", Transport: web}, crcache.Options{Mapper: podMapper()})
	if err != nil {
		b.Fatal(err)
	}
	app := func(obj client.Object) []string { return []string{obj.GetLabels()["app"]} }
	if err := c.IndexField(b.Context(), &corev1.Pod{}, "app", app); err != nil {
		b.Fatal(err)
	}
	i, err := c.GetInformer(b.Context(), &corev1.Pod{})
	if err != nil {
		b.Fatal(err)
	}
	r, err := i.AddEventHandler(handler(onUpdate))
	if err != nil {
		b.Fatal(err)
	}
	go c.Start(b.Context())
	if !upstreamcache.WaitForCacheSync(b.Context().Done(), r.HasSynced) {
		b.Fatal("not synced")
	}
	return runtimeCache{c}
}

func podMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	return m
}

func (o runtimeCache) get(name string) *corev1.Pod {
	var pod corev1.Pod
	if o.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, &pod, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	return &pod
}

func (o runtimeCache) byIndex(app string) int { return o.list(client.MatchingFields{"app": app}) }
func (o runtimeCache) byLabel(app string) int { return o.list(client.MatchingLabels{"app": app}) }

func (o runtimeCache) list(by client.ListOption) int {
	var all corev1.PodList
	if o.List(context.Background(), &all, by, client.UnsafeDisableDeepCopy) != nil {
		return -1
	}
	return len(all.Items)
}

type theirs struct {
	informers.SharedInformerFactory
}

func newTheirs(b *testing.B, web *pods, onUpdate func(*corev1.Pod)) held {
	set, err := kubernetes.NewForConfig(&rest.Config{Host: "http://pods", Transport: web})
	if err != nil {
		b.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(set, 0)
	app := func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Labels["app"]}, nil }
	if err := factory.Core().V1().Pods().Informer().AddIndexers(upstreamcache.Indexers{"app": app}); err != nil {
		b.Fatal(err)
	}
	r, err := factory.Core().V1().Pods().Informer().AddEventHandler(handler(onUpdate))
	if err != nil {
		b.Fatal(err)
	}
	factory.Start(b.Context().Done())
	if !upstreamcache.WaitForCacheSync(b.Context().Done(), r.HasSynced) {
		b.Fatal("not synced")
	}
	return theirs{factory}
}

func (t theirs) get(name string) *corev1.Pod {
	pod, err := t.Core().V1().Pods().Lister().Pods("default").Get(name)
	if err != nil {
		return nil
	}
	return pod
}

func (t theirs) byIndex(app string) int {
	all, err := t.Core().V1().Pods().Informer().GetIndexer().ByIndex("app", app)
	if err != nil {
		return -1
	}
	return len(all)
}

func (t theirs) byLabel(app string) int {
	all, err := t.Core().V1().Pods().Lister().List(labels.SelectorFromSet(labels.Set{"app": app}))
	if err != nil {
		return -1
	}
	return len(all)
}

func handler(onUpdate func(*corev1.Pod)) upstreamcache.ResourceEventHandler {
	return upstreamcache.ResourceEventHandlerFuncs{UpdateFunc: func(_, pod any) { onUpdate(pod.(*corev1.Pod)) }}
}

const podsHeld = 10_000

// BenchmarkCacheMemory says what a pod of 3 KB takes in memory: when handlers have been told of it
// and nobody has read it, and when everybody is read all the time.
func BenchmarkCacheMemory(b *testing.B) {
	for _, use := range []struct {
		name string
		read int
	}{{"held", 0}, {"tenth-read", podsHeld / 10}, {"all-read", podsHeld}} {
		for _, peer := range peers {
			b.Run(use.name+"/"+peer.name, func(b *testing.B) {
				before := heap()
				c := peer.make(b, newPods(podsHeld), func(*corev1.Pod) {})
				for i := range use.read {
					c.get(fmt.Sprint("pod-", i))
				}
				for b.Loop() {
					runtime.KeepAlive(c)
				}
				b.ReportMetric(float64(heap()-before)/podsHeld, "B/pod")
				b.ReportMetric(float64(len(podJSON(0, 1))), "B-JSON/pod")
				runtime.KeepAlive(c)
			})
		}
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// measure runs the loop of a benchmark, and says what it takes of the processor: on a machine with
// other work that is what can be compared.
func measure(b *testing.B, fn func(i int)) {
	b.ReportAllocs()
	before := processorTime(b)
	for i := 0; b.Loop(); i++ {
		fn(i)
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCacheGet reads one of many pods, without a copy.
func BenchmarkCacheGet(b *testing.B) {
	for _, peer := range peers {
		b.Run(peer.name, func(b *testing.B) {
			c := peer.make(b, newPods(podsHeld), func(*corev1.Pod) {})
			measure(b, func(int) {
				if c.get("pod-5000") == nil {
					b.Fatal("no pod")
				}
			})
		})
	}
}

// BenchmarkCacheList selects ten pods of many, by an index that was asked for and by a label.
func BenchmarkCacheList(b *testing.B) {
	for by, list := range map[string]func(held, string) int{"index": held.byIndex, "label": held.byLabel} {
		for _, peer := range peers {
			b.Run(by+"/"+peer.name, func(b *testing.B) {
				c := peer.make(b, newPods(podsHeld), func(*corev1.Pod) {})
				measure(b, func(int) {
					if n := list(c, "web-7"); n != 10 {
						b.Fatal(n)
					}
				})
			})
		}
	}
}

// stride has pods of one template change far from each other.
const stride = 7919

// BenchmarkCacheEvent is the way of a change from the bytes that a server sent to the handler: of
// pods that change again and again, and of pods that have not changed or been read for long, whose
// former state has to be decoded too.
func BenchmarkCacheEvent(b *testing.B) {
	for name, changing := range map[string]int{"again": 100, "seldom": podsHeld} {
		for _, peer := range peers {
			b.Run(name+"/"+peer.name, func(b *testing.B) {
				told := make(chan string, 1)
				web := newPods(podsHeld)
				peer.make(b, web, func(pod *corev1.Pod) { told <- pod.ResourceVersion })
				revision := podsHeld
				change := func(i int) {
					revision++
					web.change(i, revision)
					if got := <-told; got != fmt.Sprint(revision) {
						b.Fatal(got)
					}
				}
				if changing < podsHeld {
					for i := range changing {
						change(i)
					}
				}
				measure(b, func(i int) { change(i * stride % changing) })
			})
		}
	}
}

// pods is a server that has pods, and nothing else, as a transport without a network.
type pods struct {
	n       int
	changes *io.PipeWriter
}

func newPods(n int) *pods { return &pods{n: n} }

func (p *pods) RoundTrip(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	if r.URL.Query().Get("sendInitialEvents") != "true" {
		return nil, fmt.Errorf("%s was not expected", r.URL)
	}
	p.changes = w
	go func() {
		for i := range p.n {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", podJSON(i, i+1))
		}
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d",`+
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", p.n)
	}()
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: 200, Header: header, Body: body, Request: r}, nil
}

func (p *pods) change(i, revision int) {
	fmt.Fprintf(p.changes, `{"type":"MODIFIED","object":%s}`+"\n", podJSON(i, revision))
}

// podJSON is a pod of 3 KB, as a server sends it. Each ten are of one template, which says their
// environment; a volume of each, and where it is mounted, is of a name of its own, as that of a token is.
func podJSON(i, revision int) string {
	return fmt.Sprintf(podText, i, revision, i/10, i%50)
}

var podText = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%[1]d","namespace":"default","uid":"8f0a3a2e-0d4e-4a57",` +
	`"resourceVersion":"%[2]d","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"web-%[3]d","tier":"front"},` +
	`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u-%[3]d","controller":true,"blockOwnerDeletion":true}],` +
	`"managedFields":[{"manager":"setpoint","operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1",` +
	`"fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:tier":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},` +
	`"f:env":{},"f:image":{},"f:name":{},"f:ports":{},"f:resources":{}}},"f:dnsPolicy":{},"f:restartPolicy":{}}}}]},` +
	`"spec":{"volumes":[{"name":"data","emptyDir":{}},{"name":"token-%[1]d","emptyDir":{}}],"containers":[{"name":"web","image":"registry.example.com/team/web:1.2.3",` +
	`"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"OF","value":"web-%[3]d"},` +
	strings.TrimSuffix(strings.Repeat(`{"name":"SOME_VARIABLE","value":"some value of a usual length"},`, 18), ",") +
	`],"resources":{"limits":{"memory":"128Mi"},"requests":{"cpu":"100m","memory":"64Mi"}},` +
	`"volumeMounts":[{"name":"data","mountPath":"/data"},{"name":"token-%[1]d","mountPath":"/token"}],"terminationMessagePath":"/dev/termination-log",` +
	`"terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always",` +
	`"terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","nodeName":"node-%[4]d","securityContext":{},` +
	`"schedulerName":"default-scheduler","enableServiceLinks":true},"status":{"phase":"Running","conditions":[` +
	`{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-02T03:04:06Z"}],` +
	`"podIP":"127.1.0.7","startTime":"2026-01-02T03:04:05Z","qosClass":"Burstable"}}`
