// Package units writes numbers with their units, as people read them: bytes, rates, shares, times and counts.
//
// Data is in SI units (138 GB, 250 MB/s), as for disks. Blocks and other powers of two are in binary units (256 KiB).
// A number that was not measured is shown as a dash. Functions keep no state and may be called concurrently.
package units

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Bytes formats an amount of data in SI units: "138 GB". Zero and negative amounts are "0 B".
func Bytes(n int64) string {
	if n <= 0 {
		return "0 B"
	}
	return strings.Replace(humanize.Bytes(uint64(n)), ".0 ", " ", 1)
}

// Binary formats an amount of data in binary units: "256 KiB".
func Binary(n int64) string {
	if n <= 0 {
		return "0 B"
	}
	return strings.Replace(humanize.IBytes(uint64(n)), ".0 ", " ", 1)
}

// Count formats a whole number with commas.
func Count(n int64) string { return humanize.Comma(n) }

// Plural formats a count with its noun: "1 class", "1,000 classes".
func Plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}

// Rate formats bytes per second: "250 MB/s", or "–" if the time is 0.
func Rate(bytes int64, seconds float64) string {
	if seconds <= 0 {
		return "–"
	}
	return Bytes(int64(float64(bytes)/seconds)) + "/s"
}

// PerSecond formats a number of things per second, with commas.
func PerSecond(n int64, seconds float64) string {
	if seconds <= 0 {
		return "–"
	}
	return Count(int64(math.Round(float64(n) / seconds)))
}

// Percent formats part of whole: "42 %", "0.2 %". It is 100 % only if part is all of it.
func Percent(part, whole float64) string {
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

// Duration formats a time: "40 ms", "0.4 s", "12 s", "9 min 12 s", "3 h 5 min".
func Duration(seconds float64) string {
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

// OfTotal formats two amounts in one unit: "1.41 / 1.50 GB".
func OfTotal(part, whole int64) string {
	unit, per := unitOf(whole)
	digits := 2
	if float64(whole)/per >= 100 || per == 1 {
		digits = 0
	}
	return fmt.Sprintf("%.*f / %.*f %s", digits, float64(part)/per, digits, float64(whole)/per, unit)
}

// BothRates formats a read rate and a write rate in one unit: "read 480 + write 478 MB/s".
func BothRates(read, written int64, seconds float64) string {
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

// unitOf returns the SI unit that shows n as a number from 1 to 999, and the bytes in that unit.
func unitOf(n int64) (unit string, per float64) {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	per = 1
	for float64(n) >= 1000*per && len(units) > 1 {
		units, per = units[1:], per*1000
	}
	return units[0], per
}
