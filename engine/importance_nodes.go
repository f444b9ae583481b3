package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"lcache/importance"
	"lcache/offheap"
	"lcache/sample"
)

// Samples of a class that stand in for each other (docs/adr/0033-nodes.md). The best connected sample of an observed batch, a node, enters a FIFO in the job's memory with its bytes and the samples that it may stand
// in for. What it stands in for is planned between two epochs.

// A nodeReader brings the bytes of nodes into a job's memory: one goroutine, beside all requests. It takes side memory only where there is room at once.
type nodeReader struct {
	h      *highMemory
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

func newNodeReader(h *highMemory) *nodeReader {
	ctx, cancel := context.WithCancel(h.e.ctx)
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

// bring reads a node and puts it into memory. One that can't be read, or for which there is no room, does not enter.
func (r *nodeReader) bring(ctx context.Context, n foundNode) {
	e := r.h.e
	if !r.h.mayPut(n.id) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTime)
	defer cancel()
	x, ok := e.fetcher.TryRoom(e.fetcher.Need([]sample.Index{n.id}))
	if !ok {
		return
	}
	extents, got := e.fetcher.Into(ctx, x, []sample.Index{n.id})
	defer func() {
		for _, x := range extents {
			e.staging.Drop(x)
		}
	}()
	if got[0].Err != nil {
		e.cache.Logger.Debug("a sample that is like others can't be read, and stands in for none", "sample", n.id, "err", got[0].Err)
		return
	}
	r.h.put(n, got[0].Data)
}

// mayPut reports whether a node would be taken: a sample that memory has already stands in for none.
func (h *highMemory) mayPut(id sample.Index) bool {
	h.lockIdle()
	defer h.mu.Unlock()
	return h.held.knows(id) && h.e.cache.Manifest.Size(id) > 0 && !h.policy.Has(id)
}

// lockIdle locks h.mu when the worker does not have the policy for itself. Requests do not call it.
func (h *highMemory) lockIdle() {
	h.mu.Lock()
	for h.busy {
		h.idle.Wait()
	}
}

// put takes a node with its bytes.
func (h *highMemory) put(n foundNode, data []byte) {
	if !h.held.isRight(n.id, data) {
		return
	}
	if w, ok := h.takeNode(n, data); ok {
		h.held.fill(w)
	}
}

// takeNode offers a node, and returns room for its bytes.
func (h *highMemory) takeNode(n foundNode, data []byte) (w writing, ok bool) {
	h.lockIdle()
	defer h.mu.Unlock()
	if h.held.isClosed() || h.nodes.isForgotten(n) || h.policy.Has(n.id) {
		return w, false
	}
	keep, drop := h.pair.Put(n.id, n.near, h.held.size(n.id))
	for _, gone := range drop {
		h.held.free(gone)
	}
	if !keep {
		return w, false
	}
	return h.held.begin(n.id, data)
}

// setRatio moves the border between important samples and nodes.
func (h *highMemory) setRatio(ratio float64) {
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

// forgetNodes drops all nodes and their lists, and those that wait.
func (h *highMemory) forgetNodes() {
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

// rehearsal copies the policy's decisions, without the bytes.
func (h *highMemory) rehearsal() (r *importance.Rehearsal, err error) {
	h.alone(func() { r, err = importance.NewRehearsal(h.pair, h.held.size) })
	return r, err
}

// planClass serves nodes for their neighbours, as far as memory will not have those and they are no H-samples (SpiderCache §IV-B). An order that is drawn an epoch ahead is planned by the memory that the epoch between will leave.
func (p *important) planClass(epoch int, requested []sample.Index) (plan importance.Plan, err error) {
	p.high.setRatio(p.state.Ratio())
	r, err := p.high.rehearsal()
	if err != nil {
		return plan, err
	}
	defer r.Close()
	for between := p.state.Epoch(); between < epoch; between++ {
		if err := p.decideBy(func(values, targets []float64) { r.Play(between, values, targets, p.orderOf(between)) }); err != nil {
			return plan, err
		}
	}
	if err := p.decideBy(func(values, targets []float64) { r.Begin(epoch, values, targets, requested) }); err != nil {
		return plan, err
	}
	high, err := p.state.High()
	if err != nil {
		return plan, err
	}
	defer high.Close()
	return importance.NewLaw(importance.Class, r, high.Has).Serve(requested, importance.Cut{World: p.world, Batch: p.config.BatchSize})
}

// decideBy calls f with what memory policies decide by: values, or targets for next-use alone. They are freed afterwards.
func (p *important) decideBy(f func(values, targets []float64)) error {
	if p.config.Policy == "next-use" {
		targets, err := p.state.Targets()
		if err == nil {
			f(nil, targets)
		}
		offheap.Free(targets)
		return err
	}
	values, err := p.state.Values()
	if err == nil {
		f(values, nil)
	}
	offheap.Free(values)
	return err
}

// orderOf is what is served in an epoch that was drawn; nil: that is not known.
func (p *important) orderOf(epoch int) []sample.Index {
	o := p.state.Order(epoch)
	if o == nil {
		return nil
	}
	if o.Indices == nil { // the recipe's
		if whole, err := p.j.schedule.OfRecipe(p.e.ctx, epoch); err == nil {
			return whole.Global
		}
	}
	return o.Indices
}
