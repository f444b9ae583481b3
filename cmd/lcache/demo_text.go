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
	title := "room for all files"
	if p.Name == "half" {
		title = "room for half of the files"
	}
	r := p.Ingest
	fmt.Fprintf(w, "\nlcache, %s · budget %s · memory %s\n  times include opening each file again and comparing its bytes\n", title, units.Bytes(r.BudgetBytes), units.Bytes(r.MemoryBytes))
	rows := [][]string{{"epoch", "samples/s", "MB/s", "hits", "misses", "disk reads", "mean read", "written", "source", "waited"}}
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
	fmt.Fprintf(w, "\nplain files, the same samples in the same order\n  times of open, read and close only, without comparing; at most 5 s each\n")
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

// writeDemoResult prints the verdict, and the measurements behind it.
func writeDemoResult(w io.Writer, r *demo.Result) {
	writeFindings(w, r)
	writePass(w, &r.Full)
	writePlain(w, r.Plain)
	if r.Half != nil {
		writePass(w, r.Half)
	}
}

func writeFindings(w io.Writer, r *demo.Result) {
	fmt.Fprintln(w)
	for _, c := range r.Checks() {
		mark := "✓"
		if !c.Good {
			mark = "✗"
		}
		fmt.Fprintf(w, "%s %-8s%s\n", mark, c.Name, c.Text)
	}
	if r.Half == nil {
		fmt.Fprintln(w, "– half    not run: this source is too small for half of the space")
	}
}
