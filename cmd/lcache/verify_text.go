package main

import (
	"fmt"
	"io"
	"strings"

	"lcache/cache"
	"lcache/figures"
)

// writeVerify prints what was compared and what differed, with the first names of what did.
func writeVerify(w io.Writer, cache []string, against string, r *cache.VerifyReport) {
	state := "good"
	switch {
	case wrong(r) > 0:
		state = "CORRUPT"
	case unread(r) > 0:
		state = "UNREADABLE"
	}
	fmt.Fprintln(w, headline("verify "+strings.Join(cache, ","), state))
	fmt.Fprintln(w, "  "+joined(figures.Plural(int64(r.Samples), "sample", "samples"), figures.Count(int64(r.InLog))+" in the log",
		figures.Bytes(r.Bytes)+" in "+figures.Duration(r.Seconds), figures.Rate(r.Bytes, r.Seconds)))
	missing := ""
	if r.Missing > 0 {
		missing = figures.Count(int64(r.Missing)) + " not in the log, served from the source"
	}
	fmt.Fprintln(w, "  sums     "+joined(figures.Count(int64(r.Good))+" good", figures.Count(int64(r.Corrupt))+" corrupt", some(r.Unreadable, "unreadable"), figures.Count(int64(r.Unknown))+" unknown", missing))
	if against != "" {
		fmt.Fprintf(w, "  against  %s: %s\n", against, joined(figures.Count(int64(r.Different))+" different", some(r.Uncompared, "unreadable")))
	}
	if r.Forgotten > 0 {
		fmt.Fprintf(w, "  repair   %s forgotten: the next ingest or epoch reads them from the source\n", figures.Count(int64(r.Forgotten)))
	}
	tell(w, r.Bad, wrong(r))
	tell(w, r.Errors, unread(r))
}

// tell prints the first of n samples, a line each, and how many more there are.
func tell(w io.Writer, first []string, n int) {
	for _, line := range first {
		fmt.Fprintf(w, "! %s\n", oneLine(line))
	}
	if more := n - len(first); more > 0 && len(first) > 0 {
		fmt.Fprintf(w, "! and %s more\n", figures.Count(int64(more)))
	}
}

// wrong is how many samples are not what they should be.
func wrong(r *cache.VerifyReport) int { return r.Corrupt + r.Different }

// unread is how many samples there is no verdict on.
func unread(r *cache.VerifyReport) int { return r.Unreadable + r.Uncompared }

// some is a count of what there usually is none of: then it is "".
func some(n int, what string) string {
	if n == 0 {
		return ""
	}
	return figures.Count(int64(n)) + " " + what
}
