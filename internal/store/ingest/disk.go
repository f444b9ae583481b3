package ingest

import (
	"context"
	"sync"

	"lcache/internal/store/cache"
)

// leastMeasured is the smallest dataset for which a device is measured: reading a smaller one takes less time than the measurement.
const leastMeasured = 16 << 20

// lookAtDisk collects the facts about the devices. If a new cache may choose its layout, the devices are measured while the source is listed.
// disk waits for the result; for a dataset smaller than leastMeasured it stops the measurement. end stops it in any case.
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
