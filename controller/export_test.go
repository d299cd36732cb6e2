package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Fights is the core that finds fights.
type Fights struct{ fights }

type Takeover struct{ Path, From, To string }

func (f *Fights) Step(now time.Time, object types.UID, t Takeover) int {
	return f.step(now, object, takeover{t.Path, t.From, t.To})
}

func (f *Fights) Len() int { return len(f.fields) }
