package peer

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"lcache/sample"
)

// answers are the LISTs of one stream.
type answers struct {
	server   *Server
	home     Home
	consumer *consumer
	samples  int
	stream   grpc.ServerStream
	cancel   context.CancelCauseFunc
	bound    int64               // bytes of samples that the stream may hold
	held     *semaphore.Weighted // bytes of samples that are not sent yet

	running sync.WaitGroup
	lists   sync.WaitGroup
	brought atomic.Uint64 // bytes
	waiting atomic.Int64  // requests that wait for memory for a large sample
	asked   atomic.Int64  // when the last LIST came, in ns since 1970

	mu   sync.Mutex
	open map[uint32]context.CancelFunc // LISTs, by id

	isClosed bool // no LIST is begun any longer

	sending sync.Mutex // the stream

	// Of mark alone.
	waited uint64 // MARKs that were sent while the home waited for a long read
	before uint64 // what the home had done for peers when the stream began
	others uint64 // Server.largeSent at the last MARK
}

// end ends all LISTs, and joins their goroutines.
func (a *answers) end() {
	a.cancel(nil)
	a.mu.Lock()
	a.isClosed = true
	a.mu.Unlock()
	// A send ends with the connection, if it does not end without that.
	stuck := time.AfterFunc(a.server.stuck, func() { a.server.conns.kill(a.stream.Context()) })
	defer stuck.Stop()
	a.running.Wait()
}

// receive reads LISTs and CANCELs until the consumer ends the stream.
func (a *answers) receive(ctx context.Context) error {
	for {
		var f frame
		if err := a.stream.RecvMsg(&f); err != nil {
			return err
		}
		err := a.take(ctx, f)
		f.Free()
		if err != nil {
			return err
		}
	}
}

// take handles a frame of the consumer.
func (a *answers) take(ctx context.Context, f frame) error {
	r, kind, err := open(f.BufferSlice, kindList, kindCancel)
	if err != nil {
		return err
	}
	defer r.Close()
	if kind == kindCancel {
		id, err := r.done()
		if err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if cancel := a.open[id]; cancel != nil { // else it is answered
			cancel()
		}
		return nil
	}
	l, err := r.list(a.samples)
	if err != nil {
		return err
	}
	a.asked.Store(time.Now().UnixNano())
	limited, cancel := context.WithTimeout(ctx, min(time.Duration(l.deadlineMS)*time.Millisecond, mostDeadline))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isClosed {
		cancel()
		return context.Canceled
	}
	if a.open[l.id] != nil || len(a.open) >= MostLists {
		cancel()
		return fmt.Errorf("%w: LIST %d is open, or %d others are", ErrFrame, l.id, MostLists)
	}
	a.consumer.asked.Store(time.Now().UnixNano())
	a.open[l.id] = cancel
	a.lists.Add(1)
	a.running.Go(func() {
		defer a.lists.Done()
		a.answer(ctx, limited, l)
	})
	return nil
}

// close ends a LIST: its id may be used again.
func (a *answers) close(id uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.open[id]; cancel != nil {
		cancel()
	}
	delete(a.open, id)
}

// isBusy reports whether a LIST is open.
func (a *answers) isBusy() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.open) > 0
}

// mostDeadline bounds the deadline of a LIST. It is long because many machines may wait for one that reads a slow source: a consumer that does not want to
// wait any longer sends a CANCEL.
const mostDeadline = 10 * time.Minute

// send sends a message. If that takes too long, because the consumer takes nothing, it closes the connection.
func (a *answers) send(b mem.BufferSlice) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	stuck := time.AfterFunc(a.server.stuck, func() {
		a.cancel(status.Error(codes.DeadlineExceeded, "the consumer takes nothing"))
		a.server.conns.kill(a.stream.Context())
	})
	defer stuck.Stop()
	return a.stream.SendMsg(b)
}

