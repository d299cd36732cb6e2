package workqueue

// Sizes returns how much is kept: classes, flows and slots that are in use.
func (q *Queue[T]) Sizes() (classes, flows, slots int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &q.core.table
	return len(q.core.classes), len(q.core.flows) - len(q.core.freeFlows), int(t.used) - len(t.free)
}
