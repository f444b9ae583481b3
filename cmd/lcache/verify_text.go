package main

import (
	"fmt"
	"io"
	"strings"

	"lcache/engine"
)

// writeVerify prints what was compared and what differed, with the first names of what did.
func writeVerify(w io.Writer, cache []string, against string, r *engine.VerifyReport) {
	state := "good"
	if wrong(r) > 0 {
		state = "CORRUPT"
	}
	fmt.Fprintln(w, headline("verify "+strings.Join(cache, ","), state))
	fmt.Fprintln(w, "  "+joined(plural(int64(r.Samples), "sample", "samples"), count(int64(r.InLog))+" in the log",
		bytesText(r.Bytes)+" in "+duration(r.Seconds), rate(r.Bytes, r.Seconds)))
	missing := ""
	if r.Missing > 0 {
		missing = count(int64(r.Missing)) + " not in the log, served from the source"
	}
	fmt.Fprintln(w, "  sums     "+joined(count(int64(r.Good))+" good", count(int64(r.Corrupt))+" corrupt", count(int64(r.Unknown))+" unknown", missing))
	if against != "" {
		fmt.Fprintf(w, "  against  %s: %s different\n", against, count(int64(r.Different)))
	}
	for _, name := range r.Bad {
		fmt.Fprintf(w, "! %s\n", oneLine(name))
	}
	if more := wrong(r) - len(r.Bad); more > 0 && len(r.Bad) > 0 {
		fmt.Fprintf(w, "! and %s more\n", count(int64(more)))
	}
}

// wrong is how many samples are not what they should be.
func wrong(r *engine.VerifyReport) int { return r.Corrupt + r.Different }
