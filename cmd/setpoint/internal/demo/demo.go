// Package demo tells what a control plane is for, on the machine it runs on: it declares a service,
// kills one of its processes, rolls out a change, kills the control plane in the middle of that,
// and takes everything away again. What it prints is measured while it happens.
package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cmd/setpoint/internal/probe"
)

// appName is what the example calls its deployment and its service.
const appName = "web"

// stepMax bounds each step of the story: a service of three processes settles in seconds.
const stepMax = time.Minute

// Options say what to demonstrate, and where.
type Options struct {
	Manifest []byte // the example, in YAML: a deployment and a service named "web"
	Listen   string // address of the control plane
	Out      *os.File
}

type demo struct {
	manifest []byte
	screen   *screen
	plane    *plane
	client   client.Client
	probe    *probe.Probe
}

// Run tells the story and cleans up after it, whatever happens. It returns what went wrong.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp("", "setpoint-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := &demo{
		manifest: o.Manifest,
		screen:   newScreen(o.Out),
		plane:    &plane{dir: dir, listen: o.Listen},
	}
	defer d.plane.stop()
	defer d.cleanUp(ctx)
	for _, chapter := range []struct {
		title string
		tell  func(context.Context) error
	}{
		{"A control plane, from nothing", d.begin},
		{"Declare a service: three processes, always ready", d.declare},
		{"Kill one of its processes", d.killProcess},
		{"Roll out a change, and kill the control plane in the middle", d.rollOut},
		{"Delete it", d.remove},
	} {
		d.screen.chapter(chapter.title)
		if err := chapter.tell(ctx); err != nil {
			return fmt.Errorf("%s: %w", chapter.title, err)
		}
	}
	d.screen.chapter("Declared, made true, kept true, and gone.")
	return nil
}

func (d *demo) begin(ctx context.Context) error {
	took, err := d.plane.start(ctx)
	if err != nil {
		return err
	}
	d.screen.say("setpoint up: first answer after %s", took.Round(time.Millisecond))
	d.client, err = d.plane.client()
	return err
}

func (d *demo) declare(ctx context.Context) error {
	began := time.Now()
	if err := d.apply(ctx); err != nil {
		return err
	}
	if err := d.settle(ctx, "the deployment is available", d.settled); err != nil {
		return err
	}
	d.screen.say("three processes answer, %s after they were declared", since(began))
	return nil
}

// killProcess kills a workload's process and waits until the world is as declared again.
func (d *demo) killProcess(ctx context.Context) error {
	pods, err := d.pods(ctx)
	if err != nil {
		return err
	}
	victim := pods[0]
	pid, err := probe.Process(ctx, endpoint(&victim))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	began := time.Now()
	d.screen.say("kill -9 %d, which was %s", pid, victim.Name)
	replaced := func(ctx context.Context) (bool, error) {
		var pod corev1.Pod
		if err := d.client.Get(ctx, client.ObjectKeyFromObject(&victim), &pod); err != nil {
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}
		return podReady(&pod) && restarts(&pod) > restarts(&victim), nil
	}
	if err := d.settle(ctx, "the process is replaced", replaced); err != nil {
		return err
	}
	d.screen.say("a ready replacement after %s", since(began))
	return nil
}

// rollOut changes the template, kills the control plane when the change is half made, shows that
// the service goes on, and lets the change be finished.
func (d *demo) rollOut(ctx context.Context) error {
	watched, stop := context.WithCancel(ctx)
	d.probe = probe.Start(watched, d.client, appName)
	defer d.probe.Wait()
	defer stop()
	if err := d.greet(ctx, "good morning"); err != nil {
		return err
	}
	d.screen.say("the template now says \"good morning\"; a client asks the service all the time")
	if err := d.settle(ctx, "the first new process is ready", d.begun); err != nil {
		return err
	}
	d.plane.kill()
	d.screen.say("kill -9 of the control plane, in the middle of the rollout")
	sent, _ := d.probe.Counts()
	d.screen.draw(picture{away: true})
	for now := sent; now < sent+200; now, _ = d.probe.Counts() {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	took, err := d.plane.start(ctx)
	if err != nil {
		return err
	}
	d.screen.say("200 requests later: started again, first answer after %s", took.Round(time.Millisecond))
	if err := d.settle(ctx, "the rollout is complete", d.settled); err != nil {
		return err
	}
	sent, failed := d.probe.Counts()
	if failed > 0 {
		return fmt.Errorf("%d of %d requests failed, the last with: %w", failed, sent, d.probe.LastError())
	}
	d.screen.say("the rollout is complete; %d requests were sent meanwhile, 0 failed", sent)
	return nil
}

func (d *demo) remove(ctx context.Context) error {
	pods, err := d.pods(ctx)
	if err != nil {
		return err
	}
	var pids []int
	for i := range pods {
		pid, err := probe.Process(ctx, endpoint(&pods[i]))
		if err != nil {
			return err
		}
		pids = append(pids, pid)
	}
	began := time.Now()
	if err := d.deleteAll(ctx); err != nil {
		return err
	}
	if err := d.settle(ctx, "everything is gone", d.gone); err != nil {
		return err
	}
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			return fmt.Errorf("process %d still runs", pid)
		}
	}
	d.screen.say("no object and no process is left, after %s", since(began))
	return nil
}

// cleanUp takes away what a story that was broken off has left.
func (d *demo) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	d.screen.clear()
	if d.client == nil || !d.plane.answers(ctx) || d.deleteAll(ctx) != nil {
		return
	}
	for {
		if gone, err := d.gone(ctx); gone || err != nil {
			return
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return
		}
	}
}

// apply declares the example, as `kubectl apply --server-side` would.
func (d *demo) apply(ctx context.Context) error {
	return d.each(func(obj *unstructured.Unstructured) error {
		return d.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("setpoint-demo"))
	})
}

func (d *demo) deleteAll(ctx context.Context) error {
	return d.each(func(obj *unstructured.Unstructured) error {
		return client.IgnoreNotFound(d.client.Delete(ctx, obj,
			client.PropagationPolicy("Background")))
	})
}

// each calls a function with each object of the example.
func (d *demo) each(do func(*unstructured.Unstructured) error) error {
	docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(d.manifest), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := docs.Decode(obj); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		obj.SetNamespace("default")
		if err := do(obj); err != nil {
			return err
		}
	}
}

// greet changes what the processes say, which takes new processes.
func (d *demo) greet(ctx context.Context, greeting string) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"env":[{"name":"GREETING","value":%q}]}]}}}}`,
		appName, greeting)
	obj := &appsv1.Deployment{}
	obj.Namespace, obj.Name = "default", appName
	return d.client.Patch(ctx, obj, client.RawPatch("application/strategic-merge-patch+json", []byte(patch)))
}

// settle draws the world until a condition holds.
func (d *demo) settle(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, stepMax)
	defer cancel()
	for {
		picture, err := d.look(ctx)
		if err != nil {
			return err
		}
		d.screen.draw(picture)
		done, err := holds(ctx)
		if done || err != nil {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
	}
}
