package main

import (
	"fmt"
	"io"
	"strconv"

	"lcache/internal/usage"
)

// writeOrderDiff prints the result of order --diff.
func writeOrderDiff(w io.Writer, d *orderDiff) {
	switch {
	case d.Equal && d.states[0].onlyDigest || d.Equal && d.states[1].onlyDigest:
		fmt.Fprintln(w, "equal: the same order")
	case d.Equal:
		s := d.states[0]
		fmt.Fprintf(w, "equal: epoch %d, batch %d, order %.12s…\n", *s.Epoch, *s.Consumed, valueText(s.Digest))
	default:
		fmt.Fprintln(w, "different")
	}
	width := 0
	for _, o := range d.Options {
		width = max(width, len(o.Option))
	}
	for _, o := range d.Options {
		fmt.Fprintf(w, "  %-*s  %s, %s\n", width, o.Option, usage.Name(o.A), usage.Name(o.B))
	}
	if len(d.Recipes) == 2 && d.Recipes[0] == d.Recipes[1] {
		fmt.Fprintf(w, "both orders are those of %s, as their digests show\n", d.Recipes[0])
	}
	if f := d.First; f != nil {
		fmt.Fprintf(w, "first difference: epoch %d", f.Epoch)
		if f.Rank >= 0 {
			fmt.Fprintf(w, ", rank %d, position %d", f.Rank, f.Position)
		}
		if f.A >= 0 || f.B >= 0 {
			fmt.Fprintf(w, ": sample %s, %s", sampleText(f.A), sampleText(f.B))
		}
		fmt.Fprintln(w)
	}
	for _, note := range d.Notes {
		fmt.Fprintln(w, "note: "+note)
	}
}

func sampleText(index int64) string {
	if index < 0 {
		return "none"
	}
	return strconv.FormatInt(index, 10)
}
