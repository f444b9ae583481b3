package main

import (
	"fmt"
	"io"

	"lcache/cmd/lcache/internal/bench"
	"lcache/internal/units"
	"lcache/internal/usage"
	"lcache/internal/verdict"
)

// shortest is the shortest meaningful epoch, in seconds. In a shorter one, filling new memory takes a noticeable part.
const shortest = 5.0

// writeBench prints a line for each epoch, with the device's limit.
func writeBench(w io.Writer, r *bench.Report) {
	direct := "buffered"
	if r.Direct {
		direct = "O_DIRECT"
	}
	fmt.Fprintln(w, headline(usage.Names(r.Dirs, ","), joined(units.Plural(r.Samples, "sample", "samples"), units.Bytes(r.Bytes))))
	fmt.Fprintln(w, "  "+joined(r.Engine, direct, "pages of "+units.Binary(int64(r.Page)), units.Bytes(r.Memory)+" of memory", units.Plural(int64(r.CPUs), "CPU", "CPUs")))
	rows := [][]string{{"epoch", "time", "rate", "samples/s", "device", "of it", "CPU-s/GB", "bottleneck"}}
	brief, missed := false, int64(0)
	for _, e := range r.Epochs {
		name := "read only, into "
		if e.Reorder {
			name = "reordering, into "
		}
		device, part := "–", "–"
		if e.Limit > 0 {
			device, part = units.Rate(int64(e.Limit), 1), units.Percent(float64(e.Bytes)/e.Seconds, e.Limit)
		}
		rows = append(rows, []string{name + e.Into, units.Duration(e.Seconds), units.Rate(e.Bytes, e.Seconds), units.PerSecond(e.Samples, e.Seconds), device, part,
			fmt.Sprintf("%.2f", e.CPU/(float64(max(e.Bytes, 1))/1e9)), boundOf(e, r.CPUs)})
		brief = brief || e.Seconds < shortest
		missed += e.Misses
	}
	numbers(w, "  ", rows)
	for _, remark := range []struct{ what, text string }{
		{r.NoLimit, "the device was not measured: " + r.NoLimit},
		{r.NoPython, "no epoch into Python: " + r.NoPython},
		{when(missed > 0), units.Plural(missed, "sample was", "samples were") + " read from the source"},
		{when(brief), "an epoch of a few seconds says little: filling new memory takes part of it"},
		{when(r.To != r.From), fmt.Sprintf("the log advanced from epoch %d to %d; run your lcache ingest again to start from the first epoch", r.From, r.To)},
	} {
		if remark.what != "" {
			fmt.Fprintln(w, "  "+remark.text)
		}
	}
}

// boundOf names the bottleneck of an epoch. If nothing was at its limit, it names the measured limit that the epoch came nearest to.
func boundOf(e bench.Epoch, cpus int) string {
	if e.Bound != verdict.Unknown || e.Limit <= 0 || e.Seconds <= 0 {
		return string(e.Bound)
	}
	nearest, most := "disk", float64(e.Bytes)/e.Seconds/e.Limit
	if share := (e.CPU + e.Client) / e.Seconds / float64(max(cpus, 1)); share > most {
		nearest, most = "CPU", share
	}
	if share := e.Client / e.Seconds; e.Into == "Python" && share > most {
		nearest, most = "Python", share
	}
	return nearest + ", at " + units.Percent(most, 1)
}

func when(is bool) string {
	if is {
		return "yes"
	}
	return ""
}
