package doctor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"lcache/internal/disk/blockio"
)

// A Stream is one kind of transfer, kept in flight at some depth.
type Stream struct {
	Size   int // bytes of a transfer
	Depth  int // transfers in flight
	Random bool
	Write  bool
}

// A Rate is the number of transfers of a Stream in the counted time.
type Rate struct {
	Bytes, Ops int64
	Seconds    float64
	Median     time.Duration // of one transfer; 0 unless the depth is 1
}

// BytesPerSecond is the bandwidth.
func (r Rate) BytesPerSecond() float64 { return float64(r.Bytes) / r.Seconds }

// OpsPerSecond is the rate of transfers.
func (r Rate) OpsPerSecond() float64 { return float64(r.Ops) / r.Seconds }

// Run keeps all streams in flight at once for a time. It does not count the first eighth of that time, at most 300 ms, in which the queues
// fill. Streams that go in order begin in different parts of the file. The buffers of all streams together may have 32 MiB.
func (d *Disk) Run(ctx context.Context, length time.Duration, streams ...Stream) ([]Rate, error) {
	rates, _, err := d.run(ctx, length, 0, streams...)
	return rates, err
}

// round is one Run.
type round struct {
	disk      *Disk
	warm, end time.Time
	span      int64 // bytes of the file that are used
	once      bool  // it ends when all of span was handed out
	most      int64 // bytes of one stream that are counted before all streams end; 0: any
	stopped   atomic.Bool
	full      atomic.Int64 // when most was reached, in nanoseconds from warm; 0: it was not
	ended     chan error   // one value for each lane
}

// flow is a Stream in one round.
type flow struct {
	Stream
	*round
	next       atomic.Int64 // bytes handed out, of a flow that goes in order
	from       int64        // offset at which it began
	bytes, ops atomic.Int64
	times      []time.Duration // of each transfer, at depth 1 only
}

// lane is one of the transfers that a flow keeps in flight. When it is done, it is submitted again.
type lane struct {
	*flow
	op    blockio.Op
	rng   *rand.Rand
	began time.Time
}

// run is Run. With a size it goes over that many bytes once, and written is the number of bytes that it reached.
func (d *Disk) run(ctx context.Context, length time.Duration, size int64, streams ...Stream) (rates []Rate, written int64, err error) {
	now := time.Now()
	r := &round{disk: d, warm: now.Add(min(length/8, 300*time.Millisecond)), end: now.Add(length), span: d.size, once: size > 0, most: d.most}
	if r.once {
		r.span = size
	}
	lanes, err := r.lanes(streams)
	if err != nil {
		return nil, 0, err
	}
	r.ended = make(chan error, len(lanes))
	for _, l := range lanes {
		if !l.aim() {
			r.ended <- nil
			continue
		}
		l.began = time.Now()
		d.io.Submit(&l.op)
	}
	if err := r.wait(ctx, len(lanes), length); err != nil {
		return nil, 0, err
	}
	var f *flow
	for _, l := range lanes {
		if l.flow != f {
			f = l.flow
			rates = append(rates, f.rate())
		}
	}
	return rates, min(f.next.Load(), r.span), nil
}

// lanes cuts the memory into the buffers of all streams.
func (r *round) lanes(streams []Stream) (lanes []*lane, err error) {
	at := 0
	for i, s := range streams {
		if align := max(r.disk.file.OffAlign(), r.disk.file.MemAlign()); s.Size%align != 0 || int64(s.Size) > r.span {
			return nil, fmt.Errorf("transfers of %d bytes can't be measured: the device wants multiples of %d, the file has %d bytes", s.Size, align, r.span)
		}
		if at+s.Size*s.Depth > len(r.disk.mem) {
			return nil, fmt.Errorf("%d transfers of %d bytes have no room in %d bytes", s.Depth, s.Size, len(r.disk.mem))
		}
		places := r.span / int64(s.Size)
		f := &flow{Stream: s, round: r, from: places * int64(i) / int64(len(streams)) * int64(s.Size)}
		for k := range s.Depth {
			l := &lane{flow: f, rng: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(k)))}
			l.op = blockio.Op{File: r.disk.file, Write: s.Write, Buf: r.disk.mem[at:][:s.Size:s.Size], Done: l.done}
			lanes = append(lanes, l)
			at += s.Size
		}
	}
	return lanes, nil
}

// aim chooses the next offset. It returns false if there is none left.
func (l *lane) aim() bool {
	size := int64(l.Size)
	places := l.span / size
	if l.Random {
		l.op.Offset = l.rng.Int64N(places) * size
		return true
	}
	at := l.next.Add(size) - size
	if l.once && at+size > l.span {
		return false
	}
	l.op.Offset = (l.from + at) % (places * size)
	return true
}

// done counts a transfer, and submits the next one.
func (l *lane) done(_ *blockio.Op, err error) {
	now := time.Now()
	if err == nil && now.After(l.warm) && !now.After(l.end) && l.full.Load() == 0 {
		l.ops.Add(1)
		if n := l.bytes.Add(int64(l.Size)); l.most > 0 && n >= l.most && !l.once && l.full.CompareAndSwap(0, int64(now.Sub(l.warm))) {
			l.stopped.Store(true)
		}
		if l.Depth == 1 {
			l.times = append(l.times, now.Sub(l.began))
		}
	}
	if err != nil || !now.Before(l.end) || l.stopped.Load() || !l.aim() {
		l.ended <- err
		return
	}
	l.began = now
	l.disk.io.Submit(&l.op)
}

// wait waits until all lanes have ended. If the device does not complete a transfer in time, wait gives up.
func (r *round) wait(ctx context.Context, lanes int, length time.Duration) (first error) {
	hung := time.NewTimer(length + patience)
	defer hung.Stop()
	cancelled := ctx.Done()
	for range lanes {
		for got := false; !got; {
			select {
			case err := <-r.ended:
				got = true
				if err != nil && first == nil {
					first = err
					r.stopped.Store(true)
				}
			case <-cancelled:
				first, cancelled = ctx.Err(), nil
				r.stopped.Store(true)
			case <-hung.C:
				r.disk.hung = true
				r.stopped.Store(true)
				return errHung
			}
		}
	}
	return first
}

func (f *flow) rate() Rate {
	r := Rate{Bytes: f.bytes.Load(), Ops: f.ops.Load(), Seconds: f.end.Sub(f.warm).Seconds()}
	if full := time.Duration(f.full.Load()); full > 0 {
		r.Seconds = full.Seconds()
	}
	if n := len(f.times); n > 0 {
		slices.Sort(f.times)
		r.Median = f.times[n/2]
	}
	return r
}
