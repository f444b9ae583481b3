package ingest

import (
	"context"
	"sync"

	"lcache/internal/store/cache"
)

// leastMeasured is the least size of a dataset for whose sake a device is measured: a smaller one is read in less time than the measurement takes.
const leastMeasured = 16 << 20

// lookAtDisk finds out what is known of the devices. For a new cache that may choose its layout they are measured while the source is listed. disk has the
// answer, and waits for it; for a dataset that is smaller than leastMeasured it ends the measurement. end ends it in any case.
func (in *run) lookAtDisk(ctx context.Context) (disk func(bytes uint64) cache.Disk, end func()) {
	asked := in.o.Layout
	if asked == "" && in.old != nil {
		asked = in.old.Layout
	}
	if in.o.Disk == nil || asked != "" && asked != cache.LayoutAuto {
		return func(uint64) cache.Disk { return cache.Disk{} }, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	found, isNew := make(chan cache.Disk, 1), in.old == nil
	go func() { found <- in.o.Disk(ctx, isNew, in.cache.Dirs) }()
	answer := sync.OnceValue(func() cache.Disk { return <-found })
	disk = func(bytes uint64) cache.Disk {
		if bytes < leastMeasured {
			cancel()
		}
		return answer()
	}
	return disk, func() {
		cancel()
		answer()
	}
}
