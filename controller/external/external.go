// Package external makes things outside of the API server, each once, whatever fails in between.
//
// Before the thing is made, a marker is written to the object it is for, and the write goes through only
// if the object is as it was read. After it, what was made is recorded. A marker without a record says
// that nobody knows: the provider is asked by a key that follows from the object's uid, before anything is
// made again. So is a marker that an older generation of the object left, before another takes its place.
package external

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Provider is what things are made by. Both methods may be called again with the same key.
type Provider interface {
	// Find returns the id of the thing that was made with a key; "" if there is none for certain.
	Find(ctx context.Context, key string) (id string, err error)
	// Create makes a thing and returns its id. Whatever error it returns, the thing may exist.
	Create(ctx context.Context, key string) (id string, err error)
}

// ErrUnusable is for what a provider made and nobody can use: a certificate that has run out already.
var ErrUnusable = errors.New("external: the result cannot be used")

// Operation is one thing that an object has made for it.
type Operation struct {
	// Name is the annotation in which the id is recorded, "example.dev/license". The marker is the
	// annotation with -pending after it, and what was unusable is counted in the one with -unusable.
	Name string
	// PerGeneration has a new thing made for each generation of the object; without it, one for its life.
	PerGeneration bool
	Provider      Provider
	// Check, if not nil, looks at a thing just made or found. An error that is ErrUnusable has it be made
	// anew, after Wait.
	Check func(ctx context.Context, id string) error
	// Wait is how long to wait after the first unusable thing; each further doubles it, up to a hundred
	// times as much. Zero is one minute.
	Wait time.Duration
	// Now tells the time; it must be set if Check is.
	Now func() time.Time
}

// Key is the key by which the operation's thing is known to the provider.
func (op Operation) Key(obj client.Object) string {
	key := string(obj.GetUID())
	if op.PerGeneration {
		key += "-" + strconv.FormatInt(obj.GetGeneration(), 10)
	}
	if n, _ := op.unusable(obj); n > 0 {
		key += "-again" + strconv.Itoa(n)
	}
	return key
}

// Ensure returns the id of the thing, which it makes if there is none. If wait is not zero there is none
// yet, and it is to be called again then. The annotations of obj must be those that were read.
// Possible errors: those of the provider; apierrors.IsConflict if obj has changed: read and decide again.
func (op Operation) Ensure(ctx context.Context, c client.Client, obj client.Object) (id string, wait time.Duration, err error) {
	if wait := op.waits(obj); wait > 0 {
		return "", wait, nil
	}
	key := op.Key(obj)
	if of, id, ok := strings.Cut(obj.GetAnnotations()[op.Name], " "); ok && of == key {
		return id, 0, nil
	}
	pending := obj.GetAnnotations()[op.pending()]
	if strings.HasPrefix(pending, string(obj.GetUID())) { // and not copied from another object
		if id, err = op.Provider.Find(ctx, pending); err != nil {
			return "", 0, fmt.Errorf("%s: was it made: %w", op.Name, err)
		}
	}
	if pending != key {
		if err = op.mark(ctx, c, obj, key, pending, id); err != nil {
			return "", 0, err
		}
		id = ""
	}
	if id == "" {
		if id, err = op.Provider.Create(ctx, key); err != nil {
			return "", 0, fmt.Errorf("%s: %w", op.Name, err)
		}
	}
	return op.record(ctx, c, obj, key, id)
}

// mark writes the marker. What was found under the marker of an older generation, if anything, is
// recorded in the same write: else nobody would ever know of it.
func (op Operation) mark(ctx context.Context, c client.Client, obj client.Object, key, older, id string) error {
	set := map[string]string{op.pending(): key}
	if id != "" {
		set[op.Name] = older + " " + id
	}
	return op.write(ctx, c, obj, set)
}

// record notes what was made, or that it is of no use.
func (op Operation) record(ctx context.Context, c client.Client, obj client.Object, key, id string) (string, time.Duration, error) {
	if op.Check != nil {
		switch err := op.Check(ctx, id); {
		case errors.Is(err, ErrUnusable):
			n, _ := op.unusable(obj)
			note := fmt.Sprintf("%d %s", n+1, op.Now().UTC().Format(time.RFC3339))
			err := op.write(ctx, c, obj, map[string]string{op.Name + "-unusable": note, op.pending(): ""})
			return "", op.waits(obj), err
		case err != nil:
			return "", 0, err
		}
	}
	err := op.write(ctx, c, obj, map[string]string{op.Name: key + " " + id, op.pending(): ""})
	return id, 0, err
}

func (op Operation) pending() string { return op.Name + "-pending" }

// unusable returns how many things were of no use, and when the last of them was made.
func (op Operation) unusable(obj client.Object) (n int, last time.Time) {
	count, at, _ := strings.Cut(obj.GetAnnotations()[op.Name+"-unusable"], " ")
	n, _ = strconv.Atoi(count)
	last, _ = time.Parse(time.RFC3339, at)
	return n, last
}

// waits is how long it is until the next thing may be made.
func (op Operation) waits(obj client.Object) time.Duration {
	n, last := op.unusable(obj)
	if n == 0 || op.Now == nil {
		return 0
	}
	first := cmp.Or(op.Wait, time.Minute)
	after := min(first<<min(n-1, 7), 100*first)
	return max(0, last.Add(after).Sub(op.Now()))
}

// write sets annotations; "" removes one.
func (op Operation) write(ctx context.Context, c client.Client, obj client.Object, set map[string]string) error {
	before := obj.DeepCopyObject().(client.Object)
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for name, value := range set {
		if value == "" {
			delete(annotations, name)
		} else {
			annotations[name] = value
		}
	}
	obj.SetAnnotations(annotations)
	return c.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
