package reorder

import (
	"context"
	"errors"
	"slices"
	"unsafe"

	"lcache/internal/compress"
	"lcache/sample"
)

// With compression a segment's byte string holds compressed bytes, and its slot plain ones. So blocks are read to scratch memory, and
// each sample is unpacked from there to its position in the slot. Plain bytes are also in arrival order.
//
// A huge sample is stored uncompressed, and scratch memory may be smaller than the sample. Blocks that are entirely inside it are read to
// the slot, as without compression, and only its two ends are read to scratch memory. docs/adr/0027-huge-samples-as-they-are.md has the
// reason.

// place assigns positions in the slot to the arrivals. A Logfile with holes from a crash may hold more samples than fit in
// the slot. The last ones then get no position.
func (l *load) place() {
	at := uint64(0)
	for i := range l.arrivals {
		a := &l.arrivals[i]
		size := l.p.padded(uint64(l.p.o.Sizes[a.index]))
		huge := l.p.o.Form.IsHuge(a.index)
		if huge {
			at += (a.off - at) % page // so that its blocks begin at pages of the slot
		}
		if at+size > uint64(len(l.mem)) {
			a.at = noPlace
			continue
		}
		a.at = at
		if huge {
			l.readInPlace(a)
		}
		at += size
	}
	l.end = at
}

// page is the memory alignment of direct I/O.
const page = 4096

// scratchOnly marks a block that is read to scratch memory.
const scratchOnly = ^uint64(0)

// readInPlace assigns positions in the slot to the blocks that are entirely inside a huge sample.
func (l *load) readInPlace(a *arrival) {
	w := uint64(l.p.o.Block)
	if l.inPlace == nil {
		l.inPlace = slices.Repeat([]uint64{scratchOnly}, len(l.blocks))
	}
	for j := (a.off + w - 1) / w; (j+1)*w <= a.off+l.stored(a) && j < uint64(len(l.blocks)); j++ {
		l.inPlace[j] = a.at + j*w - a.off
	}
}

// placeOf returns the part of the slot that block j is read to. ok is false if it is read to scratch memory.
func (l *load) placeOf(j int) (place []byte, ok bool) {
	w := uint64(l.p.o.Block)
	switch {
	case l.bufs == nil:
		at := uint64(j) * w
		return l.mem[at : at+w], true
	case l.inPlace == nil || l.inPlace[j] == scratchOnly:
		return nil, false
	}
	at := l.inPlace[j]
	return l.mem[at : at+w : at+w], true
}

// giveBack returns the buffers of blocks [l.returned, upto), except buffers that may still be written to. l.mu is held.
func (l *load) giveBack(upto int) {
	for ; l.returned < upto; l.returned++ {
		if buf := l.bufs[l.returned]; buf != nil && l.blocks[l.returned] == blockHere {
			l.bufs[l.returned] = nil
			l.p.places.give(buf)
		}
	}
}

// pieces calls f, in order, for each part of a sample's compressed bytes in scratch memory. at is the part's offset in the sample. All blocks of the sample have arrived.
func (l *load) pieces(a *arrival, f func(at uint64, part []byte)) {
	w := uint64(l.p.o.Block)
	for off, end := a.off, a.off+l.stored(a); off < end; {
		stop := min(end, (off/w+1)*w)
		if _, ok := l.placeOf(int(off / w)); !ok {
			f(off-a.off, l.bufs[off/w][off%w:off%w+stop-off])
		}
		off = stop
	}
}

// unpack unpacks a sample to place, which has its size. It returns its compressed bytes in one piece, valid until w.done. The result is
// not verified yet.
func (l *load) unpack(w *worker, a *arrival, place []byte) (data []byte, ok bool) {
	data = l.whole(w, a, place)
	if unsafe.SliceData(data) == unsafe.SliceData(place) {
		return data, true
	}
	return data, l.p.o.Form.Unpack(a.index, data, place) == nil
}

// whole joins the pieces of a sample. An uncompressed sample is joined at place.
func (l *load) whole(w *worker, a *arrival, place []byte) (data []byte) {
	l.pieces(a, func(_ uint64, part []byte) { data = part })
	if uint64(len(data)) == l.stored(a) {
		return data
	}
	data = place
	if l.p.o.Form.Packed(a.index) {
		data = w.lend(l.p, int(l.stored(a)))
	}
	l.pieces(a, func(at uint64, part []byte) { copy(data[at:], part) })
	return data
}

// worker is the state that one goroutine keeps between samples.
type worker struct {
	buf    []byte // for the pieces of a sample that is at most as large as a block
	shared bool   // it has borrowed the Scan's buffer
}

// lend lends n bytes until done. Samples larger than a block share one buffer, one at a time.
func (w *worker) lend(p *Scan, n int) []byte {
	if n <= p.o.Block {
		if w.buf == nil {
			w.buf = make([]byte, p.o.Block)
		}
		return w.buf[:n]
	}
	p.large.Lock()
	w.shared = true
	if len(p.largeBuf) < n {
		p.largeBuf = make([]byte, n)
	}
	return p.largeBuf[:n]
}

func (w *worker) done(p *Scan) {
	if w.shared {
		w.shared = false
		p.large.Unlock()
	}
}

// appendPacked is append for plain bytes.
func (p *Scan) appendPacked(t *EpochLog, seg uint32, index sample.Index, plain []byte) error {
	ctx, cancel := context.WithTimeout(p.ctx, p.o.WriteTimeout)
	defer cancel()
	return p.o.Form.Pack(ctx, index, plain, func(data []byte) error { return p.append(t, seg, index, data) })
}

// dropped counts and logs a sample that was not appended. A lack of room is logged once.
func (p *Scan) dropped(index sample.Index, err error) {
	p.Stats.Dropped.Add(1)
	switch {
	case errors.Is(err, compress.ErrRoom): // a property of the dataset
		p.full.Do(func() {
			p.o.Logger.Warn("the data compresses less than expected: samples without room in the log are read from the source in every epoch")
		})
	case errors.Is(err, errNoRoom):
		p.room.full.Do(func() {
			p.o.Logger.Warn("no room in the next epoch's log: these samples will be read from the source again", "error", err)
		})
	default:
		p.o.Logger.Warn("sample not written to the next epoch's log; it will be read from the source", "sample", index, "error", err)
	}
}
