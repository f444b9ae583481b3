package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"lcache/engine"
	"lcache/figures"
)

// view has two documents of one server, from which the text of a status is made. The rates are those between the two documents.
type view struct {
	before  engine.Status
	now     engine.Status
	seconds float64 // between the two
	twin    bool    // another server that is shown has a job of the same name
}

// writeStatus prints one server's status. A line that begins with ! asks the user to do something.
func writeStatus(w io.Writer, v view) {
	if len(v.now.Jobs) == 0 {
		fmt.Fprintf(w, "pid %d · no job yet\n", v.now.Pid)
		return
	}
	job := v.now.Jobs[0]
	was := job
	if len(v.before.Jobs) > 0 {
		was = v.before.Jobs[0]
	}
	fmt.Fprintln(w, joined(v.title(job), progressLine(v, was, job)))
	fmt.Fprintln(w, "  "+joined(loopText(was, job), "ready "+figures.Plural(int64(job.ReadyBatches), "batch", "batches"), "bound by "+job.BoundBy))
	fmt.Fprintln(w, "  "+joined(
		figures.Rate(job.BytesDelivered-was.BytesDelivered, v.seconds),
		figures.PerSecond(job.SamplesDelivered-was.SamplesDelivered, v.seconds)+" samples/s",
		"hits "+figures.Percent(float64(job.HitsEpoch), float64(job.HitsEpoch+job.MissesEpoch)),
		"divergence "+figures.Count(job.Divergences)))
	fmt.Fprintln(w, "  disk   "+diskText(v, was, job))
	fmt.Fprintln(w, "  memory "+memoryText(v.now))
	writeRanks(w, v.now, job)
	writeWarnings(w, v.now, was, job)
}

// title names the job; and its cache and server, if its name alone does not tell it from another one.
func (v view) title(job engine.JobStatus) string {
	if !v.twin {
		return job.Name
	}
	return fmt.Sprintf("%s (%s, pid %d)", job.Name, oneLine(strings.Join(v.now.Cache.Dirs, ",")), v.now.Pid)
}

// finished is the epoch that all ranks which ever asked for something have behind them; ok is false while one of them has not.
func finished(job engine.JobStatus) (epoch int, ok bool) {
	for _, r := range job.Ranks {
		if r.Pid == 0 {
			continue
		}
		if !r.Finished {
			return 0, false
		}
		epoch, ok = max(epoch, r.Epoch), true
	}
	return epoch, ok
}

func progressLine(v view, was, job engine.JobStatus) string {
	if epoch, over := finished(job); over {
		if job.Epochs > 0 && epoch == job.Epochs-1 {
			return "done · " + figures.Plural(int64(job.Epochs), "epoch", "epochs")
		}
		return fmt.Sprintf("epoch %d done", epoch)
	}
	batches := job.Batches
	var position, remaining, ranks float64
	for _, r := range job.Ranks {
		if r.Pid == 0 {
			continue // never asked for anything
		}
		position += float64(r.Position)
		remaining += math.Max(float64(batches)-float64(r.Position), 0)
		ranks++
	}
	epoch := fmt.Sprintf("epoch %d", job.Epoch)
	if ranks == 0 {
		return joined(epoch, "no rank reads")
	}
	mean := position / ranks
	if batches == 0 {
		return joined(epoch, "batch "+figures.Count(int64(mean)))
	}
	left := ""
	if chunks := job.ChunksDelivered - was.ChunksDelivered; chunks > 0 && v.seconds > 0 && remaining > 0 {
		left = figures.Duration(remaining/(float64(chunks)/v.seconds)) + " left"
	}
	return joined(epoch, fmt.Sprintf("batch %s / %s", figures.Count(int64(mean)), figures.Count(int64(batches))),
		figures.Percent(mean, float64(batches)), left)
}

// loopText says how long the training loop waited, as it reported; without a report, how long the server was short of a batch.
func loopText(was, job engine.JobStatus) string {
	if job.LoopWaitSeconds == nil || job.LoopSeconds == nil {
		return "stalled " + figures.Duration(job.StallSeconds)
	}
	wait, loop := *job.LoopWaitSeconds, *job.LoopSeconds
	if was.LoopWaitSeconds != nil && was.LoopSeconds != nil && loop > *was.LoopSeconds {
		wait, loop = wait-*was.LoopWaitSeconds, loop-*was.LoopSeconds
	}
	return "loop waited " + figures.Percent(wait, loop)
}

