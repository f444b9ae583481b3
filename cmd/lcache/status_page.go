package main

import (
	"slices"
	"strings"
	"unicode/utf8"

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
func statusPage(views []view, on screen) (lines []string) {
	views = slices.Clone(views)
	slices.SortStableFunc(views, func(a, b view) int { return a.order() - b.order() })
	for detail := withRanks; detail >= jobsOnly; detail-- {
		if lines = pageOf(views, detail, on.width); on.height == 0 || len(lines) <= on.height {
			break
		}
	}
	return lines
}

func pageOf(views []view, detail, width int) (lines []string) {
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

// Jobs and servers are shown in this order.
const (
	reading = iota // samples are delivered
	waiting        // a rank is in an epoch
	resting        // between epochs, or no sample was requested yet
)

// jobOrder says where a job stands among others.
func jobOrder(was, job status.Job) int {
	if job.SamplesDelivered > was.SamplesDelivered {
		return reading
	}
	for _, r := range job.Ranks {
		if r.Pid != 0 && !r.Finished {
			return waiting
		}
	}
	return resting
}

// order is that of the server's first job.
func (v view) order() int {
	first := resting + 1
	live, _ := v.jobs()
	for _, job := range live {
		first = min(first, jobOrder(v.earlier(job), job))
	}
	return first
}

// jobs returns the live jobs of a server, the reading ones first, and the ended ones.
func (v view) jobs() (live, ended []status.Job) {
	live, ended = byLife(v.now.Jobs)
	slices.SortStableFunc(live, func(a, b status.Job) int { return jobOrder(v.earlier(a), a) - jobOrder(v.earlier(b), b) })
	return live, ended
}

// byLife returns the live and the ended jobs of a document.
func byLife(jobs []status.Job) (live, ended []status.Job) {
	for _, j := range jobs {
		if j.Ended {
			ended = append(ended, j)
		} else {
			live = append(live, j)
		}
	}
	return live, ended
}

// briefPage has a line for each job of all servers, one for the jobs that are over, and the warnings.
func briefPage(views []view, width int) (lines []string) {
	rows, empty := [][]string{jobColumns("job")}, 0
	var ended []status.Job
	for _, v := range views {
		live, over := v.jobs()
		if ended = append(ended, over...); len(v.now.Jobs) == 0 {
			empty++
		}
		for _, job := range live {
			name := v.title(job)
			if len(live) > 1 {
				name += ", " + jobName(job)
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
		lines = append(lines, wrapped(v.warnings(), width)...)
	}
	return lines
}

// columnsByUse are the columns of a table of jobs in the order in which a narrow terminal loses them: the last one is never left out.
var columnsByUse = []string{"pid", "layout", "source", "samples/s", "hits", "batch", "left", "MB/s", "waited", "epoch", "done", "bottleneck", "job"}

func jobColumns(first string) []string {
	return []string{first, "epoch", "batch", "done", "left", "MB/s", "samples/s", "waited", "bottleneck", "hits", "source", "layout", "pid"}
}

// jobRow is the line of one of several jobs.
func jobRow(v view, name string, job status.Job) []string {
	was := v.earlier(job)
	epoch, batch, done, left := progressOf(v, was, job)
	_, waited := loopWait(v, was, job)
	layout := job.Layout
	if job.OnDemand {
		layout = "on demand"
	} else if job.Owner && job.Layout == "log" {
		layout = "log, in its order"
	}
	rate := "–"
	if v.seconds > 0 {
		rate = megabytes(float64(job.BytesDelivered-was.BytesDelivered) / v.seconds)
	}
	return []string{name, epoch, dash(batch), done, dash(left), rate, units.PerSecond(job.SamplesDelivered-was.SamplesDelivered, v.seconds),
		waited, dash(bottleneck(job)), units.Percent(float64(job.HitsEpoch), float64(job.HitsEpoch+job.MissesEpoch)), units.Bytes(job.SourceBytesEpoch), dash(layout), dash(pidText(job))}
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
