package main

import (
	"fmt"
	"io"

	"lcache/cmd/lcache/internal/demo"
	"lcache/internal/store/ingest"
	"lcache/internal/units"
	"lcache/internal/usage"
)

func writeDemoHead(w io.Writer, o demo.Options, r *ingest.Report) {
	fmt.Fprintf(w, "lcache demo · %s · %s in %s\n", usage.Name(o.Source), units.Bytes(r.Bytes), units.Plural(int64(r.Samples), "file", "files"))
	fmt.Fprintf(w, "ingest      read %s in %s · %s · once, in the source's own order\n", units.Bytes(r.ReadBytes), units.Duration(r.ReadSeconds), units.Rate(r.ReadBytes, r.ReadSeconds))
	fmt.Fprintf(w, "order       torch.distributed_sampler · seed 0 · %s · batches of %d\n", units.Plural(int64(o.World), "rank", "ranks, a process each"), o.BatchSize)
}

func writePass(w io.Writer, p *demo.Pass) {
	title := "all of it on the SSD"
	if p.Name == "half" {
		title = "with half of the space"
	}
	r := p.Ingest
	fmt.Fprintf(w, "\n%s · budget %s · memory %s · %s · blocks of %s\n", title, units.Bytes(r.BudgetBytes), units.Bytes(r.MemoryBytes),
		units.Plural(int64(r.Segments), "segment", "segments"), units.Binary(r.BlockBytes))
	rows := [][]string{{"epoch", "samples/s", "MB/s", "hits", "misses", "log reads", "mean read", "log writes", "source", "stalled"}}
	for _, e := range p.Epochs {
		rows = append(rows, epochRow(fmt.Sprint(e.Epoch), e))
	}
	if len(p.Epochs) > 1 {
		rows = append(rows, epochRow("all", p.Sum()))
	}
	numbers(w, "  ", rows)
	for _, wrong := range p.Wrong {
		fmt.Fprintf(w, "! %s\n", usage.Message(wrong))
	}
}

func epochRow(name string, e demo.Epoch) []string {
	mean := "–"
	if e.LogReads > 0 {
		mean = units.Binary(e.LogRead / e.LogReads)
	}
	return []string{name, units.PerSecond(e.Samples, e.Seconds), units.PerSecond(e.Bytes/1e6, e.Seconds), units.Count(e.Hits), units.Count(e.Misses),
		units.Count(e.LogReads), mean, units.Bytes(e.LogWritten), units.Bytes(e.Source), units.Duration(e.Stalled)}
}

func writePlain(w io.Writer, p *demo.PlainFiles) {
	fmt.Fprintf(w, "\nthe same samples in the same order as plain files · open, read, close · timed without comparing files, at most 5 s each\n")
	rows := [][]string{{"", "samples/s", "MB/s", "from the disk"}}
	for _, r := range p.Readings {
		rows = append(rows, []string{r.Name(), units.PerSecond(r.Samples, r.Seconds), units.PerSecond(r.Bytes/1e6, r.Seconds), fromDisk(r)})
	}
	numbers(w, "  ", rows)
	for _, wrong := range p.Wrong {
		fmt.Fprintf(w, "! %s\n", wrong)
	}
}

func fromDisk(r demo.Reading) string {
	if r.Disk < 0 {
		return "not known"
	}
	return units.Percent(float64(min(r.Disk, r.Bytes)), float64(r.Bytes)) // files are read by whole pages, the log by whole blocks
}

func writeFindings(w io.Writer, r *demo.Result) {
	if r.Half == nil {
		fmt.Fprintf(w, "\nwith half of the space: left out, this source is too small for it\n")
	}
	fmt.Fprintln(w)
	for _, c := range r.Checks() {
		mark := "✓"
		if !c.Good {
			mark = "✗"
		}
		fmt.Fprintf(w, "%s %-8s%s\n", mark, c.Name, c.Text)
	}
	last := r.Full.Epochs[len(r.Full.Epochs)-1]
	fmt.Fprintf(w, "\nshown: full shuffles at %s an epoch, from a log that put itself in order for the next epoch while it was read\n", units.Duration(last.Seconds))
	fmt.Fprintln(w, "       (times include opening every file again and comparing it)")
}
