package logfile

import (
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
)

// If the kernel loses transfers and syncs of a ring, the ring submits them again: the device is not quarantined, and Seal ends. Regression: a lost
// transfer counted as a hang of its device, and Seal waited for a lost sync without a limit.
func TestLostByTheKernel(t *testing.T) {
	const n = 20
	b := deviceBed(t, n)
	b.open()
	pass := b.clock()
	blockio.InjectTick(b.opts.IO, time.Millisecond)
	var lost atomic.Int64
	blockio.Inject(b.opts.IO, func(n int64, op *blockio.Op) blockio.Fault {
		if n%3 == 0 || op.Buf == nil {
			lost.Add(1)
			return blockio.Fault{Lost: 1}
		}
		return blockio.Fault{}
	})
	l := b.begin(0, 0, 1, 4*n, n)
	b.fill(l, 0, n)
	b.flush(l)
	if err := b.s.syncAll(t.Context(), l); err != nil {
		t.Error(err)
	}
	if got := b.check(l)[0]; len(got) != n {
		t.Errorf("%d of %d samples", len(got), n)
	}
	for range hungTicks {
		pass(0)
	}
	b.wantStates(DeviceNormal, DeviceNormal)
	if lost.Load() < 2 {
		t.Errorf("%d transfers were lost", lost.Load())
	}
	blockio.Inject(b.opts.IO, nil)
	b.close()
}
