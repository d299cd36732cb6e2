package admission

import "context"

// hook names something that changes objects: a policy with a binding and a parameter, or a webhook
// of a configuration.
type hook struct{ kind, of, name string }

// rounds keeps who has to see an object again because somebody changed it after him.
type rounds struct {
	second   bool
	invoked  []hook        // in the first round, those that want to
	reinvoke map[hook]bool // in the second
}

// due says whether a hook is to be called in this round.
func (r *rounds) due(h hook) bool { return !r.second || r.reinvoke[h] }

// number counts the rounds from zero.
func (r *rounds) number() int {
	if r.second {
		return 1
	}
	return 0
}

// ran notes that a hook was called.
func (r *rounds) ran(h hook, changed, again bool) {
	if changed {
		r.all("")
	}
	if again && !r.second {
		r.invoked = append(r.invoked, h)
	}
}

// all has everybody of a kind called again who was until now and wants to; "" is any kind.
func (r *rounds) all(kind string) {
	for _, h := range r.invoked {
		if kind != "" && h.kind != kind {
			continue
		}
		if r.reinvoke == nil {
			r.reinvoke = map[hook]bool{}
		}
		r.reinvoke[h] = true
	}
}

// Mutate has all mutators change an object, in order; and once more, if somebody who asked for it
// has to see what others changed after him.
func Mutate(ctx context.Context, all []Mutator, a *Attributes) error {
	a.again = rounds{}
	for {
		for _, m := range all {
			if err := m.Mutate(ctx, a); err != nil {
				return err
			}
		}
		if a.again.second || len(a.again.reinvoke) == 0 {
			return nil
		}
		a.again.second = true
	}
}
