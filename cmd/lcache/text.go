package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// How numbers look, everywhere: SI units for data, binary ones for what is sized in powers of two (blocks, segments' reads).

func bytesText(n int64) string {
	if n <= 0 {
		return "0 B"
	}
	return strings.Replace(humanize.Bytes(uint64(n)), ".0 ", " ", 1)
}

func binaryText(n int64) string {
	if n <= 0 {
		return "0 B"
	}
	return strings.Replace(humanize.IBytes(uint64(n)), ".0 ", " ", 1)
}

func count(n int64) string { return humanize.Comma(n) }

// plural is "1 class", "1,000 classes".
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}

// rate is bytes a second as "250 MB/s"; nothing measured is "–".
func rate(bytes int64, seconds float64) string {
	if seconds <= 0 {
		return "–"
	}
	return bytesText(int64(float64(bytes)/seconds)) + "/s"
}

// perSecond is how many things a second, with commas.
func perSecond(n int64, seconds float64) string {
	if seconds <= 0 {
		return "–"
	}
	return count(int64(math.Round(float64(n) / seconds)))
}

// percent is a part of a whole: "42 %", "0.2 %", and 100 % only when it is all of it.
func percent(part, whole float64) string {
	if whole <= 0 {
		return "–"
	}
	p := 100 * part / whole
	switch {
	case p == 0 || p == 100:
		return fmt.Sprintf("%.0f %%", p)
	case p < 10:
		return fmt.Sprintf("%.1f %%", p)
	case p > 99 && p < 100:
		return fmt.Sprintf("%.1f %%", math.Min(p, 99.9))
	}
	return fmt.Sprintf("%.0f %%", p)
}

// duration is "40 ms", "0.4 s", "12 s", "9 min 12 s", "3 h 5 min".
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Millisecond:
		return "< 1 ms"
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.0f ms", 1000*seconds)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", seconds)
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", seconds)
	}
	d = d.Round(time.Second)
	if d < time.Hour {
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// ofTotal gives two amounts in one unit: "1.41 / 1.50 GB".
func ofTotal(part, whole int64) string {
	unit, per := unitOf(whole)
	digits := 2
	if float64(whole)/per >= 100 || per == 1 {
		digits = 0
	}
	return fmt.Sprintf("%.*f / %.*f %s", digits, float64(part)/per, digits, float64(whole)/per, unit)
}

// bothRates gives what was read and written in one unit: "read 480 + write 478 MB/s".
func bothRates(read, written int64, seconds float64) string {
	if seconds <= 0 {
		return "read – + write –"
	}
	r, w := float64(read)/seconds, float64(written)/seconds
	unit, per := unitOf(int64(math.Max(r, w)))
	digits := 0
	if top := math.Max(r, w) / per; top < 10 && per > 1 {
		digits = 1
	}
	return fmt.Sprintf("read %.*f + write %.*f %s/s", digits, r/per, digits, w/per, unit)
}

// unitOf is the SI unit that shows n as 1 to 999, and what it stands for.
func unitOf(n int64) (unit string, per float64) {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	per = 1
	for float64(n) >= 1000*per && len(units) > 1 {
		units, per = units[1:], per*1000
	}
	return units[0], per
}

// headline is a first line: what, and at a fixed column how it stands.
func headline(what, state string) string {
	const column = 56
	pad := max(column-utf8.RuneCountInString(what), 2)
	return what + strings.Repeat(" ", pad) + state
}

// joined puts facts side by side; empty ones are left out.
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

// figures writes a table of numbers: the first column to the left, all others to the right, under their heads.
func figures(w io.Writer, indent string, rows [][]string) {
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

// writeJSON writes a report as one indented document, with "schema": 1 in front of what the report has.
func writeJSON(w io.Writer, report any) error {
	body, err := json.Marshal(report)
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
