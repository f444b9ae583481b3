package cache

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"

	"lcache/internal/figures"
	"lcache/internal/plan"
	"lcache/internal/serve/schedule"
	"lcache/logfile"
)

// Disk is what is known of the devices of a cache, all of them together.
type Disk struct {
	Line plan.DiskLine
	From string // how it is known, as in "measured on 22 Nov 2026"; "": it is not known
	Why  string // why it is not known

	DriveBytes float64 // the size of the file systems that the cache lies on; 0: not known
	WearPerDay float64 // bytes a day that the drives are meant to be written; 0: not known
}

// unlimited is more memory than any layout takes. Both layouts of an engine take the same memory: what one needs for slots, the other has as a ring. So memory
// decides nothing between them, and chunker.Size refuses what does not fit.
const unlimited = 1 << 60

// unknownEpochs stands for the epochs of a job that does not say how many it has.
const unknownEpochs = 90

// PlanFacts are the facts of this cache and its job for package plan: what is kept is what the cache admits, and no less is considered.
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

// ByDisk begins a reason that follows from what the disk gives.
const ByDisk = "read in place an epoch takes "

// countBorders chooses the layout again where samples would stay in a log that was laid out for an epoch: its blocks lie anywhere, so a sample that crosses two
// of them takes two reads. Of a log in the source's order the blocks lie side by side.
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

// isLaidOut reports whether samples lie in a log that was laid out for an epoch.
func (c *Cache) isLaidOut() bool {
	logs := c.Store.Logfiles()
	return slices.ContainsFunc(logs[:], func(l *logfile.Logfile) bool {
		return l != nil && !l.Empty() && !schedule.IsCanonical(l.Header().Key)
	})
}

// LayoutFor chooses a layout by what the disk gives, and says why in one sentence. from says how the disk is known.
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

// sentence says what binds both layouts, how long their epochs take, and what reordering would write.
func sentence(a plan.Advice, from string) string {
	saves := "nothing"
	if a.Log.EpochS < a.Static.EpochS {
		saves = fmt.Sprintf("%.0f %% of an epoch", 100*(1-a.Log.EpochS/a.Static.EpochS))
	}
	times := fmt.Sprintf(ByDisk+"%s (bound by the %s), reordered %s (by the %s), by a disk that was %s",
		figures.Duration(a.Static.EpochS), a.Static.BoundBy, figures.Duration(a.Log.EpochS), a.Log.BoundBy, from)
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

// byDisk chooses a layout by what the disk gives. Without facts it is the log.
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