// mark sends MARKs while LISTs are open. It ends a stream on which none is for too long.
func (a *answers) mark(ctx context.Context) {
	t := time.NewTicker(min(markEvery, a.server.idle))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		switch {
		case a.isBusy():
			done, waits := a.home.Work()
			others := a.server.largeSent.Load()
			if waits || a.waiting.Load() > 0 && others != a.others {
				a.waited++
			}
			a.others = others
			if a.send(plain(encodeMark(a.brought.Load()+a.waited+done-a.before))) != nil {
				return
			}
		case time.Since(time.Unix(0, a.asked.Load())) > a.server.idle:
			a.cancel(errUnused)
			return
		}
	}
}

// mostRun is how many samples of a LIST the home is asked for at once.
const mostRun = 256

// answer answers a LIST. ctx is the stream's, limited the LIST's.
func (a *answers) answer(ctx, limited context.Context, l list) {
	brought := make(chan copied, mostRun) // a run has room, so that no Bring waits for the consumer
	var bringing sync.WaitGroup
	bringing.Go(func() {
		defer close(brought)
		for rest := l.indices; len(rest) > 0 && limited.Err() == nil; {
			rest = a.bring(limited, rest, brought)
		}
	})
	p := parcel{answers: a, id: l.id, limited: limited}
	flush := time.NewTimer(parcelWait)
	defer flush.Stop()
	var err error
	for isOpen := true; isOpen; {
		var c copied
		select {
		case c, isOpen = <-brought:
		case <-flush.C:
			if err == nil {
				err = p.flush()
			}
			continue
		}
		switch {
		case !isOpen:
		case err != nil:
			c.drop(a)
		default:
			if p.isEmpty() {
				flush.Reset(parcelWait)
			}
			err = p.add(c)
		}
	}
	bringing.Wait()
	if err == nil {
		err = p.flush()
	}
	a.close(l.id)                       // before DONE, because the consumer may use its place at once
	if err == nil && ctx.Err() == nil { // else the stream ends, with its reason
		err = a.send(plain(encodeDone(l.id)))
	}
	p.drop()
	if err != nil {
		a.cancel(err)
	}
}

// copied is a sample, or its absence, with bytes in a buffer of this package.
type copied struct {
	entry  // of the whole sample
	bytes  mem.Buffer
	weight int64 // held until it is sent
	large  int64 // held of Server.large until it is sent; 0: it is not larger than a stream may hold
}

func (c *copied) drop(a *answers) {
	c.bytes.Free()
	a.held.Release(c.weight)
	a.server.large.Release(c.large)
}

// reserveLarge waits for memory for samples of some bytes, if that is more than a stream may hold. The request has its part of the stream, which nothing but the
// stream's other requests waits for, and nothing else.
func (a *answers) reserveLarge(limited context.Context, bytes int) (large int64, err error) {
	if int64(bytes) <= a.bound {
		return 0, nil
	}
	large = min(int64(bytes), a.server.mostLarge)
	a.waiting.Add(1)
	defer a.waiting.Add(-1)
	return large, a.server.large.Acquire(limited, large)
}

