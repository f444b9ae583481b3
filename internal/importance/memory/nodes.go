package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"lcache/internal/importance/substitute"
	"lcache/sample"
)

// Samples of a class that stand in for each other (docs/adr/0033-nodes.md). The best connected sample of an observed batch, a node, enters a FIFO in the job's memory with its bytes and the samples that it may stand
// in for. What it stands in for is planned between two epochs.

// A nodeReader brings the bytes of nodes into a job's memory: one goroutine, beside all requests. It takes side memory only where there is room at once.
type nodeReader struct {
	h      *High
	cancel context.CancelFunc
	ended  chan struct{}

	mu    sync.Mutex // guards the fields that follow
	queue []foundNode
	bytes int // of the queue
	turn  int // grows when all is forgotten
	wake  chan struct{}
}

// foundNode is a sample with those of its class that are near it.
type foundNode struct {
	id   sample.Index
	near []sample.Index
	turn int // of the reader, when it was found
}

func (n foundNode) bytes() int { return 4*len(n.near) + 64 }

// mostNodeBytes bounds the lists that wait. Where they come faster than the disk reads the oldest are left out: the newest are by the newest embeddings.
const mostNodeBytes = 4 << 20

// nodeTime is how long a node is read at most.
const nodeTime = 10 * time.Second

func newNodeReader(h *High) *nodeReader {
	ctx, cancel := context.WithCancel(context.Background())
	r := &nodeReader{h: h, cancel: cancel, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	go r.work(ctx)
	return r
}

// stop ends the goroutine. r may be nil.
func (r *nodeReader) stop() {
	if r != nil {
		r.cancel()
		<-r.ended
	}
}

// found queues a node. It never waits.
func (r *nodeReader) found(id sample.Index, near []sample.Index) {
	r.mu.Lock()
	n := foundNode{id, slices.Clone(near), r.turn}
	r.queue, r.bytes = append(r.queue, n), r.bytes+n.bytes()
	for r.bytes > mostNodeBytes && len(r.queue) > 1 {
		r.bytes -= r.queue[0].bytes()
		r.queue = r.queue[1:]
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// forget drops all that waits, and what is being read.
func (r *nodeReader) forget() {
	r.mu.Lock()
	r.queue, r.bytes = nil, 0
	r.turn++
	r.mu.Unlock()
}

// isForgotten reports whether all was forgotten since a node was found.
func (r *nodeReader) isForgotten(n foundNode) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return n.turn != r.turn
}

func (r *nodeReader) take() (n foundNode, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		r.queue = nil
		return n, false
	}
	n, r.queue = r.queue[0], r.queue[1:]
	r.bytes -= n.bytes()
	return n, true
}

func (r *nodeReader) work(ctx context.Context) {
	defer close(r.ended)
	for {
		n, ok := r.take()
		if ok {
			r.bring(ctx, n)
			continue
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
	}
}

// bring reads a node and puts it into memory. It stays out if it cannot be read, or if there is no room for it.
func (r *nodeReader) bring(ctx context.Context, n foundNode) {
	h := r.h
	if !h.mayPut(n.id) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTime)
	defer cancel()
	if err := h.o.Read(ctx, n.id, func(data []byte) { h.put(n, data) }); err != nil {
		h.o.Logger.Debug("a node cannot be read, and stands in for no sample", "sample", n.id, "err", err)
	}
}

// OnNode returns what is called with each node that is found, and the samples near it; nil where no sample stands in for another one. It never waits.
func (h *High) OnNode() func(id sample.Index, near []sample.Index) {
	if h.nodes == nil {
		return nil
	}
	return h.nodes.found
}

// Nodes returns how many nodes there are, and how many wait to be read.
func (h *High) Nodes() (here, waiting int) {
	if h.pair == nil {
		return 0, 0
	}
	h.nodes.mu.Lock()
	waiting = len(h.nodes.queue)
	h.nodes.mu.Unlock()
	h.lockIdle()
	defer h.mu.Unlock()
	return len(h.pair.Nodes().List()), waiting
}

// Ratio is the important samples' part of the memory; the nodes have the rest.
func (h *High) Ratio() float64 {
	if h.pair == nil {
		return 1
	}
	h.lockIdle()
	defer h.mu.Unlock()
	return h.pair.Ratio()
}

// mayPut reports whether a node would be taken: a sample that memory has already stands in for none.
func (h *High) mayPut(id sample.Index) bool {
	h.lockIdle()
	defer h.mu.Unlock()
	return h.held.knows(id) && h.o.Manifest.Size(id) > 0 && !h.policy.Has(id)
}

// lockIdle locks h.mu when the worker does not have the policy for itself. Requests do not call it.
func (h *High) lockIdle() {
	h.mu.Lock()
	for h.busy {
		h.idle.Wait()
	}
}

// put takes a node with its bytes.
func (h *High) put(n foundNode, data []byte) {
	if !h.held.isRight(n.id, data) {
		return
	}
	if w, ok := h.takeNode(n, data); ok {
		h.held.fill(w)
	}
}

// takeNode offers a node, and returns room for its bytes.
func (h *High) takeNode(n foundNode, data []byte) (w writing, ok bool) {
	h.lockIdle()
	defer h.mu.Unlock()
	if h.held.isClosed() || h.nodes.isForgotten(n) || h.policy.Has(n.id) {
		return w, false
	}
	keep, drop := h.pair.Put(n.id, n.near, h.held.Size(n.id))
	for _, gone := range drop {
		h.held.free(gone)
	}
	if !keep {
		return w, false
	}
	return h.held.begin(n.id, data)
}

// SetRatio moves the border between important samples and nodes.
func (h *High) SetRatio(ratio float64) {
	if h.pair == nil {
		return
	}
	h.alone(func() {
		if h.pair.Ratio() == ratio {
			return
		}
		for _, gone := range h.pair.SetRatio(ratio) {
			h.held.free(gone)
		}
	})
}

// ForgetNodes drops all nodes and their lists, and those that wait.
func (h *High) ForgetNodes() {
	if h.pair == nil {
		return
	}
	h.nodes.forget()
	h.alone(func() {
		for _, gone := range h.pair.Nodes().Clear() {
			h.held.free(gone)
		}
	})
}

// Rehearsal copies the policy's decisions, without the bytes.
func (h *High) Rehearsal() (r *substitute.Rehearsal, err error) {
	h.alone(func() { r, err = substitute.NewRehearsal(h.pair, h.held.Size) })
	return r, err
}
