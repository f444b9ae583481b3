package blockio

import "sync"

// backlog is the queue between Submit and an engine. An operation is waiting, then active (taken by the engine, or held by a fault), then
// finished. In each direction at most depth operations are active, and at most fileDepth of one file. Each direction of each file has a
// queue of its own. So a device that hangs or is slow does not delay the others, and a write does not wait behind many reads, which a volume
// with limits serves independently of it. Files take turns. Operations that the engine gives back (to continue, or released by a fault) are
// ready: they stay active and go first.
type backlog struct {
	depth, fileDepth int
	// kick tells the engine how many operations are ready. 0 means that it must end. It is called with mu held.
	kick func(ready int)
	// kicked, if set, is called after each kick, when mu is free.
	kicked func()

	mu      sync.Mutex               // guards the fields that follow
	waiting int                      // in all queues
	turns   [directions][]*fileQueue // that have operations waiting and room for them, each once
	ready   list
	active  [directions]int
	closing bool
	ended   bool // the engine's last goroutine has ended or is ending: no operation will be taken
}

func newBacklog(depth, fileDepth int) *backlog {
	return &backlog{depth: depth, fileDepth: min(fileDepth, depth)}
}

// direction is that of a transfer. A sync counts as a write.
type direction int

const (
	writes direction = iota // taken first: they are few, and the filling of the next Logfile waits for them
	reads
	directions
)

func (op *Op) direction() direction {
	if op.Write || op.sync {
		return writes
	}
	return reads
}

// fileQueue holds one file's operations in one direction; guarded by backlog.mu.
type fileQueue struct {
	waiting list
	active  int
	inTurn  bool // listed in backlog.turns
}

// list is a FIFO through Op.next: no allocation for each operation.
type list struct {
	head, tail *Op
	n          int
}

func (l *list) push(op *Op) {
	op.next = nil
	if l.head == nil {
		l.head = op
	} else {
		l.tail.next = op
	}
	l.tail = op
	l.n++
}

func (l *list) pop() *Op {
	op := l.head
	if op == nil {
		return nil
	}
	if l.head = op.next; l.head == nil {
		l.tail = nil
	}
	op.next = nil
	l.n--
	return op
}

// add queues ops. It returns the operations that no goroutine will take, because the engine has ended.
func (b *backlog) add(ops []*Op) []*Op {
	b.mu.Lock()
	for _, op := range ops {
		if op.pending {
			b.mu.Unlock()
			panic("blockio: an operation was submitted twice")
		}
		op.pending = true
		if b.closing && op.err == nil {
			op.err = ErrClosed
		}
	}
	if b.ended {
		b.mu.Unlock()
		return ops
	}
	for _, op := range ops {
		w := op.direction()
		op.File.queues[w].waiting.push(op)
		b.waiting++
		b.inTurnLocked(op.File, w)
	}
	b.unlockAndKick()
	return nil
}

// giveBack makes an active operation ready.
func (b *backlog) giveBack(op *Op) {
	b.mu.Lock()
	b.ready.push(op)
	b.unlockAndKick()
}

// unlockAndKick unlocks, and calls kick if operations can be taken or the engine must end.
func (b *backlog) unlockAndKick() {
	n := b.takeableLocked()
	ends := b.closing && b.idleLocked()
	if n > 0 || ends {
		b.kick(n)
	}
	b.mu.Unlock()
	if n > 0 && b.kicked != nil {
		b.kicked()
	}
}

func (b *backlog) takeable() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeableLocked() > 0
}

func (b *backlog) isClosing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closing
}

// take returns an operation to carry out now, or nil.
func (b *backlog) take() *Op {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeLocked()
}

// end reports whether the engine must end: it is closing and no operation is left. After that none is taken.
func (b *backlog) end() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = b.closing && b.idleLocked()
	return b.ended
}

// inTurnLocked adds a file's queue to the queues with operations to be taken.
func (b *backlog) inTurnLocked(f *File, w direction) {
	if q := &f.queues[w]; !q.inTurn && q.waiting.n > 0 && q.active < b.fileDepth {
		q.inTurn = true
		b.turns[w] = append(b.turns[w], q)
	}
}

// takeableLocked counts the operations that takeLocked would return now.
func (b *backlog) takeableLocked() int {
	all := b.ready.n
	for w, queues := range b.turns {
		n := 0
		for _, q := range queues {
			n += min(q.waiting.n, b.fileDepth-q.active)
		}
		all += min(n, b.depth-b.active[w])
	}
	return all
}

func (b *backlog) idleLocked() bool {
	return b.waiting == 0 && b.active == [directions]int{}
}

// popLocked takes the next waiting operation of the file whose turn it is, and makes it active. It returns nil if there is none with room.
func (b *backlog) popLocked() *Op {
	for w := range directions {
		if len(b.turns[w]) == 0 || b.active[w] >= b.depth {
			continue
		}
		q := b.turns[w][0]
		b.turns[w] = b.turns[w][1:]
		op := q.waiting.pop()
		q.inTurn = false
		q.active++
		b.waiting--
		b.active[w]++
		b.inTurnLocked(op.File, w)
		return op
	}
	return nil
}

// takeLocked returns an operation to carry out now, or nil. Operations that a fault holds begin their wait here.
func (b *backlog) takeLocked() *Op {
	for {
		if op := b.ready.pop(); op != nil {
			return op
		}
		op := b.popLocked()
		if op == nil {
			return nil
		}
		if op.err != nil || op.fault == nil || op.fault.Hold == nil {
			return op
		}
		go func(hold <-chan struct{}) { // joined: close waits until no operation is active
			<-hold
			b.giveBack(op)
		}(op.fault.Hold)
	}
}

// finish ends an operation. Its room is free before Done, which may submit.
func (b *backlog) finish(op *Op, err error) {
	if op.fault != nil && err == nil {
		op.fault.changeBytes(op)
	}
	if op.attached {
		op.attached = false
		op.File.detach()
	}
	b.mu.Lock()
	op.pending = false
	if b.ended {
		b.mu.Unlock()
	} else {
		w := op.direction()
		b.active[w]--
		op.File.queues[w].active--
		b.inTurnLocked(op.File, w)
		b.unlockAndKick()
	}
	op.Done(op, err)
}

// close lets the engine end when the last operation has.
func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closing {
		b.closing = true
		b.kick(0)
	}
}
