package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"lcache/internal/jsonbytes"
	"lcache/internal/store/cache"
	"lcache/internal/units"
)

// progress shows the progress of a long command: as a bar on a terminal, else as a line every few seconds. update may be called from any
// goroutine. done ends the display, and must be called before other text is written to the same stream.
type progress struct {
	mode  string // bar, plain, json, none
	out   io.Writer
	now   func() time.Time
	every time.Duration // between lines

	// mu guards the fields that follow.
	mu    sync.Mutex
	stage string
	last  time.Time
	start time.Time
	bar   *progressbar.ProgressBar
}

// newProgress resolves the flag --progress: auto is a bar if out is a terminal, else plain.
func newProgress(g *globals, out io.Writer) *progress {
	mode := g.progress
	if mode == "auto" {
		mode = "plain"
		if isTerminal(out) && os.Getenv("TERM") != "dumb" && columns(out) >= besideBar+narrowest {
			mode = "bar"
		}
	}
	if g.quiet {
		mode = "none"
	}
	return &progress{mode: mode, out: out, now: time.Now, every: 3 * time.Second}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Columns of the bar and of the other parts of its line. A line that is wider than the terminal can't be cleared.
const (
	besideBar = 60
	widest    = 28
	narrowest = 4
)

// barWidth returns the width of the bar on a terminal of some columns.
func barWidth(columns int) int { return min(max(columns-besideBar, narrowest), widest) }

// columns returns the width of the terminal out; 80 if it is not known.
func columns(out io.Writer) int {
	if f, ok := out.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}

func (p *progress) update(u cache.Progress) {
	if p.mode == "none" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if u.Stage != p.stage {
		p.endBar()
		p.stage, p.start = u.Stage, now
		if u.Unit != "" || p.last.IsZero() {
			p.last = now // a stage that is over within one interval needs no line
		}
	}
	if p.mode == "bar" {
		p.draw(u)
		return
	}
	if now.Sub(p.last) < p.every {
		return
	}
	p.last = now
	if p.mode == "json" {
		said := map[string]any{"schema": 1, "stage": u.Stage, "done": u.Done, "total": u.Total, "unit": u.Unit}
		if u.AllSamples > 0 {
			said["samples"], said["all_samples"] = u.Samples, u.AllSamples
		}
		line, _ := jsonbytes.Marshal(said)
		fmt.Fprintf(p.out, "%s\n", line)
		return
	}
	fmt.Fprintln(p.out, progressText(u, now.Sub(p.start).Seconds()))
}

// progressText makes a plain line: "reading  64 GB of 138 GB · 594,000 of 1,281,167 samples · 46 % · 250 MB/s · 4 min 56 s left".
func progressText(u cache.Progress, seconds float64) string {
	if u.Unit == "" {
		return u.Stage
	}
	amount, pace := units.Count(u.Done)+" "+u.Unit, ""
	if u.Unit == "bytes" {
		amount = units.Bytes(u.Done)
		pace = units.Rate(u.Done, seconds)
	}
	if u.Total <= 0 {
		return joined(u.Stage+"  "+amount, pace)
	}
	whole := units.Count(u.Total) + " " + u.Unit
	if u.Unit == "bytes" {
		whole = units.Bytes(u.Total)
	} else {
		amount = units.Count(u.Done)
	}
	left := ""
	if u.Done > 0 && seconds > 0 && u.Done < u.Total {
		left = units.Duration(float64(u.Total-u.Done)/float64(u.Done)*seconds) + " left"
	}
	samples := ""
	if u.AllSamples > 0 {
		samples = units.Count(u.Samples) + " of " + units.Count(u.AllSamples) + " samples"
	}
	return joined(fmt.Sprintf("%s  %s of %s", u.Stage, amount, whole), samples, units.Percent(float64(u.Done), float64(u.Total)), pace, left)
}

// draw draws a bar, or a spinner and the progress so far if the total is not known.
func (p *progress) draw(u cache.Progress) {
	if p.bar == nil {
		count, total := progressbar.OptionShowCount(), u.Total
		if total <= 0 {
			count, total = func(*progressbar.ProgressBar) {}, -1
		}
		what := describe(u)
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(u.Unit == "bytes"), count, progressbar.OptionSetWidth(barWidth(columns(p.out)+len("reading  ")-len(what))),
			progressbar.OptionSetSpinnerChangeInterval(0), // else a goroutine goes on drawing a bar that is over
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true),
			progressbar.OptionSetTheme(progressbar.Theme{Saucer: "━", SaucerHead: "━", SaucerPadding: " ", BarStart: "", BarEnd: ""}))
	}
	if u.Total <= 0 {
		p.bar.Describe(progressText(u, 0))
	}
	if u.Total > 0 && p.bar.GetMax64() != u.Total {
		p.bar.ChangeMax64(u.Total)
	}
	p.bar.Set64(u.Done)
	if u.AllSamples > 0 {
		p.bar.Describe(describe(u))
	}
}

// describe is the text before a bar. It keeps its width while the samples grow.
func describe(u cache.Progress) string {
	if u.AllSamples == 0 {
		return fmt.Sprintf("%-9s", u.Stage)
	}
	return fmt.Sprintf("%s %*s samples", u.Stage, len(units.Count(u.AllSamples)), units.Count(u.Samples))
}

func (p *progress) endBar() {
	if p.bar != nil {
		p.bar.Clear()
		p.bar = nil
	}
}

func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endBar()
}

// Write writes a log message. While a bar is drawn the message replaces the bar until the next update.
func (p *progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.bar.Clear()
	}
	return p.out.Write(line)
}
