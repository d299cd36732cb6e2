package apiserver

import (
	crand "crypto/rand"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
)

// random is the server's source of everything that must not repeat.
type random struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newRandom(source rand.Source) *random {
	if source == nil {
		var seed [32]byte
		crand.Read(seed[:])
		source = rand.NewChaCha8(seed)
	}
	return &random{r: rand.New(source)}
}

// uid returns a version 4 UUID.
func (r *random) uid() string {
	r.mu.Lock()
	hi, lo := r.r.Uint64(), r.r.Uint64()
	r.mu.Unlock()
	var id uuid.UUID
	for i := range 8 {
		id[i], id[8+i] = byte(hi>>(8*i)), byte(lo>>(8*i))
	}
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// Letters of generated names: no vowels, so that they make no words, and no digits or letters
// that are read as one another.
const suffixLetters = "bcdfghjklmnpqrstvwxz2456789"

// suffix returns n random letters to end a generated name with.
func (r *random) suffix(n int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]byte, n)
	for i := range out {
		out[i] = suffixLetters[r.r.IntN(len(suffixLetters))]
	}
	return string(out)
}

// between returns a duration in [low, high).
func (r *random) between(low, high time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return low + time.Duration(r.r.Int64N(int64(high-low)))
}
