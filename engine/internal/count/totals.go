package count

import (
	"time"

	"lcache/internal/serve/status"
	"lcache/internal/verdict"
)

// Totals are a job's counters at one time. The difference of two is what an epoch used.
type Totals struct {
	At                        time.Time
	LogRead, LogWrite, Source int64 // bytes
	ReadOps                   int64
	Samples, Misses           int64
	Peer                      int64         // part of Samples that came from other machines
	Stall                     time.Duration // a rank waited for its batch
	Idle                      time.Duration // nothing more could be read before a client had consumed batches
	loop                      loopTotals
}

// period is the increase of the counters over a time.
type period struct {
	seconds         float64
	samples, misses int64
	peer            int64
	stall, idle     float64 // seconds
	loop            loopTotals
}

// since returns the period from then to t.
func (t Totals) since(then Totals) period {
	return period{seconds: t.At.Sub(then.At).Seconds(), samples: t.Samples - then.Samples, misses: t.Misses - then.Misses, peer: t.Peer - then.Peer,
		stall: (t.Stall - then.Stall).Seconds(), idle: (t.Idle - then.Idle).Seconds(),
		loop: loopTotals{wait: t.loop.wait - then.loop.wait, loop: t.loop.loop - then.loop.loop, decode: t.loop.decode - then.loop.decode}}
}

// boundBy returns the bottleneck of the job, as a value of the status document.
func (p period) boundBy() string { return verdict.Judge(p.facts()).BoundBy() }

// facts returns the known facts of a period. The disk's speed is not known, so the disk is assumed to be the bottleneck if nothing else explains the job's
// waits.
func (p period) facts() verdict.Facts {
	return verdict.Facts{Delivered: p.samples, Seconds: p.seconds, Samples: p.samples, Misses: p.misses, Peer: p.peer, Stall: p.stall, Idle: p.idle,
		LoopSeconds: p.loop.loop, LoopWait: p.loop.wait}
}

// IsUsed reports whether a client has requested batches of the job, or reported its time.
func (c *Job) IsUsed() bool { return c.asked > 0 || c.divergences > 0 || len(c.reports.ranks) > 0 }

// Fill fills in the job's entry in the status document. The entry must list the ranks already.
func (c *Job) Fill(j *status.Job, now Totals) {
	j.Divergences, j.FirstDivergence = c.divergences, c.firstDivergence
	j.EpochsDone = append(j.EpochsDone, c.done...)
	c.fillEpoch(j, now)
	c.reports.fill(j)
	// The current epoch and the one before it determine the bottleneck, because the bottleneck of the first epoch says nothing about the tenth.
	now.loop = c.reports.totals()
	j.BoundBy = now.since(c.before).boundBy()
}

// Bottleneck returns the job's bottleneck as Fill does. If the training loop does not report its waits, it is not known to be the bottleneck: then the
// result is "".
func (c *Job) Bottleneck(now Totals) string {
	now.loop = c.reports.totals()
	switch word := now.since(c.before).boundBy(); {
	case word == "unknown", word == "consumer" && now.loop.loop == 0:
		return ""
	default:
		return word
	}
}

// fillEpoch fills in the figures of the current epoch: the open one with the latest request, or else the last one that ended.
func (c *Job) fillEpoch(j *status.Job, now Totals) {
	var open *Epoch
	for _, ep := range c.open {
		if open == nil || ep.asked > open.asked {
			open = ep
		}
	}
	if open != nil {
		j.HitsEpoch, j.MissesEpoch, j.SourceBytesEpoch = open.Hits, open.Misses, now.Source-c.last.Source
		return
	}
	if n := len(c.done); n > 0 {
		last := c.done[n-1]
		j.HitsEpoch, j.MissesEpoch, j.SourceBytesEpoch = last.Hits, last.Misses, last.SourceBytes
	}
}

// FillWear fills in the write volume per day, from the current epoch and the one before it. written is the log's total in bytes.
func (c *Job) FillWear(w *status.Wear, written int64) {
	w.PerDay(written-c.before.LogWrite, c.clock().Sub(c.before.At).Seconds())
}
