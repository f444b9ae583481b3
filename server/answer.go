package server

import (
	"context"
	"errors"
	"io"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// errCancelled is the error of a request that a CANCEL named.
var errCancelled = errors.New("the client cancelled this request")

// errLate is the error of a COPIED that comes after its temporary lease has ended.
var errLate = errors.New("the temporary lease ended before its bytes were copied: request them again")

// handle answers one request, and releases its lease if the answer can't be sent.
func (c *conn) handle(ctx context.Context, q *request) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.mu.Lock()
	q.stop = stop
	cancelled := q.cancelled
	c.mu.Unlock()

	var lease uint64
	var err error
	c.out = c.out[:0]
	switch {
	case cancelled:
		err = errCancelled
	case ctx.Err() != nil || c.s.isClosing():
		err = deliver.ErrClosing
	default:
		lease, err = c.answer(ctx, q)
	}
	if !c.answered(q, lease) {
		c.client.Release(lease)
		err = errCancelled
	}
	if err != nil {
		f := failureOf(err)
		switch f.Kind {
		case "internal":
			c.s.opts.Logger.Error("answer a request", "pid", c.client.Pid, "type", q.kind, "err", err)
		case "protocol":
			c.s.opts.Logger.Warn("connection ended", "pid", c.client.Pid, "err", err)
			defer c.c.CloseRead() // ends the reader, and so the connection
		}
		c.out = appendFailure(c.out[:0], q.request, f)
	}
	if c.send(c.out) != nil && lease != 0 {
		// The client can't have read the whole answer, so it has nothing to release.
		c.mu.Lock()
		c.forget(lease)
		c.mu.Unlock()
		c.client.Release(lease)
	}
	if c.asks {
		c.s.askToStop(c.client.Pid) // the answer is sent
	}
	if cap(c.out) > ownBytes {
		c.out = nil // large answers are rare, and there may be many connections
	}
}

// answered removes a request from the open ones, and notes the lease of its answer for CANCEL and BYE. It returns false if the request was cancelled;
// then the caller releases the lease.
func (c *conn) answered(q *request, lease uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, q.request)
	c.bytes -= len(q.body)
	c.s.received.Give(q.taken)
	if lease == 0 {
		return true
	}
	if q.cancelled {
		return false
	}
	c.leases[lease] = q.request
	c.answers[q.request] = lease
	if len(c.leases) > c.prune { // forget the leases that another connection of the session has released
		for lease := range c.leases {
			if !c.client.Holds(lease) {
				c.forget(lease)
			}
		}
		c.prune = 2*len(c.leases) + 1024
	}
	return true
}

// answer puts the answer to a request into c.out. It returns the lease of a BATCH; 0: none.
func (c *conn) answer(ctx context.Context, q *request) (lease uint64, err error) {
	switch q.kind {
	case typeChunk:
		return c.chunk(ctx, q)
	case typeGet:
		return c.get(ctx, q)
	case typeLend:
		err = c.lend(ctx, q)
	case typeCopied:
		if err = errLate; q.copied {
			c.out, err = appendEmpty(c.out, typeOK, q.request), nil
		}
	case typePush:
		if err = c.pushed(q.job, q.body); err == nil {
			c.out = appendEmpty(c.out, typeOK, q.request)
		}
	case typeStatus:
		err = c.status(ctx, q)
	case typeNames:
		err = c.names(ctx, q)
	case typeParts:
		err = c.parts(ctx, q)
	case typeStop:
		if err = c.stop(q.body); err == nil {
			c.out = appendEmpty(c.out, typeOK, q.request)
			c.asks = true
		}
	case typeDiagnose:
		err = c.diagnose(ctx, q)
	case typeLabels:
		err = c.labels(ctx, q)
	case typeJob:
		err = c.join(q)
	case typeImportance:
		err = c.importance(ctx, q)
	case typeOrder:
		err = c.order(ctx, q)
	case typeReevaluate:
		err = c.reevaluate(ctx, q)
	case typeWeights:
		err = c.weights(ctx, q)
	default:
		err = broken("type %d is not a request of protocol %d", q.kind, protocolVersion)
	}
	return 0, err
}

