package main

import (
	"fmt"
	"io"
	"strings"

	"lcache/figures"
)

// boundBy names what an epoch waited for, from its own figures.
func (e *benchEpoch) boundBy(cpus int) string {
	rate := float64(e.Bytes) / e.Seconds
	switch {
	case e.Seconds <= 0 || e.Samples == 0:
		return "unknown"
	case e.Misses*20 > e.Samples:
		return "source"
	case e.Limit > 0 && rate >= 0.9*e.Limit:
		return "disk"
	case e.Into == "Python" && e.Client >= 0.8*e.Seconds:
		return "Python"
	case e.CPU+e.Client >= 0.8*e.Seconds*float64(cpus):
		return "CPU"
	}
	return "unknown"
}

// shortest is below which an epoch's time says little: the first window is loaded into new memory.
const shortest = 5.0

// writeBench prints the epochs beside the device's limit.
func writeBench(w io.Writer, r *benchReport) {
	direct := "buffered"
	if r.Direct {
		direct = "O_DIRECT"
	}
	fmt.Fprintln(w, headline(strings.Join(r.Dirs, ","), joined(figures.Plural(r.Samples, "sample", "samples"), figures.Bytes(r.Bytes))))
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
			fmt.Sprintf("%.2f", e.CPU/(float64(max(e.Bytes, 1))/1e9)), e.Bound})
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
