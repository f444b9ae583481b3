package engine

import (
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/sample"
)

// TestClusterDiskStandsStill: while no write of a machine ends, it still gets all samples of its peer, at once. It stores none of them for which it has no
// write buffer, and counts these. When the disk works again, it stores what comes.
func TestClusterDiskStandsStill(t *testing.T) {
	d := makeDataset(t, 1500, fileSizes)
	f := newFleet(t, d, samplerJob(9, 16, 2, true), 2, 0)
	defer f.close(t)
	m := f.machines[1]
	f.stop(t, m)
	m.o.LogTimeout = 100 * time.Millisecond // for its appends of samples that it reads from the source
	f.start(t, m)
	f.meet()
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { blockio.Inject(m.cache.IO, nil); close(hold) })
	defer release()
	blockio.Inject(m.cache.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Write && op.Buf != nil {
			return blockio.Fault{Hold: hold}
		}
		return blockio.Fault{}
	})
	f.read(t, 0)
	if n := m.arrivals.Load().skipped.Load(); n == 0 {
		t.Error("no sample is counted as skipped, although the disk stood still")
	}
	stored := func() (n int) {
		for i := range d.bytes {
			if m.cache.Locations.Get(sample.Index(i)) != 0 {
				n++
			}
		}
		return n
	}
	before := stored()
	release()
	for epoch := 1; epoch < 6 && stored() < before+300 && !t.Failed(); epoch++ { // a busy disk may not be ready for all copies of one epoch
		f.read(t, epoch)
	}
	if after := stored(); after < before+300 {
		t.Errorf("%d samples are stored after the disk works again, and %d were before", after, before)
	}
}

// TestPatience: samples of peers wait for a busy disk, one part in ten of the time, and a burst of them once.
func TestPatience(t *testing.T) {
	var p patience
	now := time.Unix(1e9, 0)
	waits := func(n int) (sum time.Duration) {
		for range n {
			sum += p.take(now)
		}
		return sum
	}
	if got := waits(100); got != mostPatience {
		t.Errorf("at first: %v, want %v", got, mostPatience)
	}
	now = now.Add(time.Second)
	if got := waits(100); got != 100*time.Millisecond {
		t.Errorf("after a second: %v, want a tenth of it", got)
	}
	now = now.Add(time.Hour)
	p.take(now)
	p.giveBack(onePatience - time.Millisecond) // it took 1 ms
	if got := waits(100); got != mostPatience-onePatience {
		t.Errorf("after a wait of 1 ms: %v", got)
	}
}
