package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"lcache/cmd/lcache/internal/launch"
	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/units"
	"lcache/internal/usage"
	"lcache/internal/verdict"
)

// runSummary is the document of --json.
type runSummary struct {
	Command  []string    `json:"command"`
	ExitCode int         `json:"exit_code"`
	Signal   int         `json:"signal"` // the signal that killed it; 0: none
	Seconds  float64     `json:"seconds"`
	Sources  []sourceSum `json:"sources"`

	Headspace []launch.Headspace `json:"headspace,omitempty"` // of each loader of the command, with --headspace
}

// sourceSum is the part of runSummary about one source.
type sourceSum struct {
	Name    string          `json:"name"`
	Source  string          `json:"source"`
	Server  int             `json:"attached_to,omitempty"` // process of a server that already ran; Status counts since its start
	Exact   string          `json:"exact"`
	Verdict verdict.Verdict `json:"verdict"`
	Status  status.Document `json:"status"`
	Jobs    []jobSum        `json:"jobs,omitempty"` // of this run, if there are several; Exact and Verdict belong to the first
}

// jobSum is the part of sourceSum about one of several jobs.
type jobSum struct {
	ID      string          `json:"id"`
	Exact   string          `json:"exact"`
	Verdict verdict.Verdict `json:"verdict"`
}

// writeResult prints the summary: for programs, or for people.
func writeResult(w io.Writer, g *globals, command []string, headspace bool, r *launch.Result) error {
	switch {
	case g.json:
		sum := runSummary{Command: command, ExitCode: r.ExitCode, Signal: int(r.Signal), Seconds: r.Seconds, Headspace: r.Loaders}
		for _, s := range r.Sources {
			of := sourceSum{s.Name, s.Path, s.AttachedTo, exactText(s.Part), s.Verdict, s.Status, nil}
			for k, j := range s.Part.Jobs {
				if len(s.Part.Jobs) > 1 {
					of.Jobs = append(of.Jobs, jobSum{j.ID, exactJob(j, s.Part.Jobs[0].CorruptSamples), s.Verdicts[k]})
				}
			}
			sum.Sources = append(sum.Sources, of)
		}
		return writeJSON(w, sum)
	case !g.quiet:
		writeRun(w, r)
		if headspace {
			writeHeadspace(w, r.Loaders)
		}
	}
	return nil
}

// writeRun prints how the command ended, and the epochs and the verdict for each source.
func writeRun(w io.Writer, r *launch.Result) {
	fmt.Fprintln(w, endedText(r))
	for _, s := range r.Sources {
		if len(r.Sources) > 1 {
			fmt.Fprintf(w, "\n%s · %s\n", s.Name, usage.Name(s.Path))
		}
		if len(s.Part.Jobs) > 1 {
			writeJobs(w, s)
		} else {
			writeEpochs(w, s.Part)
			writeLayout(w, s.Part)
			if facts := wearFacts(wearOf(s.Part, r.Seconds)); facts != nil {
				fmt.Fprintln(w, "wear        "+joined(facts...))
			}
			writeVerdict(w, exactText(s.Part), s.Verdict)
		}
		if line := clusterSummary(s.Part); line != "" {
			fmt.Fprintln(w, "cluster     "+line)
		}
		if s.AttachedTo != 0 {
			fmt.Fprintf(w, "server      process %d served this cache before, and continues\n", s.AttachedTo)
		}
		if n := overview.Skipped(s.Part); n > 0 {
			fmt.Fprintf(w, "skipped     %s left out of batches, because the source could not supply them; the log above names each\n", units.Plural(n, "sample was", "samples were"))
		}
	}
}

// writeVerdict prints how exact the samples were, the bottleneck, and the advice.
func writeVerdict(w io.Writer, exact string, v verdict.Verdict) {
	fmt.Fprintf(w, "exact       %s\nbottleneck  %s\nchange      %s\n", exact, strings.TrimPrefix(v.Bound, "by "), v.Change)
}

// writeLayout prints the layout and its reason, if it was chosen by the speed of the disk.
func writeLayout(w io.Writer, s status.Document) {
	if len(s.Jobs) > 0 && strings.HasPrefix(s.Jobs[0].LayoutReason, cache.ByDisk) {
		fmt.Fprintf(w, "layout      %s: %s\n", s.Jobs[0].Layout, s.Jobs[0].LayoutReason)
	}
}

