package setpointtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/setpointtest"
)

var configMaps = schema.GroupResource{Resource: "configmaps"}

// withFaults starts a control plane, and returns the client that meets the faults with it.
func withFaults(t *testing.T) (*setpointtest.ControlPlane, *setpointtest.Faults, client.WithWatch) {
	t.Helper()
	faults := setpointtest.NewFaults(1)
	cp := setpointtest.Start(t, setpointtest.Inject(faults), setpointtest.Controllers("none"))
	c, err := client.NewWithWatch(cp.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return cp, faults, c
}

// there says whether the server has the object, whatever a client was told.
func there(t *testing.T, cp *setpointtest.ControlPlane, name string) bool {
	t.Helper()
	err := cp.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, configMap(name))
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// TestEffects has each effect happen to the creation of an object, once.
func TestEffects(t *testing.T) {
	busy := apierrors.NewTooManyRequests("slow down", 7)
	for name, test := range map[string]struct {
		effect  setpointtest.Effect
		want    func(error) bool
		applied bool
	}{
		"refused": {
			setpointtest.Refuse(apierrors.NewConflict(configMaps, "a", errors.New("changed"))), apierrors.IsConflict, false,
		},
		"refused with a delay": {setpointtest.Refuse(busy), func(err error) bool {
			seconds, ok := apierrors.SuggestsClientDelay(err)
			return ok && seconds == 7
		}, false},
		"unreachable": {setpointtest.Unreachable(), func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }, false},
		"reply lost": {setpointtest.LoseReply(), func(err error) bool {
			return errors.Is(err, setpointtest.ErrReplyLost)
		}, true},
		"delayed": {setpointtest.Delay(time.Hour), func(err error) bool { return err == nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cp, faults, c := withFaults(t)
				faults.Add(setpointtest.Rule{Verbs: []string{"create"}, Effect: test.effect, Times: 1})
				began := time.Now()
				// A server that says when to come back is asked again by client-go; not here.
				err := c.Create(t.Context(), configMap("a"))
				if name == "refused with a delay" {
					if err != nil || time.Since(began) < 7*time.Second {
						t.Errorf("after %v: %v, want that client-go comes back after 7s", time.Since(began), err)
					}
					return
				}
				if !test.want(err) {
					t.Errorf("create: %v", err)
				}
				if got := there(t, cp, "a"); got != test.applied {
					t.Errorf("the object is there: %v, want %v", got, test.applied)
				}
				if name == "delayed" && time.Since(began) != time.Hour {
					t.Errorf("it took %v, want an hour", time.Since(began))
				}
				if err := c.Create(t.Context(), configMap("b")); err != nil {
					t.Errorf("the second creation: %v, want no fault any more", err)
				}
			})
		})
	}
}

// TestDelayObeysTheContext gives up before the request was sent.
func TestDelayObeysTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp, faults, c := withFaults(t)
		faults.Add(setpointtest.Rule{Effect: setpointtest.Delay(time.Hour)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Create(ctx, configMap("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("create: %v, want that the deadline is exceeded", err)
		}
		if there(t, cp, "a") {
			t.Error("the object was created all the same")
		}
	})
}

// asked is a server that answers everything with 200 and notes nothing.
type asked struct{}

func (asked) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// TestRulesCover checks which requests a rule is about.
func TestRulesCover(t *testing.T) {
	const pod = "/api/v1/namespaces/ns/pods/p"
	for _, test := range []struct {
		rule     setpointtest.Rule
		request  string
		affected bool
	}{
		{setpointtest.Rule{}, "GET " + pod, true},
		{setpointtest.Rule{}, "GET /apis/apps/v1", false},
		{setpointtest.Rule{}, "GET /version", false},
		{setpointtest.Rule{Verbs: []string{"get"}}, "GET " + pod, true},
		{setpointtest.Rule{Verbs: []string{"list"}}, "GET " + pod, false},
		{setpointtest.Rule{Verbs: []string{"list"}}, "GET /api/v1/pods", true},
		{setpointtest.Rule{Verbs: []string{"watch"}}, "GET /api/v1/pods?watch=true", true},
		{setpointtest.Rule{Verbs: []string{"watch"}}, "GET /api/v1/pods?watch=false", false},
		{setpointtest.Rule{Verbs: []string{"delete"}}, "DELETE " + pod, true},
		{setpointtest.Rule{Verbs: []string{"deletecollection"}}, "DELETE /api/v1/namespaces/ns/pods", true},
		{setpointtest.Rule{Verbs: []string{"update"}, Resources: []string{"pods/status"}}, "PUT " + pod + "/status", true},
		{setpointtest.Rule{Resources: []string{"pods"}}, "PUT " + pod + "/status", false},
		{setpointtest.Rule{Resources: []string{"deployments"}}, "PATCH /apis/apps/v1/namespaces/ns/deployments/d", true},
		{setpointtest.Rule{Resources: []string{"namespaces"}}, "GET /api/v1/namespaces/ns", true},
		{setpointtest.Rule{Resources: []string{"namespaces/finalize"}}, "PUT /api/v1/namespaces/ns/finalize", true},
		{setpointtest.Rule{Namespace: "ns", Name: "p"}, "GET " + pod, true},
		{setpointtest.Rule{Namespace: "other"}, "GET " + pod, false},
		{setpointtest.Rule{Name: "other"}, "GET " + pod, false},
	} {
		faults := setpointtest.NewFaults(1)
		test.rule.Effect = setpointtest.Unreachable()
		faults.Add(test.rule)
		if _, err := ask(faults, test.request); (err != nil) != test.affected {
			t.Errorf("%+v: %s gives %v, want it affected: %v", test.rule, test.request, err, test.affected)
		}
	}
}

