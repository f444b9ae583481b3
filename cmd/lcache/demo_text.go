package main

import (
	"fmt"
	"io"
	"strings"

	"lcache/engine"
	"lcache/figures"
)

// demoResult is everything that a demo saw.
type demoResult struct {
	Source string    `json:"source"`
	Epochs int       `json:"epochs"`
	World  int       `json:"world"`
	Full   demoPass  `json:"full"`
	Half   *demoPass `json:"half,omitempty"` // nil: the source is too small to be halved
}

// demoPass is one run over all epochs with one budget.
type demoPass struct {
	Name   string               `json:"name"`
	Ingest *engine.IngestReport `json:"ingest"`
	Epochs []demoEpoch          `json:"epochs"`
	Wrong  []string             `json:"wrong"` // the first differences that ranks saw, in words
	Wrongs int                  `json:"wrongs"`
}

// demoEpoch is one epoch as ranks saw it, and what the server's counters did in it. Loading ahead crosses epochs by some
// segments, so reads and writes of neighbours may lend each other a little; their sums are exact.
type demoEpoch struct {
	Epoch      int     `json:"epoch"`
	Samples    int64   `json:"samples"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"` // with reading every file again and comparing it
	Hits       int64   `json:"hits"`
	Misses     int64   `json:"misses"`
	LogReads   int64   `json:"log_reads"`
	LogRead    int64   `json:"log_read_bytes"`
	LogWritten int64   `json:"log_write_bytes"`
	Source     int64   `json:"source_bytes"`
	Stalled    float64 `json:"stall_seconds"`
}

func (p *demoPass) add(epoch int, seconds float64, answers []seen, before, after engine.Status) {
	e := demoEpoch{Epoch: epoch, Seconds: seconds}
	for _, a := range answers {
		e.Samples += int64(a.Samples)
		e.Bytes += a.Bytes
		p.Wrong = append(p.Wrong, a.Wrong...)
		p.Wrongs += a.Wrongs
	}
	if len(before.Jobs) > 0 && len(after.Jobs) > 0 {
		b, a := before.Jobs[0], after.Jobs[0]
		e.Hits, e.Misses = int64(a.Hits-b.Hits), int64(a.Misses-b.Misses)
		e.LogReads, e.LogRead = int64(a.LogReadOps-b.LogReadOps), int64(a.LogReadBytes-b.LogReadBytes)
		e.LogWritten, e.Source = int64(a.LogWriteBytes-b.LogWriteBytes), int64(a.SourceBytes-b.SourceBytes)
		e.Stalled = a.StallSeconds - b.StallSeconds
	}
	p.Epochs = append(p.Epochs, e)
}

// sum adds up all epochs; seconds and samples too.
func (p *demoPass) sum() (s demoEpoch) {
	for _, e := range p.Epochs {
		s.Samples += e.Samples
		s.Bytes += e.Bytes
		s.Seconds += e.Seconds
		s.Hits += e.Hits
		s.Misses += e.Misses
		s.LogReads += e.LogReads
		s.LogRead += e.LogRead
		s.LogWritten += e.LogWritten
		s.Source += e.Source
		s.Stalled += e.Stalled
	}
	return s
}

func writeDemoHead(w io.Writer, o demoOptions, r *engine.IngestReport) {
	fmt.Fprintf(w, "lcache demo · %s · %s in %s\n", o.source, figures.Bytes(r.Bytes), figures.Plural(int64(r.Samples), "file", "files"))
	fmt.Fprintf(w, "ingest      read %s in %s · %s · once, in the source's own order\n", figures.Bytes(r.ReadBytes), figures.Duration(r.ReadSeconds), figures.Rate(r.ReadBytes, r.ReadSeconds))
	fmt.Fprintf(w, "order       torch.distributed_sampler · seed 0 · %s · batches of %d\n", figures.Plural(int64(o.world), "rank", "ranks, a process each"), o.batch)
}

func writePass(w io.Writer, title string, p *demoPass) {
	r := p.Ingest
	fmt.Fprintf(w, "\n%s · budget %s · memory %s · %s · blocks of %s\n", title, figures.Bytes(r.BudgetBytes), figures.Bytes(r.MemoryBytes),
		figures.Plural(int64(r.Segments), "segment", "segments"), figures.Binary(r.BlockBytes))
	rows := [][]string{{"epoch", "samples/s", "MB/s", "hits", "misses", "log reads", "mean read", "log writes", "source", "stalled"}}
	for _, e := range p.Epochs {
		rows = append(rows, epochRow(fmt.Sprint(e.Epoch), e))
	}
	if len(p.Epochs) > 1 {
		rows = append(rows, epochRow("all", p.sum()))
	}
	numbers(w, "  ", rows)
	for _, wrong := range p.Wrong {
		fmt.Fprintf(w, "! %s\n", oneLine(wrong))
	}
}

