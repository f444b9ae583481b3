package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/serve/status"
	"lcache/internal/units"
	"lcache/internal/usage"
)

// nameOf names a server's dataset.
func nameOf(d status.Document) string {
	if len(d.Jobs) > 0 && d.Jobs[0].Name != "" {
		return d.Jobs[0].Name
	}
	return filepath.Base(strings.Join(d.Cache.Dirs, ","))
}

// datasetBytes returns the size of a server's dataset.
func datasetBytes(d status.Document) int64 {
	if len(d.Jobs) > 0 {
		return d.Jobs[0].DatasetBytes
	}
	return 0
}

// clusterLine sums up the cluster of a server; "": it is in none.
func clusterLine(c status.Cluster) string {
	present, known := 0, 0
	for _, p := range c.Peers {
		if p.State == "ok" || p.State == "slow" || p.State == "late" || p.State == "aside" {
			present++
		}
		if p.State != "refused" {
			known++
		}
	}
	switch {
	case c.State == status.ClusterOff || c.State == "":
		return ""
	case c.State == "forming" && c.Expected > 0:
		return fmt.Sprintf("waiting for %d of %d machines", max(c.Expected-present, 0), c.Expected)
	case c.State == "forming":
		return "looking for other machines"
	case c.State == "alone":
		return "no other machine"
	case c.State == "refused":
		return "takes no part: another machine says that it has this cache"
	}
	return fmt.Sprintf("%d of %d machines", present, max(known, c.Expected))
}

// clusterText shows the machines that a server knows.
func clusterText(d status.Document) string {
	c := d.Cluster
	var b strings.Builder
	fmt.Fprintf(&b, "cluster  %s\n", joined(clusterLine(c), usage.Name(nameOf(d)), units.Bytes(datasetBytes(d)), keptText(c), "listens on "+c.Listen))
	rows := [][]string{{"machine", "state", "room", "keeps", "in", "out", "late", "address"}}
	for i, p := range c.Peers {
		host := usage.Name(p.Host)
		if i == 0 {
			host += " *"
		}
		state := p.State
		if state == "lost" {
			state += " " + units.Duration(p.StateSeconds)
		}
		in, late := units.Bytes(p.InBytes), units.Count(p.LateSamples)
		if i == 0 {
			in, late = "–", "–"
		}
		out := units.Bytes(p.OutBytes)
		if i == 0 {
			out = "–"
		}
		rows = append(rows, []string{host, state, units.Percent(p.RoomShare, 1), units.Bytes(p.KeepBytes), in, out, late, p.Address})
	}
	for _, line := range columnLines("  ", rows, 0) {
		b.WriteString(line + "\n")
	}
	for _, w := range clusterWarnings(c) {
		b.WriteString("! " + w + "\n")
	}
	return b.String()
}

// keptText says what this machine keeps; "": the machines have not agreed yet.
func keptText(c status.Cluster) string {
	if len(c.Peers) == 0 || c.Peers[0].Copies == 0 {
		return ""
	}
	kept := "keeps " + units.Bytes(c.Peers[0].KeepBytes)
	if c.Peers[0].Copies > 1 {
		kept += fmt.Sprintf(" (%.1f copies)", c.Peers[0].Copies)
	}
	return kept
}

// clusterSummary sums up what a run exchanged with other machines; "": there were none.
func clusterSummary(d status.Document) string {
	peers, samples, late, source := int64(0), int64(0), int64(0), d.Cluster.SourceBytes
	for _, j := range d.Jobs {
		peers, samples, source = peers+j.HitsPeer, samples+j.SamplesDelivered, source+j.SourceBytes
	}
	for _, p := range d.Cluster.Peers {
		late += p.LateSamples
	}
	if len(d.Cluster.Peers) < 2 && peers == 0 || samples == 0 {
		return ""
	}
	return joined(units.Plural(int64(max(len(d.Cluster.Peers), 1)), "machine", "machines"), units.Percent(float64(peers), float64(samples))+" from other machines",
		"source "+units.Bytes(source)+" by this one", units.Count(late)+" late")
}

// clusterWarnings lists the problems that an operator should look at.
func clusterWarnings(c status.Cluster) (lines []string) {
	for _, other := range c.Others {
		lines = append(lines, fmt.Sprintf("%s (%s) has another dataset with the name %s: the fingerprint is %s there, and %s here, so each goes on alone; compare the sources, or give them different names",
			usage.Name(other.Host), other.Address, usage.Name(c.Dataset), usage.Name(other.ID), c.Fingerprint))
	}
	if c.IsCrowded {
		lines = append(lines, overview.Crowded(c))
	}
	for _, p := range c.Peers {
		host := fmt.Sprintf("%s (%s)", usage.Name(p.Host), p.Address)
		switch {
		case p.State == "lost" && p.InRoster:
			lines = append(lines, fmt.Sprintf("%s has not answered for %s: after --peer-grace the roster is made without it", host, units.Duration(p.StateSeconds)))
		case p.State == "late":
			lines = append(lines, fmt.Sprintf("%s does not answer: its samples come from elsewhere until it does", host))
		case p.State == "aside":
			lines = append(lines, fmt.Sprintf("%s has sent wrong bytes for several samples: it is asked for nothing for a minute; check its memory and its network", host))
		case p.State == "slow":
			lines = append(lines, fmt.Sprintf("%s brings its samples at less than half of the rate of the others: a part of them, %s so far, is read from the source; look at its disk and its network", host, units.Count(p.SlowSamples)))
		case p.State == "refused":
			lines = append(lines, fmt.Sprintf("%s says that it has the same cache as %s: one of them is a copy; run lcache rm on the copy, and ingest again", host, sameCache(c, p)))
		}
	}
	if c.Refused > 0 && c.ReasonSeconds < recentRefusal.Seconds() {
		lines = append(lines, fmt.Sprintf("%s refused, the last one %s ago: %s", units.Plural(c.Refused, "message was", "messages were"), units.Duration(c.ReasonSeconds), usage.Name(c.Reason)))
	}
	return lines
}

// recentRefusal is how long a refused message is worth a warning.
const recentRefusal = 10 * time.Minute

// sameCache names the peer that is believed to have the cache of a refused one.
func sameCache(c status.Cluster, refused status.ClusterPeer) string {
	for _, p := range c.Peers {
		if p.ID == refused.ID && p.State != "refused" {
			return fmt.Sprintf("%s (%s)", usage.Name(p.Host), p.Address)
		}
	}
	return "another machine"
}
