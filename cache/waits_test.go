package cache_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cache"
)

func TestWaitForEndsWithTheCache(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.names()
		w.server.Hold("pods")
		a := pod("a")
		w.create(a)
		stopped := time.AfterFunc(time.Minute, w.stop)
		defer stopped.Stop()
		for _, when := range []string{"while it waits", "before"} {
			if err := w.cache.WaitFor(w.Context(), a, w.server.Revision()); err == nil || !strings.Contains(err.Error(), "stopped") {
				w.Errorf("the cache was stopped %s: error is %v", when, err)
			}
		}
	})
}

// slowMapper has not heard of anything but pods, and finds out at its leisure.
type slowMapper struct {
	meta.RESTMapper
	answer chan struct{}
}

func (m slowMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if gk.Kind != "Pod" {
		<-m.answer
	}
	return m.RESTMapper.RESTMapping(gk, versions...)
}

// TestKindThatIsSlowToBeFoundHoldsUpNoOther reads pods while discovery of another kind hangs.
func TestKindThatIsSlowToBeFoundHoldsUpNoOther(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.create(pod("a"))
		mapper := slowMapper{w.server.Mapper(), make(chan struct{})}
		c, err := cache.New(w.server.Config(), cache.Options{Options: crcache.Options{Mapper: mapper}})
		if err != nil {
			w.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		ended := make(chan error, 2)
		go func() { ended <- c.Start(ctx) }()
		synctest.Wait()
		go func() { ended <- c.List(ctx, &corev1.ConfigMapList{}) }()
		synctest.Wait()
		read := make(chan error, 1)
		go func() { read <- c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "a"}, &corev1.Pod{}) }()
		synctest.Wait()
		select {
		case err := <-read:
			if err != nil {
				w.Error(err)
			}
		default:
			w.Error("a pod cannot be read while another kind is sought")
		}
		close(mapper.answer)
		synctest.Wait()
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				w.Error(err)
			}
		}
	})
}

// TestRevisionsAreThoseOfAllVersions reads a kind in one version and is asked for another, in which
// somebody has written.
func TestRevisionsAreThoseOfAllVersions(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		if err := w.cache.List(w.Context(), &autoscalingv2.HorizontalPodAutoscalerList{}); err != nil {
			w.Fatal(err)
		}
		written := autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")
		reached := make(chan struct{}, 1)
		next := w.server.Revision() + 1
		if w.cache.AtRevision(written, next, func() { reached <- struct{}{} }) {
			w.Error("reads of another version are said to be newer than the server is")
		}
		a := &autoscalingv2.HorizontalPodAutoscaler{}
		a.Namespace, a.Name = "default", "a"
		w.create(a)
		<-reached
		if !w.cache.AtRevision(written, next, nil) || w.cache.Held(written, client.ObjectKeyFromObject(a)) != a.UID {
			w.Error("what was written in another version is not seen")
		}
	})
}
