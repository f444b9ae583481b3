// Package epochlayout decides how the log of an importance-sampled epoch is laid out. It decides which samples the
// log keeps, which of them are read in order, and which unused segments of the epoch before stay in place.
//
// A drawn epoch leaves out many samples, and finds many others in memory. The segments that are read in order contain
// neither kind. These samples are in unused segments at the end of the layout, most used first. If the epoch needs
// few samples of an unused segment, the next Logfile takes over its blocks, and those samples are read with random
// reads. A wrong prediction costs only random reads (docs/adr/0025-what-stays-in-place.md).
//
// The package changes no state: it takes a Log and an Epoch, and returns a chunker.Rest. The engine describes its
// Logfiles and memories to it.
package epochlayout

import (
	"slices"

	"lcache/chunker"
	"lcache/internal/disk/offheap"
	"lcache/internal/importance/state"
	"lcache/sample"
)

// Log describes the log of a cache, as far as a layout depends on it.
type Log struct {
	Sizes      []uint32 // of all samples, in bytes
	Align      int
	Segment    uint64 // bytes of a full segment
	Block      uint64 // bytes of a block
	Compressed bool
	Admits     func(sample.Index) bool // reports whether the budget admits a sample by its hash
	Has        func(sample.Index) bool // reports whether the log holds a sample now
}

// Epoch describes a drawn epoch, as far as a layout depends on it.
type Epoch struct {
	*Prediction
	Order         []sample.Index          // samples that the epoch delivers; an index beyond the dataset is not known yet
	Earlier       func() []sample.Index   // returns the samples that the epoch before delivers; nil: it has begun, or its order is not known
	Held          func(sample.Index) bool // reports whether memory holds a sample now
	Unused        *Unused                 // unused segments of the epoch before; nil: not known
	Opportunistic int64                   // memory for opportunistic reads in bytes
}

// Prediction has the samples that an epoch is expected to need most.
type Prediction struct {
	MostUsed []sample.Index // all samples, most used first
	High     *sample.Set    // samples that memory will hold
}

// Predict returns the Prediction of an epoch. It takes ownership of mostUsed (policy.MostUsed), and frees it on
// error. size returns the bytes of a sample in memory.
func Predict(mostUsed []sample.Index, c state.Config, size func(sample.Index) int64) (*Prediction, error) {
	high, err := sample.NewSet(len(mostUsed))
	if err != nil {
		offheap.Free(mostUsed)
		return nil, err
	}
	left := c.Cache
	for _, index := range mostUsed {
		if left -= size(index); left < 0 || c.Policy == "lru" {
			break
		}
		high.Add(index)
	}
	return &Prediction{mostUsed, high}, nil
}

// Free frees the memory of a Prediction.
func (p *Prediction) Free() {
	offheap.Free(p.MostUsed)
	p.High.Close()
}

// Unused has the unused segments of an epoch layout.
type Unused struct {
	layout *chunker.EpochLayout // may be freed while Unused is in use
	first  int                  // first unused segment
	starts []uint64
	order  []sample.Index
}

// CopyUnused copies the unused segments of an epoch layout.
func CopyUnused(l *chunker.EpochLayout) *Unused {
	first := 0
	for first < l.Segments() && !l.IsUnused(first) {
		first++
	}
	return &Unused{layout: l, first: first, starts: slices.Clone(l.Starts), order: slices.Clone(l.Order[l.Starts[first]:])}
}

// members returns the samples of an unused segment.
func (u *Unused) members(k int) []sample.Index {
	return u.order[u.starts[k]-u.starts[u.first] : u.starts[k+1]-u.starts[u.first]]
}

// Unused returns the samples to exclude from the segments that are read in order, and the samples that the log keeps.
// If r has no Order, the layout only follows the epoch's order. If kept is nil, the log keeps the samples that the
// budget admits; otherwise the caller closes kept. The result is valid as long as the Prediction.
func (l *Log) Unused(e *Epoch) (r chunker.Unused, kept *sample.Set) {
	kept, err := l.keeps(e)
	if err != nil || kept == nil && e.Unused == nil {
		return chunker.Unused{}, nil
	}
	r = chunker.Unused{Apart: e.High.Has, Order: e.MostUsed}
	if e.Unused == nil {
		return r, kept
	}
	r.Before, r.Members, r.Carry = e.Unused.layout, e.Unused.members, l.carry(e)
	if kept != nil { // a carried segment keeps all of its samples
		r.Carry = slices.DeleteFunc(r.Carry, func(k int) bool {
			return slices.ContainsFunc(e.Unused.members(k), func(i sample.Index) bool { return !kept.Has(i) })
		})
	}
	return r, kept
}

// carry returns the unused segments that stay in place.
func (l *Log) carry(e *Epoch) []int {
	bytes := 0.0
	for _, size := range l.Sizes {
		bytes += float64(size)
	}
	r := epochReads{mean: bytes / float64(len(l.Sizes)), segment: float64(l.Segment), block: float64(l.Block), opportunistic: float64(e.Opportunistic)}
	if err := l.countReads(e, &r); err != nil {
		return nil
	}
	return chooseCarried(r)
}

// countReads counts, for each unused segment, the samples that the epoch wants from it. It also counts the reads of
// samples that memory will not hold: first reads and repeated reads.
func (l *Log) countReads(e *Epoch, r *epochReads) error {
	of, err := offheap.Make[uint32](len(l.Sizes)) // position in r.unused, plus 1 because new memory is 0
	if err != nil {
		return err
	}
	defer offheap.Free(of)
	seen, err := sample.NewSet(len(l.Sizes))
	if err != nil {
		return err
	}
	defer seen.Close()
	for k := e.Unused.first; k < len(e.Unused.starts)-1; k++ {
		s := unusedSegment{k: k}
		for _, index := range e.Unused.members(k) {
			of[index] = uint32(len(r.unused) + 1)
			s.bytes += float64(chunker.Padded(l.Sizes[index], l.Align))
		}
		r.unused = append(r.unused, s)
	}
	for _, index := range e.Order {
		switch {
		case int(index) >= len(of) || e.High.Has(index): // an open position, or a sample in memory
			continue
		case seen.Has(index):
			r.again++
			continue
		}
		seen.Add(index)
		r.outside++
		if of[index] > 0 {
			r.unused[of[index]-1].wanted++
		}
	}
	return nil
}