func epochRow(name string, e demoEpoch) []string {
	mean := "–"
	if e.LogReads > 0 {
		mean = figures.Binary(e.LogRead / e.LogReads)
	}
	return []string{name, figures.PerSecond(e.Samples, e.Seconds), figures.PerSecond(e.Bytes/1e6, e.Seconds), figures.Count(e.Hits), figures.Count(e.Misses),
		figures.Count(e.LogReads), mean, figures.Bytes(e.LogWritten), figures.Bytes(e.Source), figures.Duration(e.Stalled)}
}

// check is one thing that must hold.
type check struct {
	name string
	text string
	good bool
}

// checks are what the demo shows: each line is said whether it held or not.
func (r *demoResult) checks() []check {
	full, want := r.Full.sum(), int64(r.Full.Ingest.Samples*r.Epochs)
	samples, wrongs, differs, complete := full.Samples, r.Full.Wrongs, len(r.Full.Wrong) > 0, full.Samples >= want
	if r.Half != nil {
		half := r.Half.sum()
		samples, wrongs = samples+half.Samples, wrongs+r.Half.Wrongs
		differs, complete = differs || len(r.Half.Wrong) > 0, complete && half.Samples >= want
	}
	differs = differs || wrongs > 0
	exact := fmt.Sprintf("%s in DistributedSampler's order, every byte equal to its file's", figures.Plural(samples, "sample", "samples"))
	if differs {
		exact = fmt.Sprintf("%s, see the lines with ! above", figures.Plural(int64(max(wrongs, 1)), "difference", "differences"))
	}
	checks := []check{
		{"exact", exact, !differs && complete},
		{"source", fmt.Sprintf("read once, at ingest: %s; then %s and %s from it in %s", figures.Bytes(r.Full.Ingest.ReadBytes),
			figures.Plural(full.Misses, "miss", "misses"), figures.Bytes(full.Source), figures.Plural(int64(r.Epochs), "epoch", "epochs")),
			full.Misses == 0 && full.Source == 0 && r.Full.Ingest.ReadBytes == r.Full.Ingest.Bytes},
		{"log", fmt.Sprintf("a full shuffle, read in pieces of %s on average; samples are %s", meanText(full), meanSample(r.Full.Ingest)),
			full.LogReads > 0 && full.LogRead >= r.fromDisk(r.Epochs) && full.LogWritten >= r.fromDisk(r.Epochs-1)},
	}
	if r.Half != nil {
		checks = append(checks, r.checkHalf())
	}
	return checks
}

func (r *demoResult) checkHalf() check {
	half, h, dataset := r.Half.sum(), r.Half.Ingest, float64(r.Full.Ingest.Bytes)
	c, fits := float64(h.BudgetBytes)/dataset, float64(h.BudgetBytes-h.SlackBytes)/dataset
	ratio := float64(half.Hits) / max(float64(half.Hits+half.Misses), 1)
	// The index is part of the budget too, and samples and blocks are kept whole.
	least := fits - float64(h.MetadataBytes+h.BlockBytes)/dataset - 1/float64(max(h.Samples, 1))
	return check{"half", fmt.Sprintf("hit ratio %.1f %%, beside (budget − slack)/S = %.1f %%; no policy can reach more than c = budget/S = %.1f %%",
		100*ratio, 100*fits, 100*c), ratio >= 0.98*least}
}

// fromDisk is the least that so many epochs must read of the log, or write: all of the dataset but for what is never on disk, the
// last block of each segment and what lies in the shared memory when an epoch begins.
func (r *demoResult) fromDisk(epochs int) int64 {
	i := r.Full.Ingest
	each := i.Bytes*95/100 - int64(i.Segments+3)*i.BlockBytes - 3*i.SegmentBytes
	return max(each, 0) * int64(epochs)
}

func meanText(e demoEpoch) string {
	if e.LogReads == 0 {
		return "–"
	}
	return figures.Binary(e.LogRead / e.LogReads)
}

func meanSample(r *engine.IngestReport) string {
	if r.Samples == 0 {
		return "–"
	}
	return figures.Binary(r.Bytes / int64(r.Samples))
}

func writeFindings(w io.Writer, r *demoResult) {
	fmt.Fprintln(w)
	for _, c := range r.checks() {
		mark := "✓"
		if !c.good {
			mark = "✗"
		}
		fmt.Fprintf(w, "%s %-8s%s\n", mark, c.name, c.text)
	}
	last := r.Full.Epochs[len(r.Full.Epochs)-1]
	fmt.Fprintf(w, "\nshown: full shuffles at %s an epoch, from a log that put itself in order for the next epoch while it was read\n", figures.Duration(last.Seconds))
	fmt.Fprintln(w, "       (times include opening every file again and comparing it)")
}

// failed names the checks that did not hold.
func (r *demoResult) failed() []string {
	var names []string
	for _, c := range r.checks() {
		if !c.good {
			names = append(names, strings.TrimSpace(c.name)+": "+c.text)
		}
	}
	return names
}
