package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lcache/cmd/lcache/internal/planner"
	"lcache/internal/plan"
	"lcache/internal/units"
)

// writePlan prints a plan: the facts by where they are from, a row for each policy, what to do, and what would change it.
func writePlan(w io.Writer, r *planner.Report) {
	f := r.Model.Facts()
	fmt.Fprintf(w, "%s samples, %s (%s each), %s epochs\n", units.Count(int64(f.Samples)), bytesOf(f.DatasetBytes), bytesOf(f.DatasetBytes/f.Samples), units.Count(int64(f.Epochs)))
	writeProvenance(w, r)
	fmt.Fprintln(w)
	rows := [][]string{{"policy", "hit", "epoch", "stall", "bound by", "best held", "epoch", "written/epoch", "a day", "memory", "smallest cache"}}
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
	row := []string{string(p.Policy), fmt.Sprintf("%.2f", p.Hit), epochTime(p.EpochS), epochTime(p.StallS), p.BoundBy, held, best, written, daily, memory, smallest}
	if nodes {
		row = append(row, epochTime(p.Seconds.Disk), epochTime(p.Seconds.Network), epochTime(p.Seconds.Source))
	}
	return row
}

// writeProvenance says where the facts are from, one line for each origin.
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
		if a.Policy != a.Layout {
			held /= f.Nodes
		}
		fmt.Fprintf(w, "→ %s, holding %.0f %% (%s%s; %s of memory): %s.\n", a.Policy, 100*a.Admit, bytesOf(held), where, bytesOf(a.MemoryBytes), a.Reason)
		if a.DriveWritesPerDay > 0 {
			fmt.Fprintf(w, "  That is %.2g drive writes a day.", a.DriveWritesPerDay)
		}
		fmt.Fprintf(w, "  Without a cache an epoch takes %s. A cache of %s is within 2 %% of any.\n", epochTime(a.WithoutS), bytesOf(a.SmallestCache))
	}
	if r := a.SecondRun; r != nil {
		fmt.Fprintf(w, "  The first epoch of a job over a full log in another order: %s by place, %s with a sort.\n", epochTime(r.PlaceS), epochTime(r.SortS))
	}
	switch {
	case a.NotYet != "":
		fmt.Fprintf(w, "! %s. Today, without peers: %s, %s (--without-peers).\n", a.NotYet, a.AloneLayout, epochTime(a.AloneS))
	case a.AloneS > 0:
		fmt.Fprintf(w, "  Without peers: %s, %s.\n", a.AloneLayout, epochTime(a.AloneS))
	}
	if a.NextLimitS > 0 {
		fmt.Fprintf(w, "  Next limit: the %s, %s.\n", a.NextLimit, epochTime(a.NextLimitS))
	}
}

func writeWhatIf(w io.Writer, all []planner.WhatIf) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows := [][]string{{"what if", "layout", "held", "epoch", "bound by", "log", "static"}}
	for _, c := range all {
		row := []string{c.Key + "=" + c.Value, c.Layout, fmt.Sprintf("%.2f", c.Admit), epochTime(c.EpochS), c.BoundBy, epochTime(c.LogS), epochTime(c.StaticS)}
		if c.Error != "" {
			row = []string{c.Key + "=" + c.Value, "none", "–", "–", "needs " + bytesOf(c.Needs) + " of memory", "–", "–"}
		}
		rows = append(rows, row)
	}
	numbers(w, "  ", rows)
}

// epochTime is whole seconds, as epochs are compared; short ones with a digit more.
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
