package packing

import (
	"context"

	"lcache/internal/store/cache"
	"lcache/logfile"
	"lcache/sample"
)

// A victim is a piece that is being emptied, from its start. A block of a segment is freed as soon as all of its
// samples have moved; a package is freed as a whole.
type victim struct {
	log   *logfile.Logfile
	piece piece
	state victimState
	list  []survivor // samples still to move, in the order of the piece
}

// A survivor is a sample that lived in a victim when the victim was scanned.
type survivor struct {
	index sample.Index
	off   uint64
	n     int // stored length in bytes
}

// run returns the next samples that one read into the buffer can load: neighbours with small gaps.
func (v *victim) run(buffer *cache.Buffer) []survivor {
	if len(v.list) == 0 {
		return nil
	}
	first := v.list[0]
	end, n := first.off+uint64(first.n), 1
	for ; n < len(v.list); n++ {
		s := v.list[n]
		to := s.off + uint64(s.n)
		if s.off > end+uint64(s.n) || to-first.off > runBytes || !buffer.Holds(first.off, int(to-first.off)) {
			break
		}
		end = to
	}
	return v.list[:n]
}

// scan lists the live samples of the first victim, and frees the victim if there are none.
func (w *worker) scan() (more bool) {
	v, l := w.victims[0], w.p.o.Cache.Locations
	v.log.Arrivals(v.piece.number, func(_ int, index sample.Index, off uint64) bool {
		if l.Get(index) == l.At(v.piece.num, v.piece.number, off) {
			v.list = append(v.list, survivor{index, off, w.p.o.Cache.StoredSize(index)})
		}
		return true
	})
	if v.state = scanned(len(v.list)); v.state == victimFreed && !w.free(v) {
		v.state = victimKept
	}
	w.dropOver()
	return true
}

// free frees a victim without live samples.
func (w *worker) free(v *victim) bool {
	if !v.piece.isPackage() {
		v.log.FreeSegment(v.piece.number)
	} else if w.store.Free(v.piece.number) != nil {
		return false
	}
	w.pieces.freed(v.piece)
	return true
}

// dropOver removes victims that are freed or kept.
func (w *worker) dropOver() {
	left := w.victims[:0]
	for _, v := range w.victims {
		if !v.state.isOver() {
			left = append(left, v)
		}
	}
	w.victims = left
}

// moveRun moves a run of the first victim's samples into packages. If many arena blocks are free, victims take turns.
// If few are free, the first victim is emptied and freed before the others.
func (w *worker) moveRun() (more bool) {
	v, run := w.victims[0], w.nextRun()
	if w.p.geometry.hasPlacesFor(len(w.victims), w.spare) {
		w.victims = append(w.victims[1:], v)
	}
	last := w.moveSamples(v, run)
	v.state = moved(last, len(v.list))
	w.dropOver()
	return last != later
}

// moveSamples moves samples of a victim and returns the fate of the last one that it handled.
func (w *worker) moveSamples(v *victim, run []survivor) (last fate) {
	first, end := run[0], run[len(run)-1]
	n := int(end.off + uint64(end.n) - first.off)
	if !w.buffer.Holds(first.off, n) { // a huge sample stays, and so does its segment
		return never
	}
	ctx, cancel := context.WithTimeout(w.ctx, w.p.o.ReadTimeout)
	defer cancel()
	data, err := w.buffer.Read(ctx, v.log, v.piece.number, first.off, n)
	if err != nil {
		if len(run) > 1 { // one block may be lost and the others not
			return w.moveSamples(v, run[:1])
		}
		return never
	}
	for _, s := range run {
		if last = w.moveSample(v, s, data[s.off-first.off:][:s.n]); last == later || last == never {
			return last
		}
		v.list = v.list[1:]
	}
	if !v.piece.isPackage() && len(v.list) > 0 {
		_ = v.log.FreeBlocks(v.piece.number, int(v.list[0].off/uint64(w.p.o.Cache.Format.Block)))
	}
	return last
}

// moveSample moves a sample from a victim into a package. If its checksum is wrong, the sample becomes a miss.
func (w *worker) moveSample(v *victim, s survivor, data []byte) fate {
	l := w.p.o.Cache.Locations
	at := l.At(v.piece.num, v.piece.number, s.off)
	f := decideSample(sampleView{emptied: true, hasLeft: l.Get(s.index) != at, mayWrite: w.packing.May(w.p.o.Cache.Padded(s.index))})
	if f == stay {
		return stay
	}
	if !w.isRight(s.index, data) {
		w.p.o.Bad(s.index, at, v.piece.num)
		return stay
	}
	if f != pack {
		return f
	}
	f = w.pack(s.index, at, w.high.Has(s.index), func(ctx context.Context, open int) (int, uint64, error) { return w.store.Put(ctx, open, s.index, data) })
	if f == pack {
		w.p.cleaned.Add(int64(len(data)))
	}
	return f
}

// isRight compares the stored bytes with the sample's checksum.
func (w *worker) isRight(index sample.Index, data []byte) bool {
	c := w.p.o.Cache
	if c.Form != nil && c.Form.Packed(index) {
		plain := make([]byte, c.Manifest.Size(index))
		if c.Form.Unpack(index, data, plain) != nil {
			return false
		}
		data = plain
	}
	return c.Sums.IsRight(index, data)
}
