package plan

import (
	"context"
	"fmt"
)

// frequencyTable places samples as NoPFS does: a worker holds what it reads at least once, most often first, equals by
// first use; class 1 is filled, then class 2. It takes a byte for each worker and sample.
type frequencyTable struct {
	limits  [Classes]uint64 // running sizes at which the classes end
	codes   [][]uint8       // by worker and sample: first the count, then the class, or a code from unresolved on
	running [][]uint64      // by worker and unresolved count: the running size
}

// unresolved is the first code of samples whose count is one at which a class ends: which class they are in depends on when
// they are first used. There are at most as many such counts as classes.
const unresolved = Classes

const mostCounted = 255

func newFrequencyTable(samples, workers, epochs int, capacity [Classes]float64, memory float64) (*frequencyTable, error) {
	if need := float64(samples) * float64(workers); need > memory {
		return nil, fmt.Errorf("exact counts of %d samples by %d workers need %s of memory, and may take %s: use the method sampled, scale down, or allow more",
			samples, workers, gigabytes(need), gigabytes(memory))
	}
	if epochs > mostCounted {
		return nil, fmt.Errorf("exact counts go up to %d epochs, and there are %d: use the method sampled", mostCounted, epochs)
	}
	f := &frequencyTable{codes: make([][]uint8, workers), running: make([][]uint64, workers)}
	for j := 1; j < Classes; j++ {
		f.limits[j] = f.limits[j-1] + wholeBytes(capacity[j])
	}
	for i := range f.codes {
		f.codes[i] = make([]uint8, samples)
	}
	return f, nil
}

// count adds an epoch's reads of one worker.
func (f *frequencyTable) count(worker int, order []uint32, steps, batch int) {
	counts := f.codes[worker]
	for h := range steps {
		at := (h*len(f.codes) + worker) * batch
		for _, k := range order[at : at+batch] {
			counts[k]++
		}
	}
}

// classAt is the class that a running size lies in; 0 beyond the last.
func (f *frequencyTable) classAt(running uint64) uint8 {
	for j := 1; j < Classes; j++ {
		if running <= f.limits[j] {
			return uint8(j)
		}
	}
	return 0
}

// rank turns the counts of one worker into classes, and leaves those open that depend on the first use.
func (f *frequencyTable) rank(worker int, sizes []uint32) {
	codes := f.codes[worker]
	var level [mostCounted + 1]uint64
	for k, c := range codes {
		level[c] += uint64(sizes[k])
	}
	var codeOf [mostCounted + 1]uint8
	running := uint64(0)
	for c := mostCounted; c >= 1; c-- {
		first, last := f.classAt(running+1), f.classAt(running+level[c])
		codeOf[c] = last
		if first != last && level[c] > 0 {
			codeOf[c] = unresolved + uint8(len(f.running[worker]))
			f.running[worker] = append(f.running[worker], running)
		}
		running += level[c]
	}
	for k, c := range codes {
		codes[k] = codeOf[c]
	}
}

// isResolved says that every class of a worker is full, or was never reached: what is still open is held by nobody.
func (f *frequencyTable) isResolved(worker int) bool {
	for _, running := range f.running[worker] {
		if running <= f.limits[Classes-1] {
			return false
		}
	}
	return true
}

// resolve decides what an epoch's first uses decide, for one worker.
func (f *frequencyTable) resolve(worker int, order []uint32, steps, batch int, sizes []uint32) {
	codes, running := f.codes[worker], f.running[worker]
	for h := range steps {
		at := (h*len(f.codes) + worker) * batch
		for _, k := range order[at : at+batch] {
			if code := codes[k]; code >= unresolved {
				size := &running[code-unresolved]
				*size += uint64(sizes[k])
				codes[k] = f.classAt(*size)
			}
		}
	}
}

// build counts the reads of all epochs, and places the samples.
func (f *frequencyTable) build(ctx context.Context, x *exact) (*holding, error) {
	n := len(f.codes)
	for epoch := range x.epochs {
		order, err := x.order(ctx, epoch)
		if err != nil {
			return nil, err
		}
		split(n, func(from, to int) {
			for i := from; i < to; i++ {
				f.count(i, order, x.steps, x.batch)
			}
		})
		x.progress(0.4 * float64(epoch+1) / float64(x.epochs))
	}
	split(n, func(from, to int) {
		for i := from; i < to; i++ {
			f.rank(i, x.sizes)
		}
	})
	for epoch := range x.epochs {
		open := false
		for i := range n {
			open = open || !f.isResolved(i)
		}
		if !open {
			break
		}
		order, err := x.order(ctx, epoch)
		if err != nil {
			return nil, err
		}
		split(n, func(from, to int) {
			for i := from; i < to; i++ {
				f.resolve(i, order, x.steps, x.batch, x.sizes)
			}
		})
	}
	return f.holding(x), nil
}

// holding is the table as places are looked up: classes become places, once it is known who else holds a sample. What
// nothing decided is held by nobody.
func (f *frequencyTable) holding(x *exact) *holding {
	h := newHolding(x.rates, NoPFS)
	h.from = f.codes
	h.best = make([]uint8, len(x.sizes))
	const block = 1 << 16 // samples whose classes stay in the processor's cache
	split((len(x.sizes)+block-1)/block, func(from, to int) {
		for b := from; b < to; b++ {
			f.place(h, b*block, min((b+1)*block, len(x.sizes)))
		}
	})
	return h
}

func (f *frequencyTable) place(h *holding, from, to int) {
	best := h.best[from:to]
	for _, codes := range f.codes {
		for k, c := range codes[from:to] {
			if c >= unresolved {
				c, codes[from+k] = 0, 0
			}
			if c > 0 && (best[k] == 0 || c < best[k]) {
				best[k] = c
			}
		}
	}
	for _, codes := range f.codes {
		for k, c := range codes[from:to] {
			codes[from+k] = uint8(h.pick[c][best[k]])
		}
	}
}
