package main

import (
	"fmt"
	"io"

	"lcache/internal/store/cache"
	"lcache/internal/units"
	"lcache/internal/usage"
)

// writeVerify prints how many samples were compared and how many differed, with the names of the first.
func writeVerify(w io.Writer, cache []string, against string, r *cache.VerifyReport) {
	state := "good"
	switch {
	case wrong(r) > 0:
		state = "CORRUPT"
	case unread(r) > 0:
		state = "UNREADABLE"
	}
	fmt.Fprintln(w, headline("verify "+usage.Names(cache, ","), state))
	fmt.Fprintln(w, "  "+joined(units.Plural(int64(r.Samples), "sample", "samples"), units.Count(int64(r.InLog))+" in the log",
		units.Bytes(r.Bytes)+" in "+units.Duration(r.Seconds), units.Rate(r.Bytes, r.Seconds)))
	missing := ""
	if r.Missing > 0 {
		missing = units.Count(int64(r.Missing)) + " not in the log, served from the source"
	}
	fmt.Fprintln(w, "  checksum "+joined(units.Count(int64(r.Good))+" good", units.Count(int64(r.Corrupt))+" corrupt", some(r.Unreadable, "unreadable"), units.Count(int64(r.Unknown))+" unknown", missing))
	if against != "" {
		fmt.Fprintf(w, "  against  %s: %s\n", usage.Name(against), joined(units.Count(int64(r.Different))+" different", some(r.Uncompared, "unreadable")))
	}
	if r.Forgotten > 0 {
		fmt.Fprintf(w, "  repair   %s dropped: the next ingest or epoch reads them from the source\n", units.Count(int64(r.Forgotten)))
	}
	tell(w, r.Bad, usage.Name, wrong(r))
	tell(w, r.Errors, usage.Message, unread(r))
}

// tell prints a line for each of the first of n samples, as shown writes it, and how many more there are.
func tell(w io.Writer, first []string, shown func(string) string, n int) {
	for _, line := range first {
		fmt.Fprintf(w, "! %s\n", shown(line))
	}
	if more := n - len(first); more > 0 && len(first) > 0 {
		fmt.Fprintf(w, "! and %s more\n", units.Count(int64(more)))
	}
}

// wrong returns the number of samples with wrong bytes.
func wrong(r *cache.VerifyReport) int { return r.Corrupt + r.Different }

// unread returns the number of samples that could not be read.
func unread(r *cache.VerifyReport) int { return r.Unreadable + r.Uncompared }

// some writes a number of things; "" for 0.
func some(n int, what string) string {
	if n == 0 {
		return ""
	}
	return units.Count(int64(n)) + " " + what
}
