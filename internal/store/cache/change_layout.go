package cache

import (
	"strings"

	"lcache/internal/plan"
)

// Chosen is a layout that a server chose, from measurements, while it served the cache.
type Chosen struct {
	Layout string `json:"layout"`
	Reason string `json:"reason"`
	Disk   string `json:"disk"` // origin of the facts about the disk; with other facts, the disk decides again
}

// MayChange reports whether the layout may change: the disk decided it, not the user or the job.
func (c *Cache) MayChange() bool { return strings.HasPrefix(c.LayoutReason, ByDisk) }

// LayoutAgain chooses the layout again, by the measurements of a served epoch. sourceBPS is the rate of the source in that epoch; 0: unknown.
func (c *Cache) LayoutAgain(s plan.Served, sourceBPS float64) (layout, reason string, err error) {
	f := c.PlanFacts(c.disk)
	f.FromLog, f.Source.BPS = c.isLaidOut(), sourceBPS
	f.WearPerDay = c.disk.WearPerDay // only now: the daily write volume of a log depends on the speed of the training
	a, err := plan.Reconsider(f, s)
	if err != nil {
		return "", "", err
	}
	return string(a.Layout), sentence(a, c.disk.From+", and by the last epoch"), nil
}

// Disk returns the facts about the devices.
func (c *Cache) Disk() Disk { return c.disk }

// NoteLayout stores a layout for the next start.
func (c *Cache) NoteLayout(layout, reason string) error {
	c.chosen = &Chosen{layout, reason, c.disk.From}
	return c.keepRecord()
}

// keepRecord writes the record with the last noted layout. It does not change Record, which may be read concurrently.
func (c *Cache) keepRecord() error {
	next := c.Record
	if c.chosen != nil {
		next.Chosen = c.chosen
	}
	return WriteRecord(c.Dirs[0], next)
}

// chosenBefore returns the layout that an earlier server chose, if the facts about the disk are the same.
func (c *Cache) chosenBefore(disk Disk) *Chosen {
	if was := c.Record.Chosen; was != nil && disk.From != "" && was.Disk == disk.From {
		return was
	}
	return nil
}