// bring asks the home for the first samples of a LIST, and returns the others. It reserves room for their bytes first: so the home's memory never
// waits for the consumer. gRPC could send the home's own bytes, but it does not free queued ones when a connection breaks.
func (a *answers) bring(limited context.Context, indices []sample.Index, to chan<- copied) (rest []sample.Index) {
	n, room, size := 0, int64(0), 0
	for n < min(len(indices), mostRun) {
		s := a.home.Size(indices[n])
		if n > 0 && room+a.weight(s) > a.bound/4 {
			break
		}
		n, room, size = n+1, room+a.weight(s), size+s
	}
	if a.held.Acquire(limited, room) != nil {
		return nil
	}
	large, err := a.reserveLarge(limited, size) // of one sample
	if err != nil {
		a.held.Release(room)
		return nil
	}
	handle := buffers.Get(size)
	run, used := mem.NewBuffer(handle, buffers), 0
	a.home.Bring(limited, indices[:n], func(b Brought) {
		c := copied{entry: entry{index: b.Index, why: b.Why, sum: b.Sum}, bytes: mem.SliceBuffer(nil), weight: min(a.weight(len(b.Bytes)), room)}
		if !b.Why.IsAbsent() {
			c.length, c.large, large = uint32(len(b.Bytes)), large, 0
			if end := used + len(b.Bytes); end <= len(*handle) {
				copy((*handle)[used:end], b.Bytes)
				c.bytes, used = run.Slice(used, end), end
			} else { // it is larger than the home said
				c.bytes = mem.SliceBuffer(bytes.Clone(b.Bytes))
			}
		}
		if b.Release != nil {
			b.Release()
		}
		room -= c.weight
		to <- c
	})
	run.Free()           // the samples have references
	a.held.Release(room) // of samples that are absent
	a.server.large.Release(large)
	return indices[n:]
}

// weight is a sample's part of the bytes that a stream may hold. A sample that is larger takes all of it.
func (a *answers) weight(bytes int) int64 { return min(int64(bytes), a.bound) }

// parcel collects samples for one message.
type parcel struct {
	*answers
	id      uint32
	limited context.Context // of the LIST
	entries []entry
	bytes   int
	weight  int64 // held for samples that are complete in this message
	large   int64 // the same of Server.large
	parts   mem.BufferSlice
}

func (p *parcel) isEmpty() bool { return len(p.entries) == 0 }

// mostPart is the largest part of a sample in one PARCEL: a larger sample is cut.
const mostPart = MostFrame - 64<<10

// add adds a sample, and sends each message that is full.
func (p *parcel) add(c copied) error {
	for offset := uint32(0); ; {
		if c.large > 0 && p.limited.Err() != nil { // nobody waits for it any longer, and others wait for its memory
			c.drop(p.answers)
			return nil
		}
		n := min(c.length-offset, mostPart)
		if int(n) > mostPart-p.bytes {
			if err := p.flush(); err != nil {
				c.drop(p.answers)
				return err
			}
		}
		part := c.entry
		part.offset, part.length = offset, n
		p.entries, p.bytes = append(p.entries, part), p.bytes+int(n)
		if n > 0 {
			p.parts = append(p.parts, c.bytes.Slice(int(offset), int(offset+n)))
		}
		isLast := offset+n == c.length
		if isLast {
			p.weight, p.large = p.weight+c.weight, p.large+c.large
			c.bytes.Free()
		}
		if c.large > 0 {
			p.server.largeSent.Add(uint64(n))
		}
		if err := p.flushIfFull(); err != nil || isLast {
			if !isLast {
				c.drop(p.answers)
			}
			return err
		}
		offset += n
	}
}

func (p *parcel) flushIfFull() error {
	if p.bytes >= parcelBytes || len(p.entries) == MostIndices/4 {
		return p.flush()
	}
	return nil
}

// flush sends the collected samples. gRPC keeps at most one message of a stream besides the one that it is sending.
func (p *parcel) flush() error {
	if p.isEmpty() {
		return nil
	}
	message := append(mem.BufferSlice{mem.SliceBuffer(encodeParcel(p.id, p.entries))}, p.parts...)
	n := uint64(p.bytes)
	p.brought.Add(n)
	if p.consumer.bytes.Add(n); n > 0 {
		p.consumer.sent.Add(1)
	}
	p.parts = p.parts[:0] // gRPC frees the buffers
	err := p.send(message)
	p.drop()
	return err
}

// drop forgets the collected samples.
func (p *parcel) drop() {
	p.held.Release(p.weight)
	p.server.large.Release(p.large)
	p.parts.Free()
	p.entries, p.parts, p.bytes, p.weight, p.large = p.entries[:0], p.parts[:0], 0, 0, 0
}