// stop checks a STOP. Only the server's own user and root may stop it, not the members of a group that may connect. The body names the server. So a
// damaged frame does not stop it, and neither does a client that meant an earlier server.
func (c *conn) stop(body []byte) error {
	switch {
	case !c.owner:
		return argument("only the user who started this server may stop it")
	case !c.s.opts.Stoppable:
		return argument("this server is a part of the program that started it: end that program")
	case len(body) == 0:
		return argument("STOP has no body: send the value of \"server\" from the answer to HELLO, as lcache stop of this version does")
	case string(body) != c.server:
		return argument("STOP names an earlier run of the server: connect again, and send the value of \"server\" from the new answer to HELLO")
	}
	return nil
}

// chunk answers CHUNK with the batch at a position of the schedule, or with END after the last batch.
func (c *conn) chunk(ctx context.Context, q *request) (lease uint64, err error) {
	p, err := decodeChunk(q.body)
	if err != nil {
		return 0, err
	}
	at := position(q.job, p.epoch, p.rank, p.batch)
	batch, err := c.client.ChunkAt(ctx, at)
	if err == nil && !c.hasRoom(c.batchBytes(len(batch.Indices))) { // the batch is released while this connection waits for room
		c.client.Release(batch.Lease)
		if err = c.roomFor(ctx, c.batchBytes(len(batch.Indices))); err == nil {
			batch, err = c.client.ChunkAt(ctx, at)
		}
	}
	if errors.Is(err, io.EOF) {
		c.out = appendEmpty(c.out, typeEnd, q.request)
		return 0, nil
	}
	return c.batch(q, batch, err)
}

// get answers GET: samples by index.
func (c *conn) get(ctx context.Context, q *request) (lease uint64, err error) {
	p, err := decodeGet(q.body)
	if err != nil {
		return 0, err
	}
	if len(p.indices) > maxBatch {
		return 0, tooLarge("get %d samples: at most %d fit an answer", len(p.indices), maxBatch)
	}
	if err := c.roomFor(ctx, c.batchBytes(len(p.indices))); err != nil {
		return 0, err
	}
	batch, err := c.client.Get(ctx, p.indices, q.at(p.at))
	return c.batch(q, batch, err)
}

// status answers STATUS.
func (c *conn) status(ctx context.Context, q *request) (err error) {
	if len(q.body) != 0 {
		return broken("STATUS has a body")
	}
	if err := c.roomFor(ctx, int(c.s.document.Load())); err != nil { // the document grows slowly
		return err
	}
	if c.out, err = appendJSON(c.out, typeJSON, q.request, c.s.engine.Status()); err == nil {
		c.s.document.Store(int64(len(c.out)))
	}
	return err
}

// names answers NAMES.
func (c *conn) names(ctx context.Context, q *request) error {
	indices, err := decodeList(q.body, "NAMES")
	if err != nil {
		return err
	}
	names, err := c.s.engine.Names(indices, ownBytes)
	if err == nil && len(names) < len(indices) {
		if err = c.roomFor(ctx, maxFrame); err == nil {
			names, err = c.s.engine.Names(indices, maxFrame)
		}
	}
	if err != nil {
		return err
	}
	c.out, err = appendNames(c.out, q.request, names)
	return err
}

// parts answers PARTS.
func (c *conn) parts(ctx context.Context, q *request) error {
	indices, err := decodeList(q.body, "PARTS")
	if err != nil {
		return err
	}
	parts, err := c.s.engine.Parts(indices, ownBytes)
	if err == nil && len(parts) < len(indices) {
		if err = c.roomFor(ctx, maxFrame); err == nil {
			parts, err = c.s.engine.Parts(indices, maxFrame)
		}
	}
	if err != nil {
		return err
	}
	c.out, err = appendParts(c.out, q.request, parts)
	return err
}

// labels answers LABELS.
func (c *conn) labels(ctx context.Context, q *request) error {
	p, err := decodeLabels(q.body)
	if err != nil {
		return err
	}
	if err := c.roomFor(ctx, headerBytes+4+4*int(min(p.count, maxFrame/4))); err != nil {
		return err
	}
	labels, err := c.s.engine.Labels(p.first, p.count)
	if err != nil {
		return err
	}
	c.out = appendLabels(c.out, q.request, labels)
	return nil
}

