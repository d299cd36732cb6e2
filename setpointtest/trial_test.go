package setpointtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

// A copier makes one copy of each config map that is labelled source.
type copier struct {
	client.Client
	live client.Reader
	// copy sees to it that there is one.
	copy func(ctx context.Context, c *copier, source *corev1.ConfigMap) (reconcile.Result, error)
	made map[string]bool // what this process knows to have made
}

const sources = 12

func source(i int) *corev1.ConfigMap {
	cm := configMap(fmt.Sprint("source-", i))
	cm.Labels = map[string]string{"source": "true"}
	return cm
}

func (c *copier) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var s corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &s); err != nil || s.Labels["source"] == "" {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return c.copy(ctx, c, &s)
}

// copyOf is a copy with a name that the server chooses.
func copyOf(s *corev1.ConfigMap) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, GenerateName: "copy-", Labels: map[string]string{"of": s.Name},
	}}
}

// copies counts the copies of each source.
func copies(ctx context.Context, c client.Reader) (map[string]int, error) {
	var list corev1.ConfigMapList
	err := c.List(ctx, &list, client.InNamespace("default"), client.HasLabels{"of"})
	counts := map[string]int{}
	for i := range list.Items {
		counts[list.Items[i].Labels["of"]]++
	}
	return counts, err
}

// named is right: a copy's name follows from that of the source.
func named(ctx context.Context, c *copier, s *corev1.ConfigMap) (reconcile.Result, error) {
	cm := copyOf(s)
	cm.GenerateName, cm.Name = "", "copy-of-"+s.Name
	if err := c.Get(ctx, client.ObjectKeyFromObject(cm), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	err := c.Create(ctx, cm)
	if apierrors.IsAlreadyExists(err) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, err
}

// late is right, and takes its time.
func late(ctx context.Context, c *copier, s *corev1.ConfigMap) (reconcile.Result, error) {
	if age := time.Since(s.CreationTimestamp.Time); age < 10*time.Minute {
		return reconcile.Result{RequeueAfter: 10*time.Minute - age}, nil
	}
	return named(ctx, c, s)
}

// idle makes nothing.
func idle(context.Context, *copier, *corev1.ConfigMap) (reconcile.Result, error) {
	return reconcile.Result{}, nil
}

// restless writes on every pass, to something that wakes nobody.
func restless(ctx context.Context, c *copier, s *corev1.ConfigMap) (reconcile.Result, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "seen-" + s.Name}}
	err := c.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		err = c.Patch(ctx, secret, client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"metadata":{"annotations":{"at":%q}}}`, time.Now())))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return named(ctx, c, s)
}

// forgetful asks what became of a creation that failed, and remembers what it has made, but only as long as it lives.
func forgetful(ctx context.Context, c *copier, s *corev1.ConfigMap) (reconcile.Result, error) {
	if c.made[s.Name] {
		return reconcile.Result{}, nil
	}
	if err := c.Create(ctx, copyOf(s)); err != nil {
		made, listing := copies(ctx, c.live)
		for listing != nil && ctx.Err() == nil {
			made, listing = copies(ctx, c.live)
		}
		if made[s.Name] == 0 {
			return reconcile.Result{}, err
		}
	}
	c.made[s.Name] = true
	return reconcile.Result{}, nil
}

// credulous looks what there is when it starts, and believes that what failed did not happen.
func credulous(ctx context.Context, c *copier, s *corev1.ConfigMap) (reconcile.Result, error) {
	if _, known := c.made[s.Name]; !known {
		made, err := copies(ctx, c.live)
		if err != nil {
			return reconcile.Result{}, err
		}
		c.made[s.Name] = made[s.Name] > 0
	}
	if c.made[s.Name] {
		return reconcile.Result{}, nil
	}
	err := c.Create(ctx, copyOf(s))
	c.made[s.Name] = err == nil
	return reconcile.Result{}, err
}

// vandal writes to what the cache shares.
func vandal(ctx context.Context, c *copier, s *corev1.ConfigMap) (reconcile.Result, error) {
	var shared corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKeyFromObject(s), &shared, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	shared.Labels["looked-at"] = "true"
	return named(ctx, c, s)
}

var copiers = map[string]struct {
	copy func(context.Context, *copier, *corev1.ConfigMap) (reconcile.Result, error)
	says string // what its trial says; "" if it is right
}{
	"named":     {named, ""},
	"late":      {late, ""},
	"idle":      {idle, "source-0 has 0 copies"},
	"restless":  {restless, "at rest"},
	"forgetful": {forgetful, "copies, want one"},
	"credulous": {credulous, "copies, want one"},
	"vandal":    {vandal, "looked-at"},
}

// copierVariable names the copier that a process of this test tries.
const copierVariable = "SETPOINT_TEST_COPIER"

// TestTrialJudges has trials find what is wrong with controllers, each in a process of its own, and find nothing
// wrong with what is right.
func TestTrialJudges(t *testing.T) {
	if name := os.Getenv(copierVariable); name != "" {
		tryCopier(t, name)
		return
	}
	for name, c := range copiers {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTrialJudges$")
			cmd.Env = append(os.Environ(), copierVariable+"="+name)
			out, err := cmd.CombinedOutput()
			if (err == nil) != (c.says == "") || !strings.Contains(string(out), c.says) {
				t.Errorf("%v, want it to say %q; it said\n%s", err, c.says, out)
			}
		})
	}
}

func tryCopier(t *testing.T, name string) {
	setpointtest.Trial{
		Setup: func(mgr *controller.Manager) error {
			c := &copier{
				Client: mgr.GetClient(), live: mgr.GetAPIReader(), copy: copiers[name].copy, made: map[string]bool{},
			}
			return controller.ManagedBy(mgr).Named("copier").For(&corev1.ConfigMap{}).Complete(c)
		},
		Steps: []setpointtest.Step{{
			Name: "copies",
			Do: func(ctx context.Context, c client.Client) error {
				for i := range sources {
					if err := c.Create(ctx, source(i)); err != nil {
						return err
					}
				}
				return nil
			},
			Holds: func(ctx context.Context, c client.Client) error {
				made, err := copies(ctx, c)
				for i := range sources {
					if n := made[source(i).Name]; err == nil && n != 1 {
						err = fmt.Errorf("source-%d has %d copies, want one", i, n)
					}
				}
				return err
			},
		}},
		Seeds: []uint64{1, 2}, // the second kills the process early
	}.Run(t)
}
