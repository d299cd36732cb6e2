package store

import "sync/atomic"

// Memo holds one derived value that several goroutines may set and read. The zero Memo is empty.
type Memo struct{ p atomic.Pointer[any] }

// Load returns the value, or nil if none was set.
func (m *Memo) Load() any {
	if p := m.p.Load(); p != nil {
		return *p
	}
	return nil
}

// Store sets the value.
func (m *Memo) Store(v any) { m.p.Store(&v) }
