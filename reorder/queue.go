package reorder

import "sync"

// queue passes tasks to the workers in order. At most `tokens` tasks have begun and are not popped. That bounds the blocks that are in
// both Logfiles at once, and so the slack of the arena. put never waits, because it may run on the I/O engine's goroutine.
type queue struct {
	mu     sync.Mutex // guards the fields that follow
	more   sync.Cond
	tasks  []*task
	tokens int
	closed bool
}

func newQueue(tokens int) *queue {
	q := &queue{tokens: tokens}
	q.more.L = &q.mu
	return q
}

func (q *queue) put(t *task) {
	q.mu.Lock()
	q.tasks = append(q.tasks, t)
	q.mu.Unlock()
	q.more.Signal()
}

// take waits for a task and a token. ok is false once the queue is closed and empty.
func (q *queue) take() (t *task, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.tasks) == 0 || q.tokens == 0 {
		if q.closed && len(q.tasks) == 0 {
			return nil, false
		}
		q.more.Wait()
	}
	t = q.tasks[0]
	q.tasks = q.tasks[1:]
	q.tokens--
	return t, true
}

// give returns n tokens.
func (q *queue) give(n int) {
	q.mu.Lock()
	q.tokens += n
	q.mu.Unlock()
	q.more.Broadcast()
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Broadcast()
}
