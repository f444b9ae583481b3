package logfile

import (
	"math/rand/v2"
	"sync"
	"testing"

	"lcache/internal/disk/blockio"
	"lcache/sample"
)

// Several writers move all samples from one Logfile to the other and back, in an arena with hardly more places than one Logfile needs, on a disk that finishes writes in
// any order and fails some. A block is freed when its samples are appended. The moves must end, with a consistent free list.
func TestConcurrentReorders(t *testing.T) {
	const n, segments, w, workers = 300, 5, 4096, 4
	sizes := randomSizes(n, w, 2*w, 31)
	total := uint64(0)
	for _, size := range sizes {
		total += Format{Align: 64}.pad(int(size))
	}
	b := newBed(t, 2, w, int(total/w)+2*segments+8, sizes)
	b.opts.Spare = 3
	b.open()
	source := b.begin(0, 0, segments, 400, n)
	for i := range uint32(n) {
		b.append(source, int(i)%segments, i)
	}
	blockio.Inject(b.opts.IO, func(i int64, op *blockio.Op) blockio.Fault {
		switch {
		case op.Buf == nil || !op.Write:
			return blockio.Fault{}
		case i%17 == 3:
			return blockio.Fault{Short: 512, Again: 1}
		}
		return blockio.Fault{}
	})
	for epoch := uint32(1); epoch <= 4; epoch++ {
		target := b.begin(int(epoch%2), epoch, segments, 400, n)
		concurrently(t, b, source, target, workers, rand.New(rand.NewPCG(uint64(epoch), 1)))
		if !source.Empty() {
			t.Fatal("the old logfile is not empty")
		}
		got := 0
		for _, list := range b.check(target) {
			got += len(list)
		}
		if got != n {
			t.Fatalf("epoch %d: %d samples, want %d", epoch, got, n)
		}
		b.books()
		source = target
	}
	b.close()
	if len(b.losses()) != 0 {
		t.Errorf("lost %v", b.losses())
	}
}

func concurrently(t *testing.T, b *bed, source, target *Logfile, workers int, r *rand.Rand) {
	t.Helper()
	type job struct {
		index sample.Index
		seg   int
		done  func()
	}
	jobs := make(chan job)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for j := range jobs {
				if _, err := target.Append(t.Context(), j.seg, j.index, b.content(j.index)); err != nil {
					t.Error(err)
				}
				j.done()
			}
		})
	}
	var frees sync.WaitGroup
	var window []*sync.WaitGroup
	for seg := range source.segs {
		moved := make([]*sync.WaitGroup, source.Blocks(seg))
		for j := range moved {
			moved[j] = &sync.WaitGroup{}
		}
		handed := 0 // all samples of the blocks before it were handed out
		free := func(upto int) {
			for ; handed < upto; handed++ {
				before := moved[:handed+1]
				frees.Go(func() {
					for _, g := range before {
						g.Wait()
					}
					if err := source.FreeBlocks(seg, len(before)); err != nil {
						t.Error(err)
					}
				})
			}
		}
		source.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
			last := int((off + uint64(b.sizes[i]) - 1) / uint64(b.format.Block))
			free(int(off / uint64(b.format.Block)))
			moved[last].Add(1)
			done := &sync.WaitGroup{}
			done.Add(1)
			jobs <- job{i, r.IntN(len(target.segs)), func() { moved[last].Done(); done.Done() }}
			// A writer that lags keeps its block, and all behind it, from being freed. So the others must not run ahead of it by more
			// than there are free places.
			if window = append(window, done); len(window) > 6 {
				window[0].Wait()
				window = window[1:]
			}
			return true
		})
		free(len(moved))
	}
	close(jobs)
	running.Wait()
	frees.Wait()
}

