package main

import (
	"fmt"
	"io"

	"lcache/bench"
	"lcache/figures"
	"lcache/spelling"
)

// shortest is the least time of an epoch, in seconds, that says much. In a shorter one, loading the first window into new memory counts.
const shortest = 5.0

// writeBench prints a line for each epoch, with the device's limit.
func writeBench(w io.Writer, r *bench.Report) {
	direct := "buffered"
	if r.Direct {
		direct = "O_DIRECT"
	}
	fmt.Fprintln(w, headline(spelling.Names(r.Dirs, ","), joined(figures.Plural(r.Samples, "sample", "samples"), figures.Bytes(r.Bytes))))
	fmt.Fprintln(w, "  "+joined(r.Engine, direct, "pages of "+figures.Binary(int64(r.Page)), figures.Bytes(r.Memory)+" of memory", figures.Plural(int64(r.CPUs), "CPU", "CPUs")))
	rows := [][]string{{"epoch", "time", "rate", "samples/s", "device", "of it", "CPU-s/GB", "bound by"}}
	brief, missed := false, int64(0)
	for _, e := range r.Epochs {
		name := "read only, into "
		if e.Reorder {
			name = "reordering, into "
		}
		device, part := "–", "–"
		if e.Limit > 0 {
			device, part = figures.Rate(int64(e.Limit), 1), figures.Percent(float64(e.Bytes)/e.Seconds, e.Limit)
		}
		rows = append(rows, []string{name + e.Into, figures.Duration(e.Seconds), figures.Rate(e.Bytes, e.Seconds), figures.PerSecond(e.Samples, e.Seconds), device, part,
			fmt.Sprintf("%.2f", e.CPU/(float64(max(e.Bytes, 1))/1e9)), string(e.Bound)})
		brief = brief || e.Seconds < shortest
		missed += e.Misses
	}
	numbers(w, "  ", rows)
	for _, remark := range []struct{ what, text string }{
		{r.NoLimit, "the device was not measured: " + r.NoLimit},
		{r.NoPython, "no epoch into Python: " + r.NoPython},
		{when(missed > 0), figures.Plural(missed, "sample was", "samples were") + " read from the source"},
		{when(brief), "an epoch of a few seconds says little: the first window is loaded into new memory"},
		{when(r.To != r.From), fmt.Sprintf("the log moved on from epoch %d to %d: lcache ingest, as it was given, puts it back to the first", r.From, r.To)},
	} {
		if remark.what != "" {
			fmt.Fprintln(w, "  "+remark.text)
		}
	}
}

func when(is bool) string {
	if is {
		return "yes"
	}
	return ""
}
