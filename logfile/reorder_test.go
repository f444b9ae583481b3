package logfile

import (
	"math/rand/v2"
	"sync"
	"testing"

	"lcache/blockio"
	"lcache/sample"
)

// Several writers move all samples from one Logfile to the other and back, in an arena with hardly more places than one needs, on a disk that finishes writes in
// any order and fails some. A block is freed when its samples are appended. It must end, and keep the books.
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
		handed := 0 // blocks before it have all their samples handed out
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
