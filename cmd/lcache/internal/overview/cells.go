package overview

import (
	"fmt"
	"lcache/internal/serve/status"
	"lcache/internal/units"
)

// EpochCells returns the cells of an epoch in a table: name, time, MB/s, hits, source, read, written, share of waiting, order.
func EpochCells(name string, e status.Epoch, j status.Job) []string {
	row := []string{name, "–", "–", units.Percent(float64(e.Hits), float64(e.Hits+e.Misses)), Amount(e.SourceBytes), Amount(e.LogReadBytes), Amount(e.LogWriteBytes), "–", "–"}
	if e.Seconds > 0 {
		row[1] = Clock(e.Seconds)
		row[2] = Megabytes(float64(e.Hits+e.Misses) * float64(j.DatasetBytes) / float64(max(j.Samples, 1)) / e.Seconds)
		waited, of := e.StallSeconds, e.Seconds
		if Reported(e) {
			waited, of = *e.LoopWaitSeconds, LoopTime(e)
		}
		row[7] = units.Percent(waited, of)
	}
	if e.OrderDigest != nil && len(*e.OrderDigest) >= 4 {
		row[8] = (*e.OrderDigest)[:4] + "…"
	}
	return row
}

// RankCells are the position of a rank, and the memory that its clients hold.
func RankCells(job status.Job, r status.Rank) []string {
	waited := "–"
	if r.LoopWaitSeconds != nil && job.LoopSeconds != nil {
		waited = units.Percent(*r.LoopWaitSeconds, *job.LoopSeconds)
	}
	pid := "–"
	if r.Pid > 0 {
		pid = fmt.Sprint(r.Pid)
	}
	batch := units.Count(int64(r.Position))
	if r.Finished {
		batch = "done"
	}
	return []string{fmt.Sprint(r.Rank), pid, batch, waited, units.Bytes(int64(r.LeasedBytes))}
}

// Amount writes bytes, and 0 without a unit, so that a column of zeros is easily seen.
func Amount(n int64) string {
	if n <= 0 {
		return "0"
	}
	return units.Bytes(n)
}

// Megabytes writes a rate in MB/s, without the unit.
func Megabytes(perSecond float64) string {
	if mb := perSecond / 1e6; mb < 10 {
		return fmt.Sprintf("%.1f", mb)
	}
	return units.Count(int64(perSecond/1e6 + 0.5))
}

// Clock writes a duration: "0.4 s", "9:12", "1:03:20".
func Clock(seconds float64) string {
	if seconds < 60 {
		return units.Duration(seconds)
	}
	n := int64(seconds + 0.5)
	if n < 3600 {
		return fmt.Sprintf("%d:%02d", n/60, n%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", n/3600, n/60%60, n%60)
}

// Reported returns whether the training loop reported its waits in an epoch. A loop that ran for no time reported nothing.
func Reported(e status.Epoch) bool {
	return e.LoopWaitSeconds != nil && (e.LoopSeconds == nil || *e.LoopSeconds > 0)
}

// LoopTime returns how long an epoch took the training loop, in seconds, as the loop reported; without a report, how long it took the server.
// For the server an epoch is over when its last batch is delivered, while the loop still works on that batch.
func LoopTime(e status.Epoch) float64 {
	if e.LoopSeconds != nil && *e.LoopSeconds > 0 {
		return *e.LoopSeconds
	}
	return e.Seconds
}
