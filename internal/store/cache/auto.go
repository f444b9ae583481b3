package cache

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"

	"lcache/internal/plan"
	"lcache/internal/serve/schedule"
	"lcache/internal/units"
	"lcache/logfile"
)

// Disk has the facts about the devices of a cache, all together.
type Disk struct {
	Line plan.DiskLine
	From string // their origin, as in "measured on 22 Nov 2026"; "": there are none
	Why  string // why there are none

	DriveBytes float64 // size of the file systems under the cache; 0: unknown
	WearPerDay float64 // rated write volume of the drives in bytes a day; 0: unknown
}

// unlimited is more memory than any layout takes. Both layouts of an engine take the same memory: one uses it for slots, the other for
// the miss ring. So memory does not decide between them, and chunker.Size refuses a cache that does not fit.
const unlimited = 1 << 60

// unknownEpochs is the assumed number of epochs of a job that does not give one.
const unknownEpochs = 90

// PlanFacts returns the facts of this cache and its job for package plan. The log keeps exactly the admitted samples.
func (c *Cache) PlanFacts(d Disk) plan.Facts {
	job := c.Record.Job
	f := plan.Facts{DatasetBytes: float64(c.Manifest.Bytes()), Samples: float64(c.Manifest.Len()), Batch: float64(max(job.BatchSize, 1)), Epochs: float64(job.Epochs),
		Ranks: float64(max(len(c.Schedule.Local()), 1)), Devices: float64(len(c.Dirs)), CacheBytes: unlimited, MemoryBytes: unlimited, AsHeld: true, Device: d.Line}
	if f.Epochs == 0 {
		f.Epochs = unknownEpochs
	}
	if f.DatasetBytes > 0 {
		f.Admit = float64(c.Record.KeptBytes) / f.DatasetBytes
	}
	if c.Record.IsPacked() && c.Record.KeptBytes > 0 {
		f.StoredRatio = float64(c.Record.Stored) / float64(c.Record.KeptBytes)
	}
	if c.Format.Block > 0 {
		f.BlockBytes = float64(c.Format.Block)
	}
	return f
}

// ByDisk begins a reason that follows from the facts about the disk.
const ByDisk = "read in place an epoch takes "

// countBorders chooses the layout again if samples would stay in a log that was laid out for an epoch. The blocks of such a log are anywhere
// on disk, so a sample that crosses two blocks takes two reads. In a log in source order, adjacent blocks are adjacent on disk.
func (c *Cache) countBorders() {
	if !c.IsStatic() || !c.MayChange() || c.chosenBefore(c.disk) != nil {
		return
	}
	if !c.isLaidOut() {
		return
	}
	f := c.PlanFacts(c.disk)
	f.FromLog = true
	if layout, reason, err := LayoutFor(f, c.disk.From); err == nil {
		c.Layout, c.LayoutReason = layout, reason
	}
}

// isLaidOut reports whether samples are in a log that was laid out for an epoch.
func (c *Cache) isLaidOut() bool {
	logs := c.Store.Logfiles()
	return slices.ContainsFunc(logs[:], func(l *logfile.Logfile) bool {
		return l != nil && !l.Empty() && !schedule.IsCanonical(l.Header().Key)
	})
}

// LayoutFor chooses a layout by the facts about the disk. reason is one sentence. from is the origin of the facts.
func LayoutFor(f plan.Facts, from string) (layout, reason string, err error) {
	m, err := plan.New(f)
	if err != nil {
		return "", "", err
	}
	a, err := m.Auto()
	if err != nil {
		return "", "", err
	}
	if f.Epochs == 1 {
		return string(a.Layout), a.Reason, nil
	}
	return string(a.Layout), sentence(a, from), nil
}

// sentence describes the bottleneck of both layouts, the duration of their epochs, and the write volume of reordering.
func sentence(a plan.Advice, from string) string {
	saves := "nothing"
	if a.Log.EpochS < a.Static.EpochS {
		saves = fmt.Sprintf("%.0f %% of an epoch", 100*(1-a.Log.EpochS/a.Static.EpochS))
	}
	times := fmt.Sprintf(ByDisk+"%s (bound by the %s), reordered %s (by the %s), by a disk that was %s",
		units.Duration(a.Static.EpochS), a.Static.BoundBy, units.Duration(a.Log.EpochS), a.Log.BoundBy, from)
	writes := humanize.Bytes(uint64(a.Log.WriteBytes))
	if a.Layout == plan.Static {
		text := fmt.Sprintf("%s: reordering would save %s, and write %s in each epoch", times, saves, writes)
		if a.Remark != "" {
			text += "; " + a.Remark
		}
		return text
	}
	return fmt.Sprintf("%s: reordering saves %s, and writes %s in each epoch", times, saves, writes)
}

// byDisk chooses a layout by the facts about the disk. Without facts it is log.
func (c *Cache) byDisk(d Disk) (layout, reason string) {
	const reordered = "the log is reordered every epoch, which gives large reads in exact order"
	switch {
	case d.From == "" && d.Why != "":
		return LayoutLog, fmt.Sprintf("the disk is not measured (%s): %s", d.Why, reordered)
	case d.From == "":
		return LayoutLog, "the disk is not measured: " + reordered
	}
	layout, reason, err := LayoutFor(c.PlanFacts(d), d.From)
	if err != nil {
		return LayoutLog, fmt.Sprintf("the disk was %s, which makes no plan (%v): %s", d.From, err, reordered)
	}
	return layout, reason
}