// Two Logfiles take turns in an arena that is hardly larger than one of them.
func TestTwoLogfilesTakeTurns(t *testing.T) {
	const n, segments, w = 120, 4, 4096
	sizes := randomSizes(n, w, 2*w, 6)
	bytes := uint64(0)
	for _, size := range sizes {
		bytes += Format{Align: 64}.pad(int(size))
	}
	c := newBed(t, 2, w, int(bytes/w)+2*segments+4, sizes)
	c.open()
	r := rand.New(rand.NewPCG(7, 7))
	source := c.begin(0, 0, segments, 200, n)
	for i := range uint32(n) {
		c.append(source, r.IntN(segments), i)
	}
	for epoch := uint32(1); epoch <= 6; epoch++ {
		target := c.begin(int(epoch%2), epoch, segments, 200, n)
		if target.Generation() <= source.Generation() {
			t.Fatalf("generations %d, %d", source.Generation(), target.Generation())
		}
		for seg := range segments {
			c.move(source, seg, func(i sample.Index) { c.append(target, r.IntN(segments), i) })
		}
		if !source.Empty() {
			t.Fatalf("epoch %d: the old logfile is not empty", epoch)
		}
		total := 0
		for _, list := range c.check(target) {
			total += len(list)
		}
		if total != n {
			t.Fatalf("epoch %d: %d samples, want %d", epoch, total, n)
		}
		c.books()
		source = target
		if epoch == 3 {
			c.close()
			c.open()
			source = c.s.Logfiles()[epoch%2]
		}
	}
	c.close()
}

// After a kill in the middle of a reorder, both Logfiles have right samples, and the reorder can continue. The places that were freed but not overwritten are
// claimed again, and yet no append hangs.
func TestKilledWhileReordering(t *testing.T) {
	const n, segments, w = 90, 3, 4096
	sizes := randomSizes(n, w, 2*w, 8)
	total := uint64(0)
	for _, size := range sizes {
		total += Format{Align: 64}.pad(int(size))
	}
	b := newBed(t, 1, w, int(total/w)+2*segments+2, sizes)
	b.open()
	defer b.close()
	r := rand.New(rand.NewPCG(3, 3))
	source, target := b.begin(0, 0, segments, 200, n), (*Logfile)(nil)
	for i := range uint32(n) {
		b.append(source, r.IntN(segments), i)
	}
	target = b.begin(1, 1, segments, 200, n)
	moved := 0
	for seg := range segments {
		b.move(source, seg, func(i sample.Index) {
			b.append(target, r.IntN(segments), i)
			if moved++; moved%9 == 0 {
				if err := target.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				goOn(t, b.crashed(), moved)
			}
		})
	}
}

// goOn finishes a killed process's reorder.
func goOn(t *testing.T, c *bed, moved int) {
	t.Helper()
	c.open()
	source, target := c.s.Logfiles()[0], c.s.Logfiles()[1]
	have := map[sample.Index]bool{}
	for _, list := range c.check(source) {
		for _, i := range list {
			have[i] = true
		}
	}
	placed := map[sample.Index]bool{}
	for _, list := range c.check(target) {
		for _, i := range list {
			placed[i], have[i] = true, true
		}
	}
	for seg := range source.segs {
		c.move(source, seg, func(i sample.Index) {
			if !placed[i] {
				c.append(target, int(i)%len(target.segs), i)
			}
		})
	}
	got := 0
	for _, list := range c.check(target) {
		got += len(list)
	}
	if !source.Empty() || got != len(have) {
		t.Errorf("killed after %d samples: %d in the new logfile, want %d; old one empty: %v", moved, got, len(have), source.Empty())
	}
	// First in, first out: samples that were in buffers when the process died are found in the places that were freed last.
	if lost := len(c.sizes) - len(have); lost > 2*len(source.segs) {
		t.Errorf("killed after %d samples: %d of %d are lost", moved, lost, len(c.sizes))
	}
	c.books()
	c.close()
}

// move handles a segment block by block: it reads a block, passes its samples on, and frees it.
func (b *bed) move(l *Logfile, seg int, to func(i sample.Index)) {
	b.t.Helper()
	type item struct {
		i   sample.Index
		end uint64
	}
	var items []item
	l.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
		items = append(items, item{i, off + uint64(b.sizes[i])})
		return true
	})
	dst := aligned(b.t, b.format.Block)
	next := 0
	for j := range l.Blocks(seg) {
		if err := readBlock(l, seg, j, dst); err != nil && !isErr(err, ErrHole) {
			b.t.Fatal(err)
		}
		for next < len(items) && items[next].end <= uint64(j+1)*uint64(b.format.Block) {
			to(items[next].i)
			next++
		}
		if err := l.FreeBlocks(seg, j); err != nil {
			b.t.Fatal(err)
		}
	}
	l.FreeSegment(seg)
}
