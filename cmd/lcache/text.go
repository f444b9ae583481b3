package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"lcache/internal/jsonbytes"
)

// The layout of lines and tables. Package figures writes the numbers.

// headline makes a first line: a name, and its state at a fixed column.
func headline(what, state string) string {
	const column = 56
	pad := max(column-utf8.RuneCountInString(what), 2)
	return what + strings.Repeat(" ", pad) + state
}

// joined joins facts on one line, without the empty ones.
func joined(facts ...string) string {
	var kept []string
	for _, f := range facts {
		if f != "" {
			kept = append(kept, f)
		}
	}
	return strings.Join(kept, " · ")
}

// table writes rows under a head, columns as wide as they need, two spaces between them.
func table(w io.Writer, indent string, rows [][]string) {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	t.Flush()
	for _, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		fmt.Fprintln(w, strings.TrimRight(indent+line, " "))
	}
}

// numbers writes a table of numbers: the first column to the left, all others to the right, under their heads.
func numbers(w io.Writer, indent string, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		b.WriteString(indent)
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// writeJSON writes a report as one indented document that begins with "schema": 1.
func writeJSON(w io.Writer, report any) error {
	body, err := jsonbytes.Marshal(report)
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if !bytes.HasPrefix(body, []byte(`{"schema":`)) {
		rest := bytes.TrimPrefix(body, []byte("{"))
		if len(rest) > 1 {
			rest = append([]byte(","), rest...)
		}
		body = append([]byte(`{"schema":1`), rest...)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, body, "", "  "); err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	out.WriteByte('\n')
	_, err = out.WriteTo(w)
	return err
}
