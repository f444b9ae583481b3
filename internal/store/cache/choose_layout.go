package cache

import (
	"context"
	"fmt"

	"lcache/internal/plan"
	"lcache/internal/usage"
	"lcache/sample"
)

// The layouts of the log over the epochs.
const (
	LayoutAuto   = "auto"
	LayoutLog    = "log"    // reordered every epoch
	LayoutStatic = "static" // samples stay where they were packed
)

// CheckLayout returns an error for an unknown layout; "" is auto.
func CheckLayout(layout string) error {
	switch layout {
	case "", LayoutAuto, LayoutLog, LayoutStatic:
		return nil
	}
	return usage.Errorf("unknown layout %q: give auto, log or static", layout)
}

// ChooseLayout returns the layout, with the reason in one sentence. The first of these that applies decides: asked, the layout given to
// ingest, the job, a server's measurement, the disk.
func (c *Cache) ChooseLayout(asked string, disk Disk) (layout, reason string) {
	switch {
	case c.Shared:
		return LayoutStatic, "several machines share the dataset, and each keeps a part of it"
	case asked != "" && asked != LayoutAuto:
		return asked, "given by --layout"
	case c.Record.Layout != "" && c.Record.Layout != LayoutAuto:
		return c.Record.Layout, "given to ingest by --layout"
	}
	s := c.Schedule
	if world := max(s.World(), c.Record.Job.World); len(s.Local()) < world { // also without a recipe: the ranks push orders over all samples
		return LayoutStatic, fmt.Sprintf("%d of %d ranks are served here, and each epoch they get other samples: moving all samples in every epoch would cost more than it saves",
			len(s.Local()), world)
	}
	if s.Replays() {
		if n, used, err := c.usedByEpoch(); err == nil && float64(n-used) > plan.MostLeftOut*float64(n) {
			return LayoutStatic, fmt.Sprintf("an epoch leaves out %.0f %% of the samples: moving all samples in every epoch would cost more than it saves",
				100*float64(n-used)/float64(n))
		}
	}
	if was := c.chosenBefore(disk); was != nil {
		return was.Layout, was.Reason
	}
	return c.byDisk(disk)
}

// usedByEpoch counts the dataset's samples, and the samples that the first epoch delivers here. Later epochs are assumed to deliver about as many.
func (c *Cache) usedByEpoch() (n, used int, err error) {
	order, err := c.Schedule.Order(context.Background(), 0)
	if err != nil {
		return 0, 0, err
	}
	n = c.Manifest.Len()
	seen := make([]uint64, (n+63)/64)
	var indices []sample.Index
	for _, rank := range order.Ranks {
		for b := range order.Batches(rank) {
			indices, _ = order.Chunk(rank, b, indices)
			for _, index := range indices {
				if bit := uint64(1) << (index % 64); seen[index/64]&bit == 0 {
					seen[index/64] |= bit
					used++
				}
			}
		}
	}
	return n, used, nil
}
