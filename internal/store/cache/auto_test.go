package cache

import (
	"strings"
	"testing"

	"lcache/internal/plan"
)

// TestLayoutFor chooses by given facts. The capped volume has 3,000 operations of up to 256 KiB and 500 MB per
// second.
func TestLayoutFor(t *testing.T) {
	capped := plan.DiskLine{ReadBPS: 500e6, WriteBPS: 500e6, ReadIOPS: 3000, WriteIOPS: 3000, OpBytes: 256 << 10}
	combined := plan.DiskLine{CombinedBPS: 500e6, CombinedIOPS: 3000, OpBytes: 256 << 10}
	nvme := plan.DiskLine{ReadBPS: 3.2e9, WriteBPS: 3e9, ReadIOPS: 500e3, WriteIOPS: 300e3, Mix: 0.5}
	const bytes = 64e9
	for _, c := range []struct {
		name   string
		disk   plan.DiskLine
		sample float64
		change func(*plan.Facts)
		want   string
		why    string
	}{
		{"capped, 16 KB", capped, 16e3, nil, LayoutLog, "read in place an epoch takes 22 min 13 s (bound by the disk), reordered 2 min 8 s (by the disk), by a disk that was forced: reordering saves 90 % of an epoch, and writes 64 GB in each epoch"},
		{"capped, 400 KB", capped, 400e3, nil, LayoutStatic, "reordering would save 1 % of an epoch, and write 64 GB"},
		{"one combined cap, 16 KB", combined, 16e3, nil, LayoutLog, "reordering saves 81 %"},
		{"one combined cap, 108 KB", combined, 108e3, nil, LayoutStatic, "reordering would save nothing"},
		{"NVMe, 108 KB", nvme, 108e3, nil, LayoutStatic, "reordering would save nothing"},
		{"NVMe, 1 KB", nvme, 1e3, nil, LayoutLog, "bound by the disk"},
		{"an unlimited disk", plan.DiskLine{}, 1e3, nil, LayoutStatic, "reordering would save nothing"},
		{"one epoch", capped, 16e3, func(f *plan.Facts) { f.Epochs = 1 }, LayoutLog, "there is only one epoch"},
		{"a training that is slower than any read", capped, 16e3, func(f *plan.Facts) { f.ConsumerBPS = 40e6 }, LayoutStatic, "bound by the consumer"},
		{"a quarter is kept, and the source is slower than the disk in place", capped, 16e3, func(f *plan.Facts) { f.Admit, f.Source.BPS = 0.25, 40e6 }, LayoutStatic, "bound by the source"},
		{"drives that are meant for less than that", capped, 16e3, func(f *plan.Facts) { f.WearPerDay = 1e12 }, LayoutStatic, "reordering would save 90 % of an epoch, and write 64 GB in each epoch; that is more than the drives are rated for, 1 TB a day"},
		{"replacement", capped, 16e3, func(f *plan.Facts) { f.LeftOut = 0.37 }, LayoutStatic, ""},
		{"a part of the world", capped, 16e3, func(f *plan.Facts) { f.Nodes, f.WithoutPeers = 4, true }, LayoutStatic, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := plan.Facts{DatasetBytes: bytes, Samples: bytes / c.sample, Batch: 256, Epochs: 90, CacheBytes: unlimited, MemoryBytes: unlimited, AsHeld: true, Device: c.disk}
			if c.change != nil {
				c.change(&f)
			}
			layout, reason, err := LayoutFor(f, "forced")
			if err != nil || layout != c.want || !strings.Contains(reason, c.why) {
				t.Errorf("%s: %s (%v)\nwant %s: %s", layout, reason, err, c.want, c.why)
			}
		})
	}
}
