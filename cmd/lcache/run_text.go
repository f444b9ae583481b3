package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"lcache/engine"
	"lcache/figures"
	"lcache/verdict"
)

// runSummary is what a run ends with, for people and for programs.
type runSummary struct {
	Command  []string    `json:"command"`
	ExitCode int         `json:"exit_code"`
	Signal   int         `json:"signal"` // that killed it; 0: none
	Seconds  float64     `json:"seconds"`
	Sources  []sourceSum `json:"sources"`
}

// sourceSum is what was seen of one source.
type sourceSum struct {
	Name    string          `json:"name"`
	Source  string          `json:"source"`
	Server  int             `json:"attached_to,omitempty"` // the process whose server it was, if it was there before; Status is since its start
	Exact   string          `json:"exact"`
	Verdict verdict.Verdict `json:"verdict"`
	Status  engine.Status   `json:"status"`

	ofRun engine.Status
}

// sumUp prints the summary.
func (r *runner) sumUp(done commandDone) error {
	sum := runSummary{Command: r.command, ExitCode: done.code, Signal: int(done.signal), Seconds: done.seconds}
	for _, s := range r.serving {
		of := s.ofRun()
		one := sourceSum{Name: s.name, Source: s.source, Exact: exactText(of), Verdict: verdict.Judge(factsOf(of, s.ready.value(), r.disk)), Status: s.last, ofRun: of}
		if s.other != nil {
			one.Server = s.other.pid
		}
		sum.Sources = append(sum.Sources, one)
	}
	if r.json {
		return writeJSON(r.out, sum)
	}
	if !r.quiet {
		writeRun(r.out, done, sum)
	}
	return nil
}

// writeRun prints how a command ended, and for each source its epochs and what bound them.
func writeRun(w io.Writer, done commandDone, sum runSummary) {
	fmt.Fprintln(w, endedText(done))
	for _, s := range sum.Sources {
		if len(sum.Sources) > 1 {
			fmt.Fprintf(w, "\n%s · %s\n", s.Name, oneLine(s.Source))
		}
		writeEpochs(w, s.ofRun)
		fmt.Fprintf(w, "exact   %s\nbound   %s\nchange  %s\n", s.Exact, s.Verdict.Bound, s.Verdict.Change)
		if s.Server != 0 {
			fmt.Fprintf(w, "server  process %d was there before, and goes on\n", s.Server)
		}
		if n := skipped(s.ofRun); n > 0 {
			fmt.Fprintf(w, "skipped %s left out of batches, as the source could not give them; the log above names each\n", figures.Plural(n, "sample was", "samples were"))
		}
	}
}

// skipped is how often a sample was left out.
func skipped(s engine.Status) int64 {
	if len(s.Jobs) == 0 {
		return 0
	}
	return s.Jobs[0].SkippedSamples
}

func endedText(d commandDone) string {
	how := fmt.Sprintf("ended (%d)", d.code)
	if d.signal != 0 {
		how = "was killed by " + cmp.Or(unix.SignalName(d.signal), "signal "+fmt.Sprint(int(d.signal)))
	}
	return fmt.Sprintf("%s %s after %s", oneLine(d.name), how, figures.Duration(d.seconds))
}

// writeEpochs prints a line for each epoch that came to its end, and one for the rest.
func writeEpochs(w io.Writer, s engine.Status) {
	if len(s.Jobs) == 0 || s.Jobs[0].SamplesDelivered == 0 {
		return
	}
	j := s.Jobs[0]
	waited := "loop waited"
	for _, e := range j.EpochsDone {
		if e.LoopWaitSeconds == nil {
			waited = "stalled" // what the server saw of it
		}
	}
	rows := [][]string{{"epoch", "time", "MB/s", "hits", "source", "read", "written", waited, "order"}}
	rest := engine.EpochDone{Hits: j.Hits, Misses: j.Misses, LogReadBytes: j.LogReadBytes, LogWriteBytes: j.LogWriteBytes, SourceBytes: j.SourceBytes}
	for _, e := range j.EpochsDone {
		rows = append(rows, runEpochRow(fmt.Sprint(e.Epoch), e, j))
		rest.Hits, rest.Misses = rest.Hits-e.Hits, rest.Misses-e.Misses
		rest.LogReadBytes, rest.LogWriteBytes, rest.SourceBytes = rest.LogReadBytes-e.LogReadBytes, rest.LogWriteBytes-e.LogWriteBytes, rest.SourceBytes-e.SourceBytes
	}
	if rest.Hits+rest.Misses > 0 {
		rows = append(rows, runEpochRow("part", rest, j)) // of an epoch, or asked for by index
	}
	numbers(w, "", rows)
}

func runEpochRow(name string, e engine.EpochDone, j engine.JobStatus) []string {
	row := []string{name, "–", "–", figures.Percent(float64(e.Hits), float64(e.Hits+e.Misses)), amount(e.SourceBytes), amount(e.LogReadBytes), amount(e.LogWriteBytes), "–", "–"}
	if e.Seconds > 0 {
		row[1] = clock(e.Seconds)
		row[2] = megabytes(float64(e.Hits+e.Misses) * float64(j.DatasetBytes) / float64(max(j.Samples, 1)) / e.Seconds)
		waited, of := e.StallSeconds, e.Seconds
		if e.LoopWaitSeconds != nil {
			waited, of = *e.LoopWaitSeconds, loopTime(e)
		}
		row[7] = figures.Percent(waited, of)
	}
	if e.OrderDigest != nil && len(*e.OrderDigest) >= 4 {
		row[8] = (*e.OrderDigest)[:4] + "…"
	}
	return row
}

// amount is bytes, 0 without a unit: a column with nothing in it is seen at once.
func amount(n int64) string {
	if n <= 0 {
		return "0"
	}
	return figures.Bytes(n)
}

func megabytes(perSecond float64) string {
	if mb := perSecond / 1e6; mb < 10 {
		return fmt.Sprintf("%.1f", mb)
	}
	return figures.Count(int64(perSecond/1e6 + 0.5))
}

// clock is "0.4 s", "9:12", "1:03:20".
func clock(seconds float64) string {
	if seconds < 60 {
		return figures.Duration(seconds)
	}
	n := int64(seconds + 0.5)
	if n < 3600 {
		return fmt.Sprintf("%d:%02d", n/60, n%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", n/3600, n/60%60, n%60)
}

// exactText says how right it was: the order first, then the bytes.
func exactText(s engine.Status) string {
	if len(s.Jobs) == 0 {
		return "nothing was asked for: this server was not used"
	}
	j := s.Jobs[0]
	if j.SamplesDelivered == 0 {
		return "nothing was asked for: this server was not used"
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
	order := fmt.Sprintf("order as %s, %d of %s", whose, known, figures.Plural(int64(len(j.EpochsDone)), "epoch", "epochs"))
	switch {
	case len(j.EpochsDone) == 0:
		order = "no epoch came to its end"
	case j.Divergences > 0:
		order = fmt.Sprintf("order as planned in %d of %s", known, figures.Plural(int64(len(j.EpochsDone)), "epoch", "epochs"))
	}
	corrupt := "0 corrupt"
	if j.CorruptSamples > 0 {
		corrupt = figures.Plural(j.CorruptSamples, "sample was", "samples were") + " corrupt on disk, and read from the source instead"
	}
	return joined(order, "every byte verified", corrupt)
}
