package setpoint_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/apiserver"
)

// What controllers have yet to look at is shown to who may do everything, and to nobody else.
func TestQueuesAreShown(t *testing.T) {
	cp, err := setpoint.New(setpoint.Options{Controllers: []string{"namespace"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	if err := cp.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask := func(user string) ([]byte, error) {
		config := rest.CopyConfig(cp.RESTConfig())
		config.GroupVersion, config.NegotiatedSerializer = &corev1.SchemeGroupVersion, scheme.Codecs
		config.Impersonate.UserName = user
		c, err := rest.UnversionedRESTClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		return c.Get().AbsPath(apiserver.QueuesPath).DoRaw(t.Context())
	}
	raw, err := ask("")
	for apierrors.IsNotFound(err) && t.Context().Err() == nil { // until there are controllers
		raw, err = ask("")
	}
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Kind  string
		Items []struct {
			Controller string
			Keys       []struct{ Key, State string }
			Stats      struct{ Adds *int }
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	if list.Kind != "QueueList" || len(list.Items) != 1 || list.Items[0].Controller == "" || list.Items[0].Stats.Adds == nil {
		t.Errorf("the answer is %s", raw)
	}
	if _, err := ask("jane"); !apierrors.IsForbidden(err) {
		t.Errorf("jane is shown the queues: %v", err)
	}
}
