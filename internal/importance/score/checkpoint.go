package score

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"lcache/sample"
)

// A scorer can be saved and restored, so that a training that continues after a crash draws the same orders as
// without a crash. Data that follow from the parameters are not saved; restore into a scorer with the same
// parameters. All numbers are little-endian.

// ErrSaved is the class of errors about an invalid saved state.
var ErrSaved = errors.New("the saved state of a scorer is damaged")

// mostEpochs bounds the numbers of epochs in a saved state.
const mostEpochs = math.MaxInt32

// saver writes numbers, and remembers the first error.
type saver struct {
	w   io.Writer
	buf []byte
	err error
}

func (s *saver) put(b []byte) {
	if s.err == nil {
		_, s.err = s.w.Write(b)
	}
}

func (s *saver) u8(v uint8)    { s.put([]byte{v}) }
func (s *saver) u32(v uint32)  { s.put(binary.LittleEndian.AppendUint32(nil, v)) }
func (s *saver) f64(v float64) { s.put(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))) }

func (s *saver) flag(v bool) {
	if v {
		s.u8(1)
	} else {
		s.u8(0)
	}
}

func (s *saver) f64s(a []float64) {
	for len(a) > 0 && s.err == nil {
		n := min(len(a), 8192)
		s.buf = s.buf[:0]
		for _, v := range a[:n] {
			s.buf = binary.LittleEndian.AppendUint64(s.buf, math.Float64bits(v))
		}
		s.put(s.buf)
		a = a[n:]
	}
}

func (s *saver) u16s(a []uint16) {
	for len(a) > 0 && s.err == nil {
		n := min(len(a), 8192)
		s.buf = s.buf[:0]
		for _, v := range a[:n] {
			s.buf = binary.LittleEndian.AppendUint16(s.buf, v)
		}
		s.put(s.buf)
		a = a[n:]
	}
}

// list writes the length of a list, then its numbers.
func (s *saver) list(a []uint32) {
	s.u32(uint32(len(a)))
	for _, v := range a {
		s.u32(v)
	}
}

func (s *saver) floats(a []float64) {
	s.u32(uint32(len(a)))
	s.f64s(a)
}

// restorer reads the output of a saver. It checks every number; an invalid one is an ErrSaved.
type restorer struct {
	r   io.Reader
	buf []byte
	err error
}

func (r *restorer) get(n int) []byte {
	if cap(r.buf) < n {
		r.buf = make([]byte, n)
	}
	b := r.buf[:n]
	if r.err == nil {
		_, r.err = io.ReadFull(r.r, b)
	}
	if r.err != nil {
		clear(b)
	}
	return b
}

func (r *restorer) wrong(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrSaved, fmt.Sprintf(format, args...))
	}
}

func (r *restorer) u8() uint8   { return r.get(1)[0] }
func (r *restorer) u32() uint32 { return binary.LittleEndian.Uint32(r.get(4)) }

// finite reads a finite number.
func (r *restorer) finite() float64 {
	v := math.Float64frombits(binary.LittleEndian.Uint64(r.get(8)))
	if math.IsNaN(v) || math.IsInf(v, 0) {
		r.wrong("a number is %v, not finite", v)
		return 0
	}
	return v
}

// upTo reads an integer from 0 to most.
func (r *restorer) upTo(most int, what string) int {
	v := r.u32()
	if uint64(v) > uint64(most) {
		r.wrong("%s is %d, greater than %d", what, v, most)
		return 0
	}
	return int(v)
}

func (r *restorer) flag() bool { return r.upTo8(1, "a flag") == 1 }

func (r *restorer) upTo8(most uint8, what string) uint8 {
	v := r.u8()
	if v > most {
		r.wrong("%s is %d, greater than %d", what, v, most)
		return 0
	}
	return v
}

// f64s fills dst with numbers that must be finite and at least 0.
func (r *restorer) f64s(dst []float64) {
	for len(dst) > 0 && r.err == nil {
		n := min(len(dst), 8192)
		b := r.get(8 * n)
		for k := range n {
			v := math.Float64frombits(binary.LittleEndian.Uint64(b[8*k:]))
			if !(v >= 0 && v <= math.MaxFloat64) {
				r.wrong("a value is %v, not finite and ≥ 0", v)
				return
			}
			dst[k] = v
		}
		dst = dst[n:]
	}
}

func (r *restorer) u16s(dst []uint16) {
	for len(dst) > 0 && r.err == nil {
		n := min(len(dst), 8192)
		b := r.get(2 * n)
		for k := range n {
			dst[k] = binary.LittleEndian.Uint16(b[2*k:])
		}
		dst = dst[n:]
	}
}

// list reads ascending indices below n. It allocates memory for at most most of them.
func (r *restorer) list(n, most int) (a []uint32) {
	count := r.upTo(most, "the length of a list")
	last := -1
	for range count {
		i := r.u32()
		if r.err != nil {
			return nil
		}
		if int64(i) >= int64(n) || int64(i) <= int64(last) {
			r.wrong("a list has index %d after %d, of %d samples", i, last, n)
			return nil
		}
		last = int(i)
		a = append(a, i)
	}
	return a
}

