package logfile

import (
	"errors"
	"slices"
	"testing"

	"lcache/internal/disk/blockio"
	"lcache/sample"
)

// TestTryPut: a sample goes to a package without a wait, or not at all. While no write ends, samples are taken until the write buffers are used, and no
// sample is taken in part. When the writes end, samples are taken again.
func TestTryPut(t *testing.T) {
	const n = 60
	b := newBed(t, 2, 4096, 60, slices.Repeat([]uint32{3000}, n))
	b.open()
	defer b.close()
	p := b.packages(2, 8, 10, 40)
	hold := make(chan struct{})
	blockio.Inject(b.opts.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Write {
			return blockio.Fault{Hold: hold}
		}
		return blockio.Fault{}
	})
	taken := []sample.Index{}
	next := sample.Index(0)
	for ; ; next++ {
		if next == n {
			t.Fatal("all samples were taken although no write ends")
		}
		_, _, err := p.TryPut(int(next)%2, next, b.content(next))
		if errors.Is(err, ErrWaits) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, next)
	}
	if len(taken) == 0 {
		t.Error("no sample was taken, although all buffers were free")
	}
	close(hold)
	blockio.Inject(b.opts.IO, nil)
	b.flush(p.Log())
	number, _, err := p.TryPut(0, next, b.content(next))
	if err != nil {
		t.Fatalf("after the writes have ended: %v", err)
	}
	taken = append(taken, next)
	// Another Put has its open package: the other one is used.
	held := &p.open[0]
	if err := held.turn.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	other, _, err := p.TryPut(0, next+1, b.content(next+1))
	if err != nil || other == number {
		t.Errorf("beside another Put: package %d, %v", other, err)
	}
	taken = append(taken, next+1)
	held.turn.release()
	b.flush(p.Log())
	var found []sample.Index
	for _, in := range b.check(p.Log()) {
		found = append(found, in...)
	}
	slices.Sort(found)
	// What is in an open block is found, too: check reads buffers.
	if !slices.Equal(found, taken) {
		t.Errorf("found %v, want %v", found, taken)
	}
}