// wearOf is the write volume per day of a run, if the size of the drives is known.
func wearOf(s status.Document, seconds float64) (w status.Wear) {
	if len(s.Jobs) == 0 || s.Cache.DriveBytes == 0 {
		return w
	}
	w.EndurancePerDay, w.DriveBytes = s.Cache.EndurancePerDay, s.Cache.DriveBytes
	w.PerDay(s.Jobs[0].LogWriteBytes, seconds)
	return w
}

// writeJobs prints epochs and verdict of each of several jobs, and the disk traffic of all of them.
func writeJobs(w io.Writer, s launch.SourceResult) {
	server := s.Part.Jobs[0] // its entry has the figures of the server
	for k, j := range s.Part.Jobs {
		fmt.Fprintf(w, "\njob %s\n", overview.JobName(j))
		numbers(w, "", dropColumns(epochRows(j), 5, 6)) // bytes read and written count for all jobs together
		writeVerdict(w, exactJob(j, server.CorruptSamples), s.Verdicts[k])
	}
	fmt.Fprintf(w, "\ndisk        %s read and %s written, for all jobs together\n", overview.Amount(server.LogReadBytes), overview.Amount(server.LogWriteBytes))
}

// dropColumns leaves columns from one to another out of a table.
func dropColumns(rows [][]string, from, to int) [][]string {
	for k := range rows {
		rows[k] = slices.Delete(rows[k], from, to+1)
	}
	return rows
}

