package bench

import (
	"context"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"lcache/cmd/lcache/internal/doctor"
)

// openDisks makes a file for measurements on each device. It returns the reason if it can't.
func (b *bench) openDisks(ctx context.Context) string {
	seen := map[uint64]bool{}
	for _, dir := range b.o.Engine.Dirs {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return err.Error()
		}
		if seen[st.Dev] {
			continue
		}
		seen[st.Dev] = true
		b.o.Stage("measuring the device of " + dir)
		d, err := doctor.OpenDisk(ctx, doctor.DiskOptions{Dir: dir, Engine: b.o.Engine.IO.Engine, Logger: b.o.Engine.Logger})
		if err != nil {
			return err.Error()
		}
		b.disks = append(b.disks, d)
	}
	return ""
}

// limit measures the rate of all devices at once, in bytes a second.
func (b *bench) limit(ctx context.Context, r *Report, reorder bool) (float64, error) {
	streams := []doctor.Stream{{Size: 1 << 20, Depth: 16}}
	if r.Layout == "static" {
		streams[0] = doctor.Stream{Size: min(r.Unit, 1<<20), Depth: 64, Random: true}
	}
	if reorder {
		streams = append(streams, doctor.Stream{Size: 1 << 20, Depth: 16, Write: true})
	}
	each := make([]float64, len(b.disks))
	var all errgroup.Group
	for i, d := range b.disks {
		all.Go(func() error {
			rates, err := d.Run(ctx, b.o.LimitTime, streams...)
			if err != nil {
				return err
			}
			each[i] = rates[0].BytesPerSecond()
			for _, r := range rates {
				each[i] = min(each[i], r.BytesPerSecond())
			}
			return nil
		})
	}
	err := all.Wait()
	sum := 0.0
	for _, x := range each {
		sum += x
	}
	if r.Layout == "static" && r.Samples > 0 { // reads hold more than samples: only the samples' bytes count
		sum *= float64(r.Bytes) / float64(r.Samples) / float64(r.Unit)
	}
	return sum, err
}
