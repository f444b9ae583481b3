package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"lcache/internal/importance/substitute"
	"lcache/sample"
)

// Substitutes of the same class (docs/adr/0033-nodes.md). A node is the best connected sample of an observed batch.
// It enters a FIFO in the job's memory, with its bytes and the samples that it may replace. The substitutions of an
// epoch are planned before the epoch begins.

// A nodeReader is a goroutine that reads the bytes of nodes into a job's memory. It uses side memory only if some is
// free at once.
type nodeReader struct {
	h      *High
	cancel context.CancelFunc
	ended  chan struct{}

	mu    sync.Mutex // guards the fields that follow
	queue []foundNode
	bytes int // size of the queue
	turn  int // incremented when all nodes are forgotten
	wake  chan struct{}
}

// foundNode is a node, with the nearby samples of its class.
type foundNode struct {
	id   sample.Index
	near []sample.Index
	turn int // the reader's turn when it was found
}

func (n foundNode) bytes() int { return 4*len(n.near) + 64 }

// mostNodeBytes bounds the queued lists. If they arrive faster than the disk reads, the oldest are dropped, because
// the newest lists come from the newest embeddings.
const mostNodeBytes = 4 << 20

// nodeTime is the time limit for reading a node.
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

// forget drops the queue, and the node that is being read.
func (r *nodeReader) forget() {
	r.mu.Lock()
	r.queue, r.bytes = nil, 0
	r.turn++
	r.mu.Unlock()
}

// isForgotten reports whether all nodes were forgotten after n was found.
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

// bring reads a node and adds it to memory. It drops a node that can't be read or does not fit.
func (r *nodeReader) bring(ctx context.Context, n foundNode) {
	h := r.h
	if !h.mayPut(n.id) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTime)
	defer cancel()
	if err := h.o.Read(ctx, n.id, func(data []byte) { h.put(n, data) }); err != nil {
		h.o.Logger.Debug("cannot read a node; it is not used as a substitute", "sample", n.id, "err", err)
	}
}

// OnNode returns a function that receives each node and the samples near it; nil if substitutes of a class are off. The function never waits.
func (h *High) OnNode() func(id sample.Index, near []sample.Index) {
	if h.nodes == nil {
		return nil
	}
	return h.nodes.found
}

// Nodes returns the number of held nodes, and of queued nodes.
func (h *High) Nodes() (held, queued int) {
	if h.pair == nil {
		return 0, 0
	}
	h.nodes.mu.Lock()
	queued = len(h.nodes.queue)
	h.nodes.mu.Unlock()
	h.lockIdle()
	defer h.mu.Unlock()
	return len(h.pair.Nodes().List()), queued
}

// Ratio returns the share of the memory for important samples; the nodes have the rest.
func (h *High) Ratio() float64 {
	if h.pair == nil {
		return 1
	}
	h.lockIdle()
	defer h.mu.Unlock()
	return h.pair.Ratio()
}

// mayPut reports whether a node would be accepted. A sample that is already in memory is refused.
func (h *High) mayPut(id sample.Index) bool {
	h.lockIdle()
	defer h.mu.Unlock()
	return h.held.knows(id) && h.o.Manifest.Size(id) > 0 && !h.policy.Has(id)
}

// lockIdle locks h.mu when the worker is not using the policy. Requests do not call it.
func (h *High) lockIdle() {
	h.mu.Lock()
	for h.busy {
		h.idle.Wait()
	}
}

// put adds a node with its bytes.
func (h *High) put(n foundNode, data []byte) {
	if !h.held.isRight(n.id, data) {
		return
	}
	if w, ok := h.takeNode(n, data); ok {
		h.held.fill(w)
	}
}

// takeNode offers a node, and reserves room for its bytes.
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

// SetRatio changes the share of important samples.
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

// ForgetNodes drops all nodes and their lists, including queued ones.
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

// Rehearsal copies the state of the policy, without the bytes.
func (h *High) Rehearsal() (r *substitute.Rehearsal, err error) {
	h.alone(func() { r, err = substitute.NewRehearsal(h.pair, h.held.Size) })
	return r, err
}
