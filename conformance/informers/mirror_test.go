package informers_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// mirror is what an informer has told its handler: the revision of each object that there is.
type mirror struct {
	t        *testing.T
	informer cache.SharedIndexInformer
	told     chan struct{} // holds one when something was told

	mu      sync.Mutex
	objects map[string]uint64
	wrong   []string // what it should not have told
}

// newMirror runs an informer until the test ends.
func newMirror(t *testing.T, informer cache.SharedIndexInformer) *mirror {
	t.Helper()
	m := &mirror{t: t, informer: informer, told: make(chan struct{}, 1), objects: map[string]uint64{}}
	if _, err := informer.AddEventHandler(m); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return m
}

func (m *mirror) OnAdd(obj any, _ bool) {
	m.tell(obj, func(o metav1.Object, revision uint64) {
		if _, ok := m.objects[o.GetName()]; ok {
			m.wrong = append(m.wrong, o.GetName()+" was added twice")
		}
		m.objects[o.GetName()] = revision
	})
}

func (m *mirror) OnUpdate(_, obj any) {
	m.tell(obj, func(o metav1.Object, revision uint64) {
		if before, ok := m.objects[o.GetName()]; !ok || revision < before {
			m.wrong = append(m.wrong, o.GetName()+" went back, or was not there")
		}
		m.objects[o.GetName()] = revision
	})
}

func (m *mirror) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	m.tell(obj, func(o metav1.Object, _ uint64) {
		if _, ok := m.objects[o.GetName()]; !ok {
			m.wrong = append(m.wrong, o.GetName()+" was deleted twice")
		}
		delete(m.objects, o.GetName())
	})
}

func (m *mirror) tell(obj any, what func(metav1.Object, uint64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, err := meta.Accessor(obj)
	if err != nil {
		m.wrong = append(m.wrong, err.Error())
		return
	}
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil || (o.GetName() == "a" && o.GetLabels()["seen"] != "yes") {
		m.wrong = append(m.wrong, o.GetName()+" is not what was written")
	}
	what(o, revision)
	select {
	case m.told <- struct{}{}:
	default:
	}
}

// await returns when the handler has been told of these objects and no others, and fails the test if it
// was told what it should not have been, or if the informer's own store holds anything else.
func (m *mirror) await(what string, names ...string) {
	m.t.Helper()
	late := time.After(3 * time.Minute) // an informer that has failed waits for up to 30 s
	for !slices.Equal(m.names(), names) {
		select {
		case <-m.told:
		case <-late:
			m.t.Fatalf("%s: told of %v, want %v", what, m.names(), names)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.wrong) > 0 {
		m.t.Fatalf("%s: %v", what, m.wrong)
	}
	keys := m.informer.GetStore().ListKeys()
	slices.Sort(keys)
	for i := range keys {
		_, keys[i], _ = cache.SplitMetaNamespaceKey(keys[i])
	}
	if diff := cmp.Diff(names, keys); diff != "" {
		m.t.Fatalf("%s: the store (-want +got):\n%s", what, diff)
	}
}

func (m *mirror) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.objects))
}
