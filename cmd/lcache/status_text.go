package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"lcache/internal/serve/status"
	"lcache/internal/units"
	"lcache/internal/usage"
)

// view holds two documents of one server. Rates are computed from the difference.
type view struct {
	before  status.Document
	now     status.Document
	seconds float64 // between the two
	twin    bool    // another shown server has a job with the same name
}

// serverLines is the status of one server.
func serverLines(v view, detail, width int) (lines []string) {
	if len(v.now.Jobs) == 0 {
		return []string{fmt.Sprintf("pid %d · no job yet", v.now.Pid)}
	}
	// The first entry of a document has the figures of the server.
	server := v.now.Jobs[0]
	wasServer := server
	if len(v.before.Jobs) > 0 {
		wasServer = v.before.Jobs[0]
	}
	live, ended := v.jobs()
	source := ""
	if len(live) == 1 {
		job, was := live[0], v.earlier(live[0])
		lines = append(lines, factLine(width, "", append([]string{v.title(job)}, progressFacts(v, was, job)...)...))
		lines = append(lines, speedLines(v, was, job, width)...)
		source = "source " + units.Bytes(job.SourceBytesEpoch)
	} else {
		lines = append(lines, factLine(width, "", v.title(server), units.Plural(int64(len(live)), "job", "jobs")))
	}
	if len(live) > 1 {
		rows := [][]string{jobColumns("job")}
		for _, job := range live {
			rows = append(rows, jobRow(v, jobName(job), job))
		}
		lines = append(lines, columnLines("  ", rows, width)...)
		for _, job := range live {
			if i := job.Importance; i != nil {
				lines = append(lines, factLine(width, "  ", append([]string{jobName(job)}, importanceFacts(i)...)...))
			}
		}
	}
	lines = append(lines, factLine(width, "  disk   ", diskFacts(v, wasServer, server, source)...))
	if facts := wearFacts(v.now.Cache.Wear); facts != nil {
		lines = append(lines, factLine(width, "  wear   ", facts...))
	}
	lines = append(lines, factLine(width, "  memory ", memoryFacts(v.now)...))
	if line := clusterLine(v.now.Cluster); line != "" {
		lines = append(lines, factLine(width, "  cluster ", line))
	}
	if detail >= withRanks {
		lines = append(lines, rankLines(live, width)...)
	}
	if len(ended) > 0 {
		lines = append(lines, factLine(width, "  ended  ", endedJobs(ended)))
	}
	return append(lines, wrapped(v.warnings(), width)...)
}

// earlier is a job in the earlier document, or the job itself if it is new.
func (v view) earlier(job status.Job) status.Job {
	for _, was := range v.before.Jobs {
		if was.ID == job.ID && !was.Ended && was.ChunksDelivered <= job.ChunksDelivered {
			return was
		}
	}
	return job
}

// jobName names a job: by its token if a user chose it, else by its process.
func jobName(job status.Job) string {
	name, ok := usage.JobName(job.ID)
	switch {
	case ok:
		return name
	case len(job.Pids) > 0:
		return "pid " + pidText(job)
	}
	return "without a name"
}

// pidText lists the processes of a job's ranks.
func pidText(job status.Job) string {
	var pids []string
	for _, pid := range job.Pids {
		pids = append(pids, fmt.Sprint(pid))
	}
	return strings.Join(pids, ", ")
}

// endedJobs sums up the ended jobs.
func endedJobs(ended []status.Job) string {
	samples := int64(0)
	for _, job := range ended {
		samples += job.SamplesDelivered
	}
	return joined(units.Plural(int64(len(ended)), "job", "jobs"), units.Plural(samples, "sample", "samples"))
}

// speedLines are the waits, the bottleneck and the speed of a job.
func speedLines(v view, was, job status.Job, width int) (lines []string) {
	by := ""
	if what := bottleneck(job); what != "" {
		by = "bottleneck: " + what
	}
	who, waited := loopWait(v, was, job)
	lines = append(lines, factLine(width, "  ", who+" "+waited, by, units.Plural(int64(job.ReadyBatches), "batch", "batches")+" ready"))
	demand, other := "", ""
	if job.OnDemand {
		demand = "no read-ahead (--jobs-max)"
	}
	if job.Divergences > 0 {
		other = units.Plural(job.Divergences, "request", "requests") + " in another order"
	}
	lines = append(lines, factLine(width, "  ",
		units.Rate(job.BytesDelivered-was.BytesDelivered, v.seconds),
		units.PerSecond(job.SamplesDelivered-was.SamplesDelivered, v.seconds)+" samples/s",
		"hits "+units.Percent(float64(job.HitsEpoch), float64(job.HitsEpoch+job.MissesEpoch)), other, demand))
	if i := job.Importance; i != nil {
		lines = append(lines, factLine(width, "  ", importanceFacts(i)...))
	}
	return lines
}

