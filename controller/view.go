package controller

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// QueueView is the queue of a controller as of one moment, for people.
type QueueView struct {
	Controller string `json:"controller"`
	Workers    int    `json:"workers"`
	// Shards are those that this replica works on, nil if it shares with nobody.
	Shards []int           `json:"shards,omitempty"`
	Stats  workqueue.Stats `json:"stats"`
	// Keys are those that wait, are worked on, or have failed, the longest waiting first.
	Keys []workqueue.Key[request] `json:"keys"`
	// Parked are keys that wait until the cache shows what they wrote themselves.
	Parked []types.NamespacedName `json:"parked,omitempty"`
	// Paused are objects that are left alone because of PausedAnnotation.
	Paused []types.NamespacedName `json:"paused,omitempty"`
}

// Queues returns the queues of all controllers, in the order in which they were added.
func (m *Manager) Queues() []QueueView {
	m.mu.Lock()
	loops := m.loops
	m.mu.Unlock()
	views := make([]QueueView, 0, len(loops))
	for _, l := range loops {
		views = append(views, l.view())
	}
	return views
}

func (l *loop) view() QueueView {
	v := QueueView{
		Controller: l.name, Workers: l.workers(), Stats: l.queue.Stats(), Keys: l.queue.Keys(),
	}
	if l.sharded() {
		v.Shards = l.mgr.shards.list()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, u := range l.keys {
		if u.parked {
			v.Parked = append(v.Parked, key.NamespacedName)
		}
	}
	for key := range l.paused {
		v.Paused = append(v.Paused, key.NamespacedName)
	}
	return v
}
