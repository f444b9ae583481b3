package main

import (
	"fmt"
	"strings"
	"time"

	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/serve/status"
	"lcache/internal/units"
	"lcache/internal/usage"
)

// serverLines is the status of one server.
func serverLines(v overview.View, detail, width int) (lines []string) {
	if len(v.Now.Jobs) == 0 {
		return []string{fmt.Sprintf("pid %d · no job yet", v.Now.Pid)}
	}
	// The first entry of a document has the figures of the server.
	server := v.Now.Jobs[0]
	wasServer := server
	if len(v.Before.Jobs) > 0 {
		wasServer = v.Before.Jobs[0]
	}
	live, ended := v.Jobs()
	source := ""
	if len(live) == 1 {
		job, was := live[0], v.Earlier(live[0])
		lines = append(lines, factLine(width, "", append([]string{v.Title(job)}, overview.ProgressFacts(v, was, job)...)...))
		lines = append(lines, speedLines(v, was, job, width)...)
		source = "source " + units.Bytes(job.SourceBytesEpoch)
	} else {
		lines = append(lines, factLine(width, "", v.Title(server), units.Plural(int64(len(live)), "job", "jobs")))
	}
	if len(live) > 1 {
		rows := [][]string{jobColumns("job")}
		for _, job := range live {
			rows = append(rows, jobRow(v, overview.JobName(job), job))
		}
		lines = append(lines, columnLines("  ", rows, width)...)
		for _, job := range live {
			if i := job.Importance; i != nil {
				lines = append(lines, factLine(width, "  ", append([]string{overview.JobName(job)}, importanceFacts(i)...)...))
			}
		}
	}
	if detail >= withRanks {
		lines = append(lines, pastLines(v.Past, width)...)
	}
	lines = append(lines, factLine(width, "  disk   ", diskFacts(v, wasServer, server, source)...))
	if facts := wearFacts(v.Now.Cache.Wear); facts != nil {
		lines = append(lines, factLine(width, "  wear   ", facts...))
	}
	lines = append(lines, factLine(width, "  memory ", memoryFacts(v.Now)...))
	if line := clusterLine(v.Now.Cluster); line != "" {
		lines = append(lines, factLine(width, "  cluster ", line))
	}
	if detail >= withRanks {
		lines = append(lines, rankLines(live, width)...)
		lines = append(lines, eventLines(v.Now.Events, width)...)
	}
	if len(ended) > 0 {
		lines = append(lines, factLine(width, "  ended  ", endedJobs(ended)))
	}
	return append(lines, wrapped(v.Warnings(), width)...)
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
func speedLines(v overview.View, was, job status.Job, width int) (lines []string) {
	by := ""
	if what := overview.Bottleneck(job); what != "" {
		by = "bottleneck: " + what
	}
	who, waited := overview.LoopWait(v, was, job)
	lines = append(lines, factLine(width, "  ", who+" "+waited, by, units.Plural(int64(job.ReadyBatches), "batch", "batches")+" ready"))
	demand, other := "", ""
	if job.OnDemand {
		demand = "no read-ahead (--jobs-max)"
	}
	if job.Divergences > 0 {
		other = units.Plural(job.Divergences, "request", "requests") + " in another order"
	}
	lines = append(lines, factLine(width, "  ",
		units.Rate(job.BytesDelivered-was.BytesDelivered, v.Seconds),
		units.PerSecond(job.SamplesDelivered-was.SamplesDelivered, v.Seconds)+" samples/s",
		"hits "+units.Percent(float64(job.HitsEpoch), float64(job.HitsEpoch+job.MissesEpoch)), other, demand))
	if i := job.Importance; i != nil {
		lines = append(lines, factLine(width, "  ", importanceFacts(i)...))
	}
	return lines
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

func diskFacts(v overview.View, was, job status.Job, source string) []string {
	reads := ""
	if job.LogReadOps > 0 {
		reads = units.Binary(job.LogReadBytes/job.LogReadOps) + " reads"
	}
	sorted := ""
	if job.SortBytes > 0 {
		sorted = units.Bytes(job.SortBytes) + " written by sorts"
	}
	return []string{units.BothRates(job.LogReadBytes-was.LogReadBytes, job.LogWriteBytes-was.LogWriteBytes, v.Seconds), reads, source, sorted}
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
			row := overview.RankCells(job, r)
			if len(jobs) > 1 {
				row = append([]string{overview.JobName(job)}, row...)
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

// mostEvents is the number of events in a text.
const mostEvents = 3

// eventLines has the latest events, except those that the text shows anyway: jobs that come and go, and the start.
func eventLines(events []status.Event, width int) (lines []string) {
	for i := len(events) - 1; i >= 0 && len(lines) < mostEvents; i-- {
		e := events[i]
		if e.Kind == "started" || e.Kind == "job" {
			continue
		}
		at, err := time.Parse(time.RFC3339, e.Time)
		if err != nil {
			continue
		}
		lines = append(lines, cut("  event  "+at.Local().Format("2 Jan 15:04:05")+"  "+usage.Message(e.Text), width))
	}
	return lines
}