func (r *restorer) floats(most int) (a []float64) {
	for range r.upTo(most, "the length of a list") {
		v := r.finite()
		if r.err != nil {
			return nil
		}
		a = append(a, v)
	}
	return a
}

// states are the states of a method, in their saved order.
var states = []State{Active, Warmup, Idle}

func (s *values) save(w *saver) {
	w.f64s(s.v)
	w.u16s(s.stamp)
	w.u32(uint32(s.epoch))
	for k, state := range states {
		if s.activity.State == state {
			w.u8(uint8(k))
		}
	}
	w.f64(s.activity.ObservedShare)
	w.u32(uint32(s.activity.LastObserved + 1))
	w.u32(uint32(s.activity.Silent))
}

func (s *values) restore(r *restorer) {
	r.f64s(s.v)
	r.u16s(s.stamp)
	s.epoch = r.upTo(mostEpochs, "the epoch")
	s.activity = Activity{State: states[r.upTo8(uint8(len(states)-1), "the state")], ObservedShare: r.finite()}
	s.activity.LastObserved = r.upTo(mostEpochs, "the last epoch observed") - 1
	s.activity.Silent = r.upTo(mostEpochs, "the number of silent epochs")
	s.seen, s.observed = 0, 0
	for _, stamp := range s.stamp {
		if stamp != 0 {
			s.seen++
		}
		if stamp == fold(s.epoch) {
			s.observed++
		}
	}
}

// Save writes all observations; see [Scorer].
func (s *values) Save(w io.Writer) error {
	out := &saver{w: w}
	s.save(out)
	return out.err
}

// Restore reads what Save wrote; see [Scorer].
func (s *values) Restore(from io.Reader) error {
	r := &restorer{r: from}
	s.restore(r)
	return r.err
}

// Save writes all observations, and the warm-up.
func (l *Loss) Save(w io.Writer) error {
	out := &saver{w: w}
	l.values.save(out)
	out.list(l.unstable)
	out.u32(uint32(l.warmEpochs))
	out.flag(l.warm != nil)
	if l.warm != nil {
		out.u32(uint32(l.warm.epochs))
		out.list(l.warm.s)
		out.floats(l.warm.overlaps)
		out.f64s(l.warm.mean)
		out.f64s(l.warm.spread)
	}
	return out.err
}

// Restore reads what Save wrote.
func (l *Loss) Restore(from io.Reader) error {
	r, n := &restorer{r: from}, len(l.v)
	l.values.restore(r)
	l.unstable = r.list(n, n)
	l.warmEpochs = r.upTo(mostEpochs, "the length of the warm-up")
	switch warms := r.flag(); {
	case r.err != nil:
	case !warms && l.warm != nil:
		l.warm.Close()
		l.warm = nil
	case warms && l.warm == nil:
		r.wrong("the state has a warm-up, and the parameters have none")
	case warms:
		l.warm.epochs = r.upTo(mostEpochs, "the epochs of the warm-up")
		l.warm.s = r.list(n, n)
		l.warm.overlaps = r.floats(l.warm.epochs)
		r.f64s(l.warm.mean)
		r.f64s(l.warm.spread)
	}
	return r.err
}

// Save writes all observations, and the elastic ratio.
func (s *Graph) Save(w io.Writer) error {
	out := &saver{w: w}
	s.values.save(out)
	if e := s.elastic; e != nil {
		out.f64(e.ratio)
		out.u32(uint32(e.epoch))
		out.flag(e.falling)
		out.floats(e.sigma)
		out.floats(e.accuracy)
	}
	return out.err
}

// Restore reads what Save wrote.
func (s *Graph) Restore(from io.Reader) error {
	r := &restorer{r: from}
	s.values.restore(r)
	if e := s.elastic; e != nil {
		e.ratio = r.finite()
		e.epoch = r.upTo(mostEpochs, "the epoch of the ratio")
		e.falling = r.flag()
		e.sigma = r.floats(e.m)
		e.accuracy = r.floats(e.m + 1 + window)
		if r.err == nil && (e.ratio < min(e.start, e.end) || e.ratio > max(e.start, e.end)) {
			r.wrong("the ratio is %v", e.ratio)
		}
	}
	return r.err
}

// Save writes the accuracies.
func (p *Repetition) Save(w io.Writer) error {
	out := &saver{w: w}
	out.floats(p.accuracy)
	return out.err
}

// Restore reads what Save wrote.
func (p *Repetition) Restore(from io.Reader) error {
	r := &restorer{r: from}
	p.accuracy = r.floats(4)
	return r.err
}

// Restarted forgets the batches of a rank, because a new training process counts its batches from 0.
func (o *Once) Restarted(rank uint16) {
	for key := range o.newest {
		if key.rank == rank {
			delete(o.newest, key)
		}
	}
}

// Unstable returns the samples that a scorer wants to be evaluated again between two epochs. Most scorers want none.
func Unstable(s Scorer) []sample.Index {
	if l, ok := s.(*Loss); ok {
		return l.Unstable()
	}
	return nil
}
