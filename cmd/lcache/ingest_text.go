package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/units"
	"lcache/internal/usage"
	"lcache/source"
)

// writeIngest prints the report of an ingest.
func writeIngest(w io.Writer, r *ingest.Report) {
	fmt.Fprintln(w, headline(usage.Name(r.Source)+" → "+usage.Names(r.Dirs, ","), "ready"))
	classes := "" // labels without names, as in tar shards, have no class
	if r.Classes > 0 {
		classes = units.Plural(int64(r.Classes), "class", "classes")
	}
	fmt.Fprintln(w, "  "+joined(
		units.Plural(int64(r.Samples), "sample", "samples"), classes,
		units.Bytes(r.Bytes), "fingerprint "+short(r.Fingerprint)))
	if r.LeftOut > 0 {
		fmt.Fprintln(w, "! "+leftOutText(r.Source, r.LeftOut))
	}
	for _, other := range r.Others {
		fmt.Fprintln(w, "! "+otherText(other))
	}
	fmt.Fprintln(w, "  read      "+readText(r))
	if n := r.Remote; n != nil {
		fmt.Fprintln(w, "  asked     "+joined(units.Plural(n.Requests, "request", "requests"), units.Plural(n.Retries, "retry", "retries"), units.Plural(n.Hedges, "hedge", "hedges"), waitText(r)))
	}
	fmt.Fprintln(w, "  stored    "+storedText(r))
	fmt.Fprintln(w, "  layout    "+layoutText(r.Layout, r.LayoutReason))
	fmt.Fprintf(w, "  memory    %s · %s of %s · blocks of %s\n",
		units.Bytes(r.MemoryBytes), units.Plural(int64(r.Segments), "segment", "segments"), units.Bytes(r.SegmentBytes), units.Binary(r.BlockBytes))
	fmt.Fprintf(w, "next: lcache run --cache %s -- python train.py\n", usage.ShellWord(strings.Join(r.Dirs, ",")))
}

// writeHint says that each sample is a whole shard, or another file that probably holds many samples. Without a pattern and records it says nothing.
func writeHint(w io.Writer, tarPattern, records string) {
	if tarPattern != "" {
		fmt.Fprintf(w, "! each sample is a whole tar file: --source %s takes the samples in them\n", usage.ShellWord(tarPattern))
	}
	if records != "" {
		fmt.Fprintf(w, "! %s\n", usage.Message(records))
	}
}

// leftOutText says how many files of a source belong to no sample, and why.
func leftOutText(src string, n int) string {
	if strings.HasPrefix(src, source.TarScheme) {
		return fmt.Sprintf("%s left out: only names such as KEY.EXT make samples", units.Plural(int64(n), "member of the shards is", "members of the shards are"))
	}
	return fmt.Sprintf("%s left out: not in a class folder; --flat takes all files, as one list", units.Plural(int64(n), "file is", "files are"))
}

// otherText names another cache of the source.
func otherText(o ingest.Other) string {
	filter := "without --ext"
	if len(o.Exts) > 0 {
		filter = "with --ext " + strings.Join(o.Exts, ",")
	}
	return fmt.Sprintf("another cache of this source, %s, is %s: a filter that removes files has a cache of its own; lcache rm removes one", filter, usage.ShellWord(o.Dir))
}

// waitText says how long a reader waited for the source; "": nothing was read.
func waitText(r *ingest.Report) string {
	if r.ReadBytes == 0 {
		return ""
	}
	return fmt.Sprintf("each reader waited %s of %s for the source", units.Duration(r.SourceWait), units.Duration(r.ReadSeconds))
}

// costText describes the requests that a source will get.
func costText(c ingest.Cost) string {
	if c.Shards > 0 {
		return joined("cost      "+units.Plural(int64(c.Shards), "shard", "shards"), units.Bytes(c.Bytes), units.Plural(c.Listed, "request", "requests")+" so far",
			"about "+units.Plural(c.Index, "GET", "GETs")+" for their indexes, which are kept", "about "+units.Plural(c.Gets, "GET", "GETs")+" more to read the samples",
			"so each shard is read twice the first time")
	}
	text := joined("cost      "+units.Plural(c.Samples, "sample", "samples"), units.Bytes(c.Bytes))
	if c.Listed > 0 {
		text = joined(text, units.Plural(c.Listed, "request", "requests")+" for the listing", units.Plural(c.Gets, "GET", "GETs")+" to read them")
	}
	return text
}

func readText(r *ingest.Report) string {
	change := changeText(r)
	switch {
	case r.ReadBytes == 0 && change != "" && r.Resorted:
		return joined("nothing: the log is sorted again", change)
	case r.ReadBytes == 0 && change != "":
		return joined("nothing", change)
	case r.ReadBytes == 0 && r.Resorted:
		return "nothing: the log is sorted again"
	case r.ReadBytes == 0 && r.Already > 0:
		return fmt.Sprintf("nothing: %s were there already", units.Plural(r.Already, "sample", "samples"))
	case r.ReadBytes == 0:
		return "nothing yet: the first epoch reads the source, and fills the log"
	}
	already := change
	switch {
	case change != "":
	case r.Already > 0:
		already = units.Plural(r.Already, "sample was", "samples were") + " there already"
	}
	return joined(fmt.Sprintf("%s in %s", units.Bytes(r.ReadBytes), units.Duration(r.ReadSeconds)), units.Rate(r.ReadBytes, r.ReadSeconds),
		"once, in source order", already)
}

// changeText says how the source has changed since the last ingest; "": not at all.
func changeText(r *ingest.Report) string {
	switch {
	case !r.Changed:
		return ""
	case r.Anew:
		return "the source has changed since the last ingest: the cache is made again"
	case r.AddedSamples+r.RemovedSamples+r.ChangedSamples == 0:
		return "the same samples with other labels"
	}
	return fmt.Sprintf("%s added, %s removed, %s changed", humanize.Comma(int64(r.AddedSamples)), humanize.Comma(int64(r.RemovedSamples)), humanize.Comma(int64(r.ChangedSamples)))
}

func storedText(r *ingest.Report) string {
	stored := units.Bytes(r.StoredBytes)
	if r.HitRatio < 1 {
		stored = fmt.Sprintf("%s of %s · %s of each epoch from the log", stored, units.Bytes(r.Bytes), units.Percent(r.HitRatio, 1))
	}
	return joined(stored, compressText(r), "free after: "+units.Bytes(r.FreeAfter))
}

// compressText says whether samples are compressed, and which share of the bytes that saves or would save.
func compressText(r *ingest.Report) string {
	text := "lz4 off"
	if r.Compress == "lz4" {
		text = "lz4 on"
	}
	if r.Saves != nil {
		text += " (saves " + units.Percent(*r.Saves, 1) + ")"
	}
	return text
}

func layoutText(layout, reason string) string {
	if reason == "" {
		return layout
	}
	return layout + ": " + reason
}

// short returns the part of a fingerprint that is shown to people.
func short(fingerprint string) string {
	if len(fingerprint) > 8 {
		return fingerprint[:8]
	}
	return fingerprint
}

// writeDefaults prints the settings that lcache chose, and the reason of each.
func writeDefaults(w io.Writer, defaults []cache.Default) {
	for _, d := range defaults {
		fmt.Fprintf(w, "default   %-9s %s (%s)\n", d.Name, usage.Name(d.Value), usage.Message(d.From))
	}
}
