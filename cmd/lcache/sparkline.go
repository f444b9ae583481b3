package main

import (
	"math"
	"strings"
	"unicode/utf8"

	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/units"
)

var blocks = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the last values, one column each: from 0, the lowest block, to top. A value that is not known is a blank.
func sparkline(values []float64, top float64, width int) string {
	var b strings.Builder
	for _, v := range values[max(len(values)-width, 0):] {
		if math.IsNaN(v) {
			b.WriteByte(' ')
			continue
		}
		level := 0
		if top > 0 {
			level = int(math.Ceil(v/top*float64(len(blocks)))) - 1
		}
		b.WriteRune(blocks[min(max(level, 0), len(blocks)-1)])
	}
	return b.String()
}

// leastTopWait is the share of waiting that a full block stands for, at least: less of it must not look like much.
const leastTopWait = 0.1

// pastLines draw the rates at the last looks of --watch, as many as fit.
func pastLines(past []overview.Moment, width int) []string {
	if len(past) < 2 {
		return nil
	}
	if width <= 0 {
		width = 80
	}
	var rates, waits []float64
	for _, m := range past {
		rates, waits = append(rates, m.Rate), append(waits, m.Waited)
	}
	line := func(name string, values []float64, least float64, text func(float64) string) string {
		now := values[len(values)-1]
		if width < 40 { // no room for a line worth drawing
			return cut("  "+name+text(now), width)
		}
		room := width - utf8.RuneCountInString("  "+name+"  , at most 0.00 GB/s 0.00 GB/s")
		values = values[max(len(values)-room, 0):]
		most := 0.0
		for _, v := range values {
			if v > most { // not if v is NaN
				most = v
			}
		}
		return "  " + name + sparkline(values, math.Max(most, least), room) + "  " + text(now) + ", at most " + text(most)
	}
	return []string{
		line("MB/s   ", rates, 0, overview.Megabytes),
		line("waited ", waits, leastTopWait, func(v float64) string {
			if math.IsNaN(v) {
				return "–"
			}
			return units.Percent(v, 1)
		}),
	}
}