// writeOpened prints the cache of a source, the settings that lcache chose, and the ignored flags.
func (o *runOptions) writeOpened(w io.Writer, n int, opened *launch.Opened) {
	if opened.AttachedTo != 0 {
		fmt.Fprintln(w, servedText(opened, "attached"))
		fmt.Fprintf(w, "          to process %d, which already serves it and continues after the command\n", opened.AttachedTo)
		ignored := slices.Clone(o.serverGiven)
		if opened.OtherJob {
			ignored = append(ignored, "the flags of the job")
		}
		if len(ignored) > 0 {
			fmt.Fprintf(w, "! ignored: %s: that server has its own settings\n", strings.Join(ignored, ", "))
		}
		return
	}
	fmt.Fprintln(w, servedText(opened, "serving"))
	if at := opened.ListedBefore; !at.IsZero() {
		fmt.Fprintf(w, "listed    %s; not listed again, because the cache is complete (--relist lists it)\n", at.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	writeHint(w, opened.TarPattern, opened.Records)
	if opened.LeftOut > 0 {
		fmt.Fprintln(w, "! "+leftOutText(opened.Path, opened.LeftOut))
	}
	for _, other := range opened.Others {
		fmt.Fprintln(w, "! "+otherText(other))
	}
	if f := opened.FirstEpoch; f != nil {
		fmt.Fprintln(w, "! "+firstEpochText(f, o.ingestLine(opened)))
	}
	if n == 0 && o.withoutRecipe != "" {
		fmt.Fprintln(w, o.withoutRecipe)
	}
	writeDefaults(w, opened.Defaults)
}

// firstEpochText describes the cost of a first epoch, and how to reduce it.
func firstEpochText(f *ingest.FirstEpoch, line string) string {
	return fmt.Sprintf("the first epoch requests each sample from the source: %s for %s; an ingest before it needs only %s: %s",
		units.Plural(f.Gets, "GET", "GETs"), units.Bytes(f.Bytes), units.Plural(f.Ingest, "GET", "GETs"), line)
}

// ingestLine is the command that fills a cache before the first epoch.
func (o *runOptions) ingestLine(opened *launch.Opened) string {
	words := append([]string{"lcache", "ingest", "--source", opened.Path, "--cache", strings.Join(opened.Dirs, ",")}, o.ingestFlags...)
	for i, word := range words {
		words[i] = usage.ShellWord(word)
	}
	return strings.Join(words, " ")
}

// servedText says which source is served from which cache. It begins with the name of the source, or with verb if it has none.
func servedText(o *launch.Opened, verb string) string {
	return fmt.Sprintf("%-9s %s", cmp.Or(o.Name, verb),
		joined(usage.Name(o.Path)+" from "+usage.Names(o.Dirs, ","), units.Plural(int64(o.Samples), "sample", "samples"), units.Bytes(o.Bytes)))
}

func endedText(r *launch.Result) string {
	how := fmt.Sprintf("ended (%d)", r.ExitCode)
	if r.Signal != 0 {
		how = "was killed by " + cmp.Or(unix.SignalName(r.Signal), "signal "+fmt.Sprint(int(r.Signal)))
	}
	return fmt.Sprintf("%s %s after %s", usage.Name(r.Command), how, units.Duration(r.Seconds))
}

// writeEpochs prints a line for each finished epoch, and one for other samples.
func writeEpochs(w io.Writer, s status.Document) {
	if len(s.Jobs) == 0 || s.Jobs[0].SamplesDelivered == 0 {
		return
	}
	numbers(w, "", epochRows(s.Jobs[0]))
}

// epochRows has a head, a row for each finished epoch of a job, and one for other samples.
func epochRows(j status.Job) [][]string {
	waited := "loop waited"
	for _, e := range j.EpochsDone {
		if !overview.Reported(e) {
			waited = "requests waited" // as the server measured it
		}
	}
	rows := [][]string{{"epoch", "time", "MB/s", "hits", "source", "read", "written", waited, "order"}}
	rest := status.Epoch{Hits: j.Hits, Misses: j.Misses, LogReadBytes: j.LogReadBytes, LogWriteBytes: j.LogWriteBytes, SourceBytes: j.SourceBytes}
	for _, e := range j.EpochsDone {
		rows = append(rows, overview.EpochCells(fmt.Sprint(e.Epoch), e, j))
		rest.Hits, rest.Misses = rest.Hits-e.Hits, rest.Misses-e.Misses
		rest.LogReadBytes, rest.LogWriteBytes, rest.SourceBytes = rest.LogReadBytes-e.LogReadBytes, rest.LogWriteBytes-e.LogWriteBytes, rest.SourceBytes-e.SourceBytes
	}
	if rest.Hits+rest.Misses > 0 {
		name := "by index"
		if rest.Hits+rest.Misses == j.HitsEpoch+j.MissesEpoch {
			name = "unfinished" // the last epoch, or read-ahead for an epoch that did not begin
		}
		rows = append(rows, overview.EpochCells(name, rest, j))
	}
	if j.Importance == nil {
		return rows
	}
	rows[0] = append(rows[0], "samples") // which vary from epoch to epoch
	for k := range rows[1:] {
		e := rest
		if k < len(j.EpochsDone) {
			e = j.EpochsDone[k]
		}
		rows[k+1] = append(rows[k+1], units.Count(e.Hits+e.Misses))
	}
	return rows
}

// exactText says how exact the samples of the first job were.
func exactText(s status.Document) string {
	if len(s.Jobs) == 0 {
		return exactJob(status.Job{}, 0)
	}
	return exactJob(s.Jobs[0], s.Jobs[0].CorruptSamples)
}

// exactJob says how exact the samples of a job were: the order first, then the bytes. corruptSamples is the server's count.
func exactJob(j status.Job, corruptSamples int64) string {
	if j.SamplesDelivered == 0 {
		return "no sample was read from this server"
	}
	known := 0
	for _, e := range j.EpochsDone {
		if e.OrderDigest != nil {
			known++
		}
	}
	whose := "the loader's own"
	if library, _, ok := strings.Cut(j.Recipe, "."); ok {
		whose = library + "'s"
	}
	if j.Importance != nil {
		whose = "drawn by " + j.Importance.Method
	}
	order := fmt.Sprintf("order as %s, %d of %s", whose, known, units.Plural(int64(len(j.EpochsDone)), "epoch", "epochs"))
	switch {
	case len(j.EpochsDone) == 0:
		order = "no epoch came to its end"
	case j.Divergences > 0:
		order = fmt.Sprintf("order as planned in %d of %s", known, units.Plural(int64(len(j.EpochsDone)), "epoch", "epochs"))
	}
	corrupt := "0 corrupt"
	if corruptSamples > 0 {
		corrupt = units.Plural(corruptSamples, "sample was", "samples were") + " corrupt on disk, and read from the source instead"
	}
	return joined(order, "every byte verified", corrupt)
}