// ask sends a request, "GET /api/v1/pods", through the faults.
func ask(faults *setpointtest.Faults, request string) (*http.Response, error) {
	method, url, _ := strings.Cut(request, " ")
	req, err := http.NewRequest(method, "http://server"+url, nil)
	if err != nil {
		return nil, err
	}
	return faults.Transport(asked{}).RoundTrip(req)
}

// TestChanceFollowsFromTheSeed has the same requests fail in whatever order they arrive, others under
// another seed, and about as many as asked for.
func TestChanceFollowsFromTheSeed(t *testing.T) {
	const names, rounds = 20, 10
	outcomes := func(seed uint64, backwards bool) map[string]string {
		faults := setpointtest.NewFaults(seed)
		faults.Add(setpointtest.Rule{Chance: 0.3, Effect: setpointtest.Unreachable()})
		got := map[string]string{}
		for range rounds {
			for i := range names {
				if backwards {
					i = names - 1 - i
				}
				name := fmt.Sprint("p", i)
				mark := "."
				if _, err := ask(faults, "GET /api/v1/namespaces/ns/pods/"+name); err != nil {
					mark = "x"
				}
				got[name] += mark
			}
		}
		return got
	}
	first := outcomes(1, false)
	if diff := cmp.Diff(first, outcomes(1, true)); diff != "" {
		t.Errorf("another order, other outcomes:\n%s", diff)
	}
	if cmp.Equal(first, outcomes(2, false)) {
		t.Error("another seed, the same outcomes")
	}
	failed := 0
	for _, marks := range first {
		failed += strings.Count(marks, "x")
	}
	if failed < 40 || failed > 80 {
		t.Errorf("%d of 200 requests failed, want about 60", failed)
	}
}

// TestRulesAreTaken checks their order and their end.
func TestRulesAreTaken(t *testing.T) {
	faults := setpointtest.NewFaults(1)
	remove := faults.Add(setpointtest.Rule{Effect: setpointtest.Unreachable(), Times: 1})
	faults.Add(setpointtest.Rule{Effect: setpointtest.LoseReply()})
	want := []error{syscall.ECONNREFUSED, setpointtest.ErrReplyLost, setpointtest.ErrReplyLost}
	for i, want := range want {
		if _, err := ask(faults, "GET /api/v1/pods"); !errors.Is(err, want) {
			t.Errorf("request %d: %v, want %v", i, err, want)
		}
	}
	remove()
	for _, bad := range []setpointtest.Rule{{}, {Effect: setpointtest.LoseReply(), Chance: 1.5}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("rule %+v was taken", bad)
				}
			}()
			faults.Add(bad)
		}()
	}
}

// TestWatchesFreeze reads the past until it thaws, and misses nothing.
func TestWatchesFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp, faults, c := withFaults(t)
		w := watchConfigMaps(t, c)
		create(t, cp.Client, configMap("a"))
		next(t, w, "a")

		thawOthers := faults.FreezeWatches("pods")
		create(t, cp.Client, configMap("b"))
		next(t, w, "b") // another resource's freeze
		thawOthers()

		thaw := faults.FreezeWatches("configmaps")
		create(t, cp.Client, configMap("c"))
		<-time.After(time.Hour)
		synctest.Wait()
		select {
		case event := <-w.ResultChan():
			t.Errorf("a frozen watch delivers %s", event.Type)
		default:
		}
		thaw()
		next(t, w, "c")

		faults.FreezeWatches() // all, and for ever: the test must end all the same
		create(t, cp.Client, configMap("d"))
	})
}

// TestWatchesDrop ends one, and lets the next begin.
func TestWatchesDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp, faults, c := withFaults(t)
		w := watchConfigMaps(t, c)
		faults.DropWatches("pods")
		create(t, cp.Client, configMap("a"))
		next(t, w, "a")
		faults.DropWatches("configmaps")
		if event, open := <-w.ResultChan(); open && event.Type != watch.Error {
			t.Errorf("a dropped watch delivers %s", event.Type)
		}
		next(t, watchConfigMaps(t, c), "a")
	})
}

func watchConfigMaps(t *testing.T, c client.WithWatch) watch.Interface {
	t.Helper()
	w, err := c.Watch(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("default"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// next waits for an event, and checks whose it is.
func next(t *testing.T, w watch.Interface, name string) {
	t.Helper()
	event, open := <-w.ResultChan()
	if obj, ok := event.Object.(*corev1.ConfigMap); !open || !ok || obj.Name != name {
		t.Fatalf("the watch delivers %s %v (open: %v), want %s", event.Type, event.Object, open, name)
	}
}
