package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lcache/engine"
	"lcache/figures"
	"lcache/spelling"
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
	// The first entry of a document has the figures of the server, whichever job's it is.
	server := v.now.Jobs[0]
	wasServer := server
	if len(v.before.Jobs) > 0 {
		wasServer = v.before.Jobs[0]
	}
	live, ended := byLife(v.now.Jobs)
	if len(live) == 1 {
		job, was := live[0], v.earlier(live[0])
		fmt.Fprintln(w, joined(v.title(job), progressLine(v, was, job)))
		writeSpeed(w, "  ", v, was, job, "")
		fmt.Fprintln(w, "  disk   "+diskText(v, wasServer, server, "source "+figures.Bytes(job.SourceBytesEpoch)))
		writeWear(w, "  wear   ", v.now.Cache.Wear)
		fmt.Fprintln(w, "  memory "+memoryText(v.now))
		writeRanks(w, "  ", job)
	} else {
		fmt.Fprintln(w, joined(v.title(server), figures.Plural(int64(len(live)), "job", "jobs")))
		for _, job := range live {
			was := v.earlier(job)
			fmt.Fprintln(w, "  "+joined(jobTitle(job), progressLine(v, was, job)))
			writeSpeed(w, "    ", v, was, job, "source "+figures.Bytes(job.SourceBytesEpoch))
			writeRanks(w, "    ", job)
		}
		fmt.Fprintln(w, "  disk   "+diskText(v, wasServer, server, ""))
		writeWear(w, "  wear   ", v.now.Cache.Wear)
		fmt.Fprintln(w, "  memory "+memoryText(v.now))
	}
	if len(ended) > 0 {
		fmt.Fprintln(w, "  ended  "+endedJobs(ended))
	}
	writeWarnings(w, v, wasServer, server)
}

// byLife divides the jobs of a document into those that live and those that are over.
func byLife(jobs []engine.JobStatus) (live, ended []engine.JobStatus) {
	for _, j := range jobs {
		if j.Ended {
			ended = append(ended, j)
		} else {
			live = append(live, j)
		}
	}
	return live, ended
}

// earlier is a job as it was in the document before: itself, if it is new.
func (v view) earlier(job engine.JobStatus) engine.JobStatus {
	for _, was := range v.before.Jobs {
		if was.ID == job.ID && !was.Ended && was.ChunksDelivered <= job.ChunksDelivered {
			return was
		}
	}
	return job
}

// jobName names a job by its token.
func jobName(job engine.JobStatus) string {
	if job.ID == "" {
		return "job without a name"
	}
	return "job " + spelling.Name(job.ID)
}

// jobTitle names one of several jobs, and says what sets it apart from the others.
func jobTitle(job engine.JobStatus) string {
	var pids []string
	for _, pid := range job.Pids {
		pids = append(pids, fmt.Sprint(pid))
	}
	owner, who, demand := "", "", ""
	if job.Owner {
		owner = "owner of the log's order"
	}
	if len(pids) > 0 {
		who = "pid " + strings.Join(pids, ", ")
	}
	if job.OnDemand {
		demand = "not read ahead for (--jobs-max)"
	}
	return joined(jobName(job), owner, demand, who)
}

// endedJobs names the jobs that are over, the last one first.
func endedJobs(ended []engine.JobStatus) string {
	var names []string
	for _, job := range slices.Backward(ended) {
		names = append(names, fmt.Sprintf("%s (%s)", spelling.Name(job.ID), figures.Plural(job.SamplesDelivered, "sample", "samples")))
	}
	return strings.Join(names, ", ")
}

// writeSpeed prints what a job waits for, and how fast it gets samples.
func writeSpeed(w io.Writer, indent string, v view, was, job engine.JobStatus, source string) {
	fmt.Fprintln(w, indent+joined(loopText(was, job), "ready "+figures.Plural(int64(job.ReadyBatches), "batch", "batches"), "bound by "+job.BoundBy))
	fmt.Fprintln(w, indent+joined(
		figures.Rate(job.BytesDelivered-was.BytesDelivered, v.seconds),
		figures.PerSecond(job.SamplesDelivered-was.SamplesDelivered, v.seconds)+" samples/s",
		"hits "+figures.Percent(float64(job.HitsEpoch), float64(job.HitsEpoch+job.MissesEpoch)),
		source,
		"divergence "+figures.Count(job.Divergences)))
	if i := job.Importance; i != nil {
		fmt.Fprintln(w, indent+importanceText(i))
	}
}