func diskText(v view, was, job engine.JobStatus) string {
	reads := ""
	if job.LogReadOps > 0 {
		reads = figures.Binary(job.LogReadBytes/job.LogReadOps) + " reads"
	}
	sorted := ""
	if job.SortBytes > 0 {
		sorted = figures.Bytes(job.SortBytes) + " written to change orders"
	}
	return joined(figures.BothRates(job.LogReadBytes-was.LogReadBytes, job.LogWriteBytes-was.LogWriteBytes, v.seconds),
		reads, "source "+figures.Bytes(job.SourceBytesEpoch), sorted)
}

func memoryText(s engine.Status) string {
	used := figures.Bytes(s.MemoryBytes)
	if s.MemoryLimitBytes > 0 {
		used = figures.OfTotal(s.MemoryBytes, s.MemoryLimitBytes)
	}
	pages := "4 KiB pages"
	if s.PageBytes >= 2<<20 {
		pages = "huge pages"
	}
	direct := "buffered"
	if s.Direct {
		direct = "O_DIRECT"
	}
	resident := ""
	if s.RSS > 0 {
		resident = figures.Bytes(s.RSS) + " resident"
	}
	return joined(used, resident, pages, s.IOEngine, direct)
}

func writeRanks(w io.Writer, s engine.Status, job engine.JobStatus) {
	if len(job.Ranks) == 0 {
		return
	}
	rows := [][]string{{"rank", "pid", "batch", "waited", "holds"}}
	for _, r := range job.Ranks {
		waited := "–"
		if r.LoopWaitSeconds != nil && job.LoopSeconds != nil {
			waited = figures.Percent(*r.LoopWaitSeconds, *job.LoopSeconds)
		}
		pid := "–"
		if r.Pid > 0 {
			pid = fmt.Sprint(r.Pid)
		}
		batch := figures.Count(int64(r.Position))
		if r.Finished {
			batch = "done"
		}
		rows = append(rows, []string{fmt.Sprint(r.Rank), pid, batch, waited, figures.Bytes(int64(r.LeasedBytes))})
	}
	table(w, "  ", rows)
}

// writeDevices prints the devices that have failed, or another fault of the cache.
func writeDevices(w io.Writer, c engine.CacheStatus) {
	told := false
	for _, d := range c.Devices {
		switch d.State {
		case "normal":
			continue
		case "read-only":
			fmt.Fprintf(w, "! %s takes no new blocks (%s): it is tried again from time to time; look at that disk\n", d.Dir, oneLine(d.LastError))
		default:
			fmt.Fprintf(w, "! %s is put aside (%s): its samples come from the source, and it is tried again from time to time; look at that disk\n", d.Dir, oneLine(d.LastError))
		}
		told = true
	}
	if c.State != "" && c.State != "normal" && !told {
		fmt.Fprintf(w, "! the cache is %s: samples come from the source; look at the disk of %s\n", oneLine(c.State), strings.Join(c.Dirs, ","))
	}
}

// writeWarnings prints a line for each thing that the user should look at, with advice.
func writeWarnings(w io.Writer, s engine.Status, was, job engine.JobStatus) {
	writeDevices(w, s.Cache)
	if job.CorruptSamples > 0 {
		fmt.Fprintf(w, "! %s corrupt on disk, read from the source instead: stop the server and run lcache verify --cache %s\n",
			figures.Plural(int64(job.CorruptSamples), "sample was", "samples were"), strings.Join(s.Cache.Dirs, ","))
	}
	if n := job.SkippedSamples; n > 0 {
		fmt.Fprintf(w, "! %s left out of batches, as the source could not give them: the server's log says which; look at %s\n", figures.Plural(n, "sample was", "samples were"), oneLine(job.Source))
	}
	if n := job.SourceRetries - was.SourceRetries; n > 0 {
		fmt.Fprintf(w, "! %s just now: look at %s\n", figures.Plural(int64(n), "source retry", "source retries"), job.Source)
	}
	if n := job.WriteErrors + job.ReadErrors + job.SyncErrors; n > 0 {
		fmt.Fprintf(w, "! %s of the cache's disk: what is lost is read from the source; look at the disk of %s\n",
			figures.Plural(n, "error", "errors"), strings.Join(s.Cache.Dirs, ","))
	}
	if d := job.FirstDivergence; d != nil {
		fmt.Fprintf(w, "! another order than planned is asked for, first at epoch %d rank %d batch %d: the right samples, but slowly; ingest again with the recipe and seed of the training\n",
			d.Epoch, d.Rank, d.Batch)
	}
}