// bottleneck names the bottleneck of a job; "": not known. Without reports of its waits, the training loop is not known to be the slow part.
func bottleneck(job status.Job) string {
	switch job.BoundBy {
	case "consumer":
		if !reports(job) {
			return ""
		}
		return "training loop"
	case "decode":
		return "decoding"
	case "source", "disk":
		return job.BoundBy
	}
	return ""
}

// reports returns whether the training loop has reported how long it ran.
func reports(job status.Job) bool {
	return job.LoopWaitSeconds != nil && job.LoopSeconds != nil && *job.LoopSeconds > 0
}

// importanceFacts say how a job's samples are chosen, and served.
func importanceFacts(i *status.Importance) []string {
	replaced := ""
	if i.Substitute != "" {
		replaced = "substitutes " + units.Percent(float64(i.Substituted), float64(i.Requested)) + ", one sample at most " + units.Count(i.SubstitutedMax) + " ×"
	}
	return []string{"importance " + i.Method + " " + i.State, units.Plural(int64(i.EpochLength), "sample", "samples") + " an epoch",
		"in memory " + units.Percent(float64(i.HHits+i.LHits+i.HomophilyHits), float64(i.Requested)), replaced, "observed " + units.Percent(i.ObservedShare, 1)}
}

// title names the dataset of a job, and the cache folder and process if another shown job has the same name.
func (v view) title(job status.Job) string {
	if !v.twin {
		return usage.Name(job.Name)
	}
	folder := ""
	if len(v.now.Cache.Dirs) > 0 {
		folder = usage.Name(filepath.Base(v.now.Cache.Dirs[0])) + ", "
	}
	return fmt.Sprintf("%s (%spid %d)", usage.Name(job.Name), folder, v.now.Pid)
}

func diskFacts(v view, was, job status.Job, source string) []string {
	reads := ""
	if job.LogReadOps > 0 {
		reads = units.Binary(job.LogReadBytes/job.LogReadOps) + " reads"
	}
	sorted := ""
	if job.SortBytes > 0 {
		sorted = units.Bytes(job.SortBytes) + " written by sorts"
	}
	return []string{units.BothRates(job.LogReadBytes-was.LogReadBytes, job.LogWriteBytes-was.LogWriteBytes, v.seconds), reads, source, sorted}
}

// wearFacts are the write volume and rating of the drives; nil: nothing is written.
func wearFacts(of status.Wear) []string {
	if of.WrittenPerDay == 0 {
		return nil
	}
	drives, meant := "", ""
	if of.DriveWritesPerDay > 0 {
		drives = fmt.Sprintf("%.2g drive writes", of.DriveWritesPerDay)
	}
	if of.EndurancePerDay > 0 {
		meant = "rated for " + units.Bytes(of.EndurancePerDay)
	}
	return []string{units.Bytes(of.WrittenPerDay) + " written per day", drives, meant}
}

func memoryFacts(s status.Document) []string {
	used := units.Bytes(s.MemoryBytes)
	if s.MemoryLimitBytes > 0 {
		used = units.OfTotal(s.MemoryBytes, s.MemoryLimitBytes)
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
		resident = units.Bytes(s.RSS) + " resident"
	}
	return []string{used, resident, pages, s.IOEngine, direct}
}

// rankLines is a table of the ranks of all jobs.
func rankLines(jobs []status.Job, width int) []string {
	head := []string{"rank", "pid", "batch", "waited", "memory"}
	if len(jobs) > 1 {
		head = append([]string{"job"}, head...)
	}
	rows := [][]string{head}
	for _, job := range jobs {
		for _, r := range job.Ranks {
			row := rankRow(job, r)
			if len(jobs) > 1 {
				row = append([]string{jobName(job)}, row...)
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 1 {
		return nil
	}
	var b strings.Builder
	table(&b, "  ", rows)
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for k := range lines {
		lines[k] = cut(lines[k], width)
	}
	return lines
}

// rankRow is the position of a rank, and the memory that its clients hold.
func rankRow(job status.Job, r status.Rank) []string {
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