// importanceText is how a job's samples are chosen, and served.
func importanceText(i *engine.ImportanceStatus) string {
	replaced := ""
	if i.Substitute != "" {
		replaced = "in place of others " + figures.Percent(float64(i.Substituted), float64(i.Requested)) + ", one sample at most " + figures.Count(i.SubstitutedMax) + " ×"
	}
	return joined("importance "+i.Method+" "+i.State, figures.Plural(int64(i.EpochLength), "sample", "samples")+" an epoch",
		"in memory "+figures.Percent(float64(i.HHits+i.LHits+i.HomophilyHits), float64(i.Requested)), replaced, "observed "+figures.Percent(i.ObservedShare, 1))
}

// title names the job; and its cache and server, if its name alone does not tell it from another one.
func (v view) title(job engine.JobStatus) string {
	if !v.twin {
		return spelling.Name(job.Name)
	}
	return fmt.Sprintf("%s (%s, pid %d)", spelling.Name(job.Name), spelling.Names(v.now.Cache.Dirs, ","), v.now.Pid)
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

func diskText(v view, was, job engine.JobStatus, source string) string {
	reads := ""
	if job.LogReadOps > 0 {
		reads = figures.Binary(job.LogReadBytes/job.LogReadOps) + " reads"
	}
	sorted := ""
	if job.SortBytes > 0 {
		sorted = figures.Bytes(job.SortBytes) + " written to change orders"
	}
	return joined(figures.BothRates(job.LogReadBytes-was.LogReadBytes, job.LogWriteBytes-was.LogWriteBytes, v.seconds),
		reads, source, sorted)
}

// writeWear says what the drives are written, where they are written at all.
func writeWear(w io.Writer, indent string, of engine.Wear) {
	if of.WrittenPerDay == 0 {
		return
	}
	drives, meant := "", ""
	if of.DriveWritesPerDay > 0 {
		drives = fmt.Sprintf("%.2g drive writes", of.DriveWritesPerDay)
	}
	if of.EndurancePerDay > 0 {
		meant = "meant for " + figures.Bytes(of.EndurancePerDay)
	}
	fmt.Fprintln(w, indent+joined(figures.Bytes(of.WrittenPerDay)+" written a day", drives, meant))
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

func writeRanks(w io.Writer, indent string, job engine.JobStatus) {
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
	table(w, indent, rows)
}

// writeDevices prints the devices that have failed, or another fault of the cache.
func writeDevices(w io.Writer, c engine.CacheStatus) {
	told := false
	for _, d := range c.Devices {
		switch d.State {
		case "normal":
			continue
		case "read-only":
			fmt.Fprintf(w, "! %s takes no new blocks (%s): it is tried again from time to time; look at that disk\n", spelling.Name(d.Dir), spelling.Message(d.LastError))
		default:
			fmt.Fprintf(w, "! %s is put aside (%s): its samples come from the source, and it is tried again from time to time; look at that disk\n", spelling.Name(d.Dir), spelling.Message(d.LastError))
		}
		told = true
	}
	if c.State != "" && c.State != "normal" && !told {
		fmt.Fprintf(w, "! the cache is %s: samples come from the source; look at the disk of %s\n", spelling.Message(c.State), spelling.Names(c.Dirs, ","))
	}
}

// writeWarnings prints a line for each thing that the user should look at, with advice.
func writeWarnings(w io.Writer, v view, was, server engine.JobStatus) {
	s := v.now
	writeDevices(w, s.Cache)
	if server.CorruptSamples > 0 {
		fmt.Fprintf(w, "! %s corrupt on disk, read from the source instead: stop the server and run lcache verify --cache %s\n",
			figures.Plural(server.CorruptSamples, "sample was", "samples were"), spelling.ShellWord(strings.Join(s.Cache.Dirs, ",")))
	}
	if n := skipped(s); n > 0 {
		fmt.Fprintf(w, "! %s left out of batches, as the source could not give them: the server's log says which; look at %s\n", figures.Plural(n, "sample was", "samples were"), spelling.Name(server.Source))
	}
	if n := server.SourceRetries - was.SourceRetries; n > 0 {
		fmt.Fprintf(w, "! %s just now: look at %s\n", figures.Plural(n, "source retry", "source retries"), spelling.Name(server.Source))
	}
	if n := server.WriteErrors + server.ReadErrors + server.SyncErrors; n > 0 {
		fmt.Fprintf(w, "! %s of the cache's disk: what is lost is read from the source; look at the disk of %s\n",
			figures.Plural(n, "error", "errors"), spelling.Names(s.Cache.Dirs, ","))
	}
	live, _ := byLife(s.Jobs)
	for _, job := range live {
		of := ""
		if len(live) > 1 {
			of = jobName(job) + ": "
		}
		if d := job.FirstDivergence; d != nil {
			fmt.Fprintf(w, "! %sanother order than planned is asked for, first at epoch %d rank %d batch %d: the right samples, but slowly; ingest again with the recipe and seed of the training\n",
				of, d.Epoch, d.Rank, d.Batch)
		}
	}
}
