package logfile

import (
	"math/rand/v2"
	"testing"

	"lcache/internal/testenv"
	"lcache/sample"
)

// A clean stop in the middle of a reorder keeps every sample, in one Logfile or the other, with few free places. In addition to the samples, the arena has only one place
// for each tail of both Logfiles, and one for each block that is appended and not yet freed.
func TestStopWhileReordering(t *testing.T) {
	testenv.Long(t)
	const n, segments, w = 90, 3, 4096
	sizes := randomSizes(n, w, 2*w, 8)
	total := uint64(0)
	for _, size := range sizes {
		total += Format{Align: 64}.pad(int(size))
	}
	for stop := 0; stop < n; stop += 7 {
		for _, kept := range []int{0, 3} {
			b := newBed(t, 1, w, int(total/w)+2*segments+2*kept, sizes)
			b.open()
			r := rand.New(rand.NewPCG(uint64(stop), 3))
			source := b.begin(0, 0, segments, 200, n)
			for i := range uint32(n) {
				b.append(source, r.IntN(segments), i)
			}
			target := b.begin(1, 1, segments, 200, n)
			b.moveSome(source, target, stop, kept, r)
			b.close()
			if lost := b.losses(); len(lost) > 0 {
				t.Errorf("stopped after %d samples, %d of them kept: lost %v", stop, kept, lost)
			}
			if have := b.stored(); len(have) != n {
				t.Errorf("stopped after %d samples, %d of them kept: %d of %d were found", stop, kept, len(have), n)
			}
		}
	}
}

// moveSome moves the first samples of a Logfile to another, and frees the blocks of all of them but the last kept ones.
func (b *bed) moveSome(source, target *Logfile, most, kept int, r *rand.Rand) {
	b.t.Helper()
	moved := 0
	for seg := range source.segs {
		type item struct {
			i   sample.Index
			off uint64
		}
		var items []item
		source.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
			items = append(items, item{i, off})
			return true
		})
		for k, it := range items {
			if moved == most {
				return
			}
			b.append(target, r.IntN(len(target.segs)), it.i)
			moved++
			if k+1 == len(items) || moved > most-kept {
				continue
			}
			if err := source.FreeBlocks(seg, int(items[k+1].off/uint64(b.format.Block))); err != nil {
				b.t.Fatal(err)
			}
		}
		if moved <= most-kept {
			source.FreeSegment(seg)
		}
	}
}

// stored opens a cache and returns the samples of both Logfiles. All of them must be right.
func (b *bed) stored() map[sample.Index]bool {
	b.t.Helper()
	b.open()
	defer b.close()
	have := map[sample.Index]bool{}
	for _, l := range b.s.Logfiles() {
		if l == nil {
			continue
		}
		for _, list := range b.check(l) {
			for _, i := range list {
				have[i] = true
			}
		}
	}
	b.books()
	return have
}
