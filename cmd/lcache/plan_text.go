package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lcache/cmd/lcache/internal/planner"
	"lcache/internal/plan"
	"lcache/internal/units"
)

// writePlan prints a plan: the facts by origin, a row for each policy, the advice, and the effect of other facts.
func writePlan(w io.Writer, r *planner.Report) {
	f := r.Model.Facts()
	fmt.Fprintf(w, "%s samples, %s (%s each), %s epochs\n", units.Count(int64(f.Samples)), bytesOf(f.DatasetBytes), bytesOf(f.DatasetBytes/f.Samples), units.Count(int64(f.Epochs)))
	writeProvenance(w, r)
	fmt.Fprint(w, "\n  hits … bottleneck: with as much of the dataset in the cache as fits\n  best share …: with the share in the cache that makes an epoch shortest\n")
	rows := [][]string{{"policy", "hits", "epoch", "waiting", "bottleneck", "best share", "epoch", "written/epoch", "per day", "memory", "smallest cache"}}
	if f.Nodes > 1 {
		rows[0] = append(rows[0], "disk", "network", "source")
	}
	for _, p := range r.Policies {
		rows = append(rows, planRow(p, f.Nodes > 1))
	}
	numbers(w, "  ", rows)
	fmt.Fprintln(w)
	writeRecommendation(w, r)
	writeWhatIf(w, r.WhatIf)
}

func planRow(p planner.Row, nodes bool) []string {
	written, daily := "–", "–"
	if p.Best.WriteBytes > 0 {
		written, daily = bytesOf(p.Best.WriteBytes), bytesOf(p.Best.WritesPerDay())
	}
	smallest, held, best := "–", "–", "–"
	if p.SmallestCache > 0 {
		smallest = bytesOf(p.SmallestCache)
	}
	if p.Policy != plan.SourceOnly {
		held, best = fmt.Sprintf("%.2f", p.Admit), epochTime(p.BestEpochS)
	}
	memory := bytesOf(p.Best.MemoryBytes)
	if !p.Best.Fits {
		memory = "needs " + memory
	}
	row := []string{string(p.Policy), fmt.Sprintf("%.2f", p.Hit), epochTime(p.EpochS), epochTime(p.StallS), bottleneckName(p.BoundBy), held, best, written, daily, memory, smallest}
	if nodes {
		row = append(row, epochTime(p.Seconds.Disk), epochTime(p.Seconds.Network), epochTime(p.Seconds.Source))
	}
	return row
}

// writeProvenance prints the names of the facts, one line per origin.
func writeProvenance(w io.Writer, r *planner.Report) {
	from, _ := r.Facts["provenance"].(map[string]string)
	byOrigin := map[string][]string{}
	var origins []string
	for _, fact := range planner.Fields {
		origin := from[fact.Name]
		if origin == "" {
			continue
		}
		if !slices.Contains(origins, origin) {
			origins = append(origins, origin)
		}
		byOrigin[origin] = append(byOrigin[origin], fact.Name)
	}
	for _, origin := range origins {
		fmt.Fprintf(w, "  %s: %s\n", origin, strings.Join(byOrigin[origin], ", "))
	}
}

func writeRecommendation(w io.Writer, r *planner.Report) {
	a := r.Advice
	switch {
	case a.Error != "":
		fmt.Fprintf(w, "→ %s.\n", a.Error)
		return
	case a.Layout == "none":
		fmt.Fprintf(w, "→ %s.\n", a.Reason)
	default:
		f := r.Model.Facts()
		held, where := f.DatasetBytes*f.StoredRatio*a.Admit, ""
		if f.Nodes > 1 {
			where = " a node"
		}
		if a.Copies > 0 { // peers divide the dataset
			held *= a.Copies / a.Admit / f.Nodes
		}
		fmt.Fprintf(w, "→ %s, holding %.0f %% (%s%s; %s of memory): %s.\n", a.Policy, 100*a.Admit, bytesOf(held), where, bytesOf(a.MemoryBytes), a.Reason)
		if a.DriveWritesPerDay > 0 {
			fmt.Fprintf(w, "  That is %.2g drive writes per day.", a.DriveWritesPerDay)
		}
		fmt.Fprintf(w, "  Without a cache an epoch takes %s. A cache of %s is within 2 %% of any.\n", epochTime(a.WithoutS), bytesOf(a.SmallestCache))
	}
	if r := a.SecondRun; r != nil {
		fmt.Fprintf(w, "  If the log is full and in another job's order, the first epoch takes %s with random reads, %s after a sort.\n", epochTime(r.PlaceS), epochTime(r.SortS))
	}
	if a.AloneS > 0 {
		fmt.Fprintf(w, "  Without peers (--without-peers): %s, %s.\n", a.AloneLayout, epochTime(a.AloneS))
	}
	if a.NotYet != "" {
		fmt.Fprintf(w, "! %s. The best today: %s, %s.\n", a.NotYet, cmp.Or(a.TodayPolicy, "no cache"), epochTime(cmp.Or(a.TodayS, a.WithoutS)))
	}
	if a.NextLimitS > 0 {
		fmt.Fprintf(w, "  The next bottleneck is the %s: %s.\n", bottleneckName(a.NextLimit), epochTime(a.NextLimitS))
	}
}

func writeWhatIf(w io.Writer, all []planner.WhatIf) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows := [][]string{{"what if", "layout", "share", "epoch", "bottleneck", "log", "static"}}
	for _, c := range all {
		row := []string{c.Key + "=" + c.Value, c.Layout, fmt.Sprintf("%.2f", c.Admit), epochTime(c.EpochS), bottleneckName(c.BoundBy), epochTime(c.LogS), epochTime(c.StaticS)}
		if c.Error != "" {
			row = []string{c.Key + "=" + c.Value, "none", "–", "–", "needs " + bytesOf(c.Needs) + " of memory", "–", "–"}
		}
		rows = append(rows, row)
	}
	numbers(w, "  ", rows)
}

// bottleneckName is what people read for a value of bound_by.
func bottleneckName(by string) string {
	switch by {
	case "consumer":
		return "training loop"
	case "decode":
		return "decoding"
	}
	return by
}

// epochTime writes seconds: whole ones, and one digit more below 10 s.
func epochTime(s float64) string {
	switch {
	case math.IsInf(s, 0) || math.IsNaN(s):
		return "–"
	case s >= 10 || s == 0:
		return units.Count(int64(math.Round(s))) + " s"
	}
	return fmt.Sprintf("%.1f s", s)
}

func bytesOf(n float64) string { return units.Bytes(int64(min(n, math.MaxInt64/2))) }
