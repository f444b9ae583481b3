package cache

import (
	"strings"

	"lcache/internal/plan"
)

// Chosen is a layout that a server found to be the better one while it served the cache.
type Chosen struct {
	Layout string `json:"layout"`
	Reason string `json:"reason"`
	Disk   string `json:"disk"` // how the disk was known then: other facts of the disk have the word again
}

// MayChange reports whether the layout is open: the disk decided, not the user or the job.
func (c *Cache) MayChange() bool { return strings.HasPrefix(c.LayoutReason, ByDisk) }

// LayoutAgain chooses the layout by an epoch that was served. sourceBPS is what the source gave meanwhile; 0: not known.
func (c *Cache) LayoutAgain(s plan.Served, sourceBPS float64) (layout, reason string, err error) {
	f := c.PlanFacts(c.disk)
	f.FromLog, f.Source.BPS = c.isLaidOut(), sourceBPS
	f.WearPerDay = c.disk.WearPerDay // not before: what a log writes in a day depends on how fast the training is
	a, err := plan.Reconsider(f, s)
	if err != nil {
		return "", "", err
	}
	return string(a.Layout), sentence(a, c.disk.From+", and by the last epoch"), nil
}

// Disk is what is known of the devices.
func (c *Cache) Disk() Disk { return c.disk }

// NoteLayout keeps a layout for the next start.
func (c *Cache) NoteLayout(layout, reason string) error {
	c.chosen = &Chosen{layout, reason, c.disk.From}
	return c.keepRecord()
}

// keepRecord writes the record with the layout that was noted last. Record itself may be read meanwhile, and stays.
func (c *Cache) keepRecord() error {
	next := c.Record
	if c.chosen != nil {
		next.Chosen = c.chosen
	}
	return WriteRecord(c.Dirs[0], next)
}

// chosenBefore is what a server before this one found, if the disk is still known by the same facts.
func (c *Cache) chosenBefore(disk Disk) *Chosen {
	if was := c.Record.Chosen; was != nil && disk.From != "" && was.Disk == disk.From {
		return was
	}
	return nil
}
