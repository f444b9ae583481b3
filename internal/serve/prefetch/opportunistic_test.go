package prefetch_test

import (
	"slices"
	"sync"
	"testing"

	"lcache/internal/serve/fetch"
	"lcache/sample"
)

// opportunistic is memory for a number of samples from opportunistic reads.
type opportunistic struct {
	b    *bed
	room int

	mu    sync.Mutex // guards the fields that follow
	want  map[sample.Index]bool
	kept  map[sample.Index][]byte
	again map[sample.Index]int // how often each chunk's own samples were passed to Again
	taken int                  // reserved and not dropped
}

func (a *opportunistic) Wanted(of []sample.Index) (wanted []sample.Index) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range of {
		if a.want[i] {
			wanted = append(wanted, i)
		}
	}
	return wanted
}

func (a *opportunistic) Take(index sample.Index) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.want[index] || a.taken >= a.room {
		return false
	}
	delete(a.want, index)
	a.taken++
	return true
}

func (a *opportunistic) Keep(index sample.Index, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept[index] = slices.Clone(data)
}

func (a *opportunistic) Again(index sample.Index, data []byte) {
	a.b.Is(index, data)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again[index]++
}

func (a *opportunistic) Drop(index sample.Index) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.want[index] = true
	a.taken--
}

// Has and Copy make the memory the first supplier.
func (a *opportunistic) Has(index sample.Index) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kept[index] != nil
}

func (a *opportunistic) Copy(index sample.Index, dst []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return copy(dst, a.kept[index]) > 0
}

// TestOpportunisticReads: samples of 3,000 bytes are stored one after the other. An epoch requests every third one,
// in an order in which neighbours are far apart. A read also loads samples up to 32 KiB away, and each of them is
// later copied from memory. So there are far fewer reads, and no sample is read twice. Without memory for them, each
// sample is a separate read. The memory gets the bytes of each sample that is read for its own chunk, once.
func TestOpportunisticReads(t *testing.T) {
	const n, each, stride = 900, 3, 37 // neighbours are 73 batches apart
	for _, c := range []struct {
		name        string
		room        int
		least, most uint64 // number of reads
	}{
		{"room for all", n, n / each / 40, n / each / 3},
		{"room for some", n / each / 4, n / each / 2, n / each * 3 / 4},
		{"no room", 0, n / each * 19 / 20, n / each},
	} {
		t.Run(c.name, func(t *testing.T) {
			var order [][]sample.Index
			for k := range n / each {
				order = append(order, []sample.Index{sample.Index(k * stride % (n / each) * each)})
			}
			b := newReaderBed(t, n, n, 30*room, fetch.Options{}, map[int][][]sample.Index{0: order})
			a := &opportunistic{b: b.bed, room: c.room, want: map[sample.Index]bool{}, kept: map[sample.Index][]byte{}, again: map[sample.Index]int{}}
			for _, chunk := range order {
				a.want[chunk[0]] = true
			}
			b.opportunistic = a
			b.Fetcher.Held.Store(&fetch.Holders{a})
			before := b.reads()
			for batch, chunk := range order {
				a.mu.Lock()
				delete(a.want, chunk[0]) // it is requested now
				a.mu.Unlock()
				b.ask(0, batch) // compares its bytes
			}
			if got := b.reads() - before; got < c.least || got > c.most {
				t.Errorf("%d reads for %d samples, want %d to %d", got, len(order), c.least, c.most)
			}
			for i, data := range a.kept {
				b.Is(i, data)
			}
			for _, chunk := range order {
				if i := chunk[0]; (a.kept[i] == nil) != (a.again[i] == 1) || a.again[i] > 1 {
					t.Errorf("Again was called %d times for sample %d; an opportunistic read kept it: %v", a.again[i], i, a.kept[i] != nil)
				}
			}
			if a.taken != len(a.kept) {
				t.Errorf("memory is set apart for %d samples, and %d were kept", a.taken, len(a.kept))
			}
			if a.taken > c.room || c.room > 0 && a.taken < min(c.room, n/each/2) {
				t.Errorf("%d samples were read opportunistically, with room for %d", a.taken, c.room)
			}
			if got := len(b.Source.Reads()); got != 0 {
				t.Errorf("%d reads from the source", got)
			}
		})
	}
}
