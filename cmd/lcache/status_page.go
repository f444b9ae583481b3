package main

import (
	"slices"
	"strings"
	"unicode/utf8"

	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/serve/status"
	"lcache/internal/units"
)

// screen is the room for a status; 0: no limit.
type screen struct{ width, height int }

// How much a page of the status says.
const (
	jobsOnly    = iota // a line for each job, of all servers in one table
	withFigures        // in addition the figures of each server
	withRanks          // in addition the ranks of each job
)

// statusPage returns the lines of a status: as much as fits the screen, what reads first. A line that begins with ! asks the user to do something.
func statusPage(views []overview.View, on screen) (lines []string) {
	views = slices.Clone(views)
	slices.SortStableFunc(views, func(a, b overview.View) int { return a.Order() - b.Order() })
	for detail := withRanks; detail >= jobsOnly; detail-- {
		if lines = pageOf(views, detail, on.width); on.height == 0 || len(lines) <= on.height {
			break
		}
	}
	return lines
}

func pageOf(views []overview.View, detail, width int) (lines []string) {
	if detail == jobsOnly && len(views) > 0 {
		return briefPage(views, width)
	}
	for k, v := range views {
		if k > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, serverLines(v, detail, width)...)
	}
	return lines
}

// crop cuts a page that is too high from below. It keeps lines that begin with !, up to half of the height.
func crop(lines []string, on screen) []string {
	height := on.height
	if height <= 0 || len(lines) <= height {
		return lines
	}
	var rest, warnings []string
	warns := false
	for _, line := range lines {
		if warns = strings.HasPrefix(line, "!") || warns && strings.HasPrefix(line, hang); warns {
			warnings = append(warnings, line)
		} else {
			rest = append(rest, line)
		}
	}
	warnings = warnings[:min(len(warnings), height/2)]
	shown := max(height-len(warnings)-1, 0)
	more := cut("… and "+units.Plural(int64(len(lines)-len(warnings)-shown), "line", "lines")+" more, for which the terminal is too small", on.width)
	return append(append(rest[:min(shown, len(rest)):shown], more), warnings...)
}

// briefPage has a line for each job of all servers, one for the jobs that are over, and the warnings.
func briefPage(views []overview.View, width int) (lines []string) {
	rows, empty := [][]string{jobColumns("job")}, 0
	var ended []status.Job
	for _, v := range views {
		live, over := v.Jobs()
		if ended = append(ended, over...); len(v.Now.Jobs) == 0 {
			empty++
		}
		for _, job := range live {
			name := v.Title(job)
			if len(live) > 1 {
				name += ", " + overview.JobName(job)
			}
			rows = append(rows, jobRow(v, name, job))
		}
	}
	if len(rows) > 1 {
		lines = columnLines("", rows, width)
	}
	if empty > 0 {
		lines = append(lines, units.Plural(int64(empty), "server has", "servers have")+" no job yet")
	}
	if len(ended) > 0 {
		lines = append(lines, factLine(width, "ended  ", endedJobs(ended)))
	}
	for _, v := range views {
		lines = append(lines, wrapped(v.Warnings(), width)...)
	}
	return lines
}

// columnsByUse are the columns of a table of jobs in the order in which a narrow terminal loses them: the last one is never left out.
var columnsByUse = []string{"pid", "layout", "source", "samples/s", "hits", "batch", "left", "MB/s", "waited", "epoch", "done", "bottleneck", "job"}

func jobColumns(first string) []string {
	return []string{first, "epoch", "batch", "done", "left", "MB/s", "samples/s", "waited", "bottleneck", "hits", "source", "layout", "pid"}
}

// jobRow is the line of one of several jobs.
func jobRow(v overview.View, name string, job status.Job) []string {
	was := v.Earlier(job)
	epoch, batch, done, left := overview.Progress(v, was, job)
	_, waited := overview.LoopWait(v, was, job)
	layout := job.Layout
	if job.OnDemand {
		layout = "on demand"
	} else if job.Owner && job.Layout == "log" {
		layout = "log, in its order"
	}
	rate := "–"
	if v.Seconds > 0 {
		rate = overview.Megabytes(float64(job.BytesDelivered-was.BytesDelivered) / v.Seconds)
	}
	return []string{name, epoch, dash(batch), done, dash(left), rate, units.PerSecond(job.SamplesDelivered-was.SamplesDelivered, v.Seconds),
		waited, dash(overview.Bottleneck(job)), units.Percent(float64(job.HitsEpoch), float64(job.HitsEpoch+job.MissesEpoch)), units.Bytes(job.SourceBytesEpoch), dash(layout), dash(overview.PidText(job))}
}

// columnLines writes a table of jobs. A narrow terminal loses the columns of least use, and then the ends of names.
func columnLines(indent string, rows [][]string, width int) []string {
	for _, name := range columnsByUse {
		if width <= 0 || tableWidth(rows) <= width-utf8.RuneCountInString(indent) {
			break
		}
		if k := slices.Index(rows[0], name); k > 0 {
			for i := range rows {
				rows[i] = slices.Delete(rows[i], k, k+1)
			}
		}
	}
	var b strings.Builder
	numbers(&b, indent, rows)
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for k := range lines {
		lines[k] = cut(lines[k], width)
	}
	return lines
}

// tableWidth returns how many columns of a terminal a table of numbers takes.
func tableWidth(rows [][]string) (width int) {
	for k := range rows[0] {
		widest := 0
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(row[k]))
		}
		width += widest + 2
	}
	return width - 2
}

// hang begins each further line of a warning.
const hang = "  "

// wrapped breaks lines between words.
func wrapped(lines []string, width int) (all []string) {
	for _, line := range lines {
		now := ""
		for k, word := range strings.Split(line, " ") {
			switch next := now + " " + word; {
			case k == 0:
				now = word
			case width > 0 && utf8.RuneCountInString(next) > width:
				all, now = append(all, cut(now, width)), hang+word
			default:
				now = next
			}
		}
		all = append(all, cut(now, width))
	}
	return all
}

// factLine joins facts, the most useful ones first, as many as fit.
func factLine(width int, begin string, facts ...string) string {
	line := begin + joined(facts...)
	for len(facts) > 1 && width > 0 && utf8.RuneCountInString(line) > width {
		facts = facts[:len(facts)-1]
		line = begin + joined(facts...)
	}
	return cut(line, width)
}

// cut ends a line that is too wide with an ellipsis.
func cut(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(width-1, 0)]) + "…"
}

func dash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}