// lend answers LEND with some of the samples of a CHUNK or GET.
func (c *conn) lend(ctx context.Context, q *request) error {
	p, err := decodeLend(q.body)
	if err != nil {
		return err
	}
	if len(p.get.indices) > maxBatch {
		return tooLarge("get %d samples: at most %d fit an answer", len(p.get.indices), maxBatch)
	}
	if err := c.roomFor(ctx, c.batchBytes(len(p.get.indices))); err != nil {
		return err
	}
	var loan *deliver.LentPart
	if p.kind == typeChunk {
		at := position(q.job, p.chunk.epoch, p.chunk.rank, p.chunk.batch)
		loan, err = c.client.LendAt(ctx, at, p.from)
		if err == nil && !c.hasRoom(c.batchBytes(len(loan.Indices))) { // other connections may use the reserve while this one waits
			c.client.Copied(loan.Lease)
			if err = c.roomFor(ctx, c.batchBytes(len(loan.Indices))); err == nil {
				loan, err = c.client.LendAt(ctx, at, p.from)
			}
		}
	} else {
		loan, err = c.client.Lend(ctx, p.get.indices, p.from, q.at(p.get.at))
	}
	switch {
	case errors.Is(err, io.EOF):
		c.out = appendEmpty(c.out, typeEnd, q.request)
		return nil
	case err != nil:
		return err
	case len(loan.Indices) > maxBatch:
		return tooLarge("lend %d samples: at most %d fit an answer", len(loan.Indices), maxBatch)
	}
	c.out = appendLoan(c.out, q.request, loan, c.others)
	return nil
}

// batch appends a batch to c.out, or releases it if it does not fit a frame.
func (c *conn) batch(q *request, batch *deliver.Batch, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	if n := len(batch.Indices); n > maxBatch { // score.MaxSamples bounds the batches of a job with substitutes
		c.client.Release(batch.Lease)
		return 0, tooLarge("the batch has %d samples: at most %d fit an answer", n, maxBatch)
	}
	var parts [][]sample.Part
	if c.withParts {
		if parts, err = c.s.engine.Parts(batch.Indices, max(ownBytes, partBytes*len(batch.Indices))); err != nil {
			c.client.Release(batch.Lease)
			return 0, err
		}
	}
	at := len(c.out)
	c.out = appendBatch(c.out, q.request, batch, c.others)
	if c.withParts && len(parts) == len(batch.Indices) {
		c.out = appendBatchParts(c.out, at, parts)
	}
	return batch.Lease, nil
}

// pushed adds a piece to an order, and pushes the order to the engine when it is complete.
func (c *conn) pushed(job int, body []byte) error {
	p, err := decodePush(body)
	if err != nil {
		return err
	}
	o := &c.push
	if p.first == 0 {
		c.dropPush()
		o.job, o.epoch, o.rank = job, p.epoch, p.rank
	}
	if p.first != len(o.order.Ends) || job != o.job || p.epoch != o.epoch || p.rank != o.rank {
		return argument("the piece is for epoch %d rank %d from batch %d on, and the previous piece ended at batch %d of epoch %d rank %d: begin again with batch 0",
			p.epoch, p.rank, p.first, len(o.order.Ends), o.epoch, o.rank)
	}
	if len(o.order.Indices)+p.indices.len() > maxPushed || len(o.order.Ends)+p.sizes.len() > maxPushed {
		c.dropPush()
		return argument("push an order of more than %d samples for one epoch and rank", maxPushed)
	}
	if err := c.s.engine.TakeOrders(p.bytes()); err != nil {
		c.dropPush()
		return err
	}
	o.bytes += p.bytes()
	p.addTo(&o.order)
	if p.more {
		return nil
	}
	order := o.order
	c.dropPush() // the pushed order has its own account
	return c.s.engine.PushOf(job, schedule.Pusher{Pid: c.client.Pid, Session: c.client.Token}, p.epoch, p.rank, order)
}

// dropPush drops the partly received order, and releases its memory.
func (c *conn) dropPush() {
	c.s.engine.GiveOrders(c.push.bytes)
	c.push = halfPushed{}
}
