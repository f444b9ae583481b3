package main

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/serve/status"
)

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		values []float64
		top    float64
		width  int
		want   string
	}{
		{nil, 1, 10, ""},
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7, 8}, 8, 20, "▁▁▂▃▄▅▆▇█"},
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7, 8}, 8, 3, "▆▇█"},
		{[]float64{0, 0}, 0, 3, "▁▁"},
		{[]float64{1, math.NaN(), 9, -1}, 1, 9, "█ █▁"},
	} {
		if got := sparkline(c.values, c.top, c.width); got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
}

// TestPastLines: the lines fit the terminal, and a wait of 1 % does not look like much.
func TestPastLines(t *testing.T) {
	var past []overview.Moment
	for i := range 512 {
		past = append(past, overview.Moment{Rate: float64(i%10) * 1e8, Waited: 0.01})
	}
	for _, width := range []int{0, 20, 40, 80, 200} {
		lines := pastLines(past, width)
		if len(lines) != 2 {
			t.Fatalf("%d: %q", width, lines)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); width > 0 && n > width || strings.Contains(line, "\x1b") {
				t.Errorf("%d columns: %d: %q", width, n, line)
			}
		}
		if strings.ContainsAny(lines[1], "▂▃▄▅▆▇█") {
			t.Errorf("a wait of 1 %%: %s", lines[1])
		}
	}
	if lines := pastLines(past[511:], 80); lines != nil {
		t.Errorf("after one look: %q", lines)
	}
	if got := pastLines(past[:4], 80)[0]; got != "  MB/s   ▁▃▆█  300, at most 300" {
		t.Errorf("%q", got)
	}
}

// TestRemember: the past has as many looks as fit a wide terminal, and a look without reads has no share of waiting.
func TestRemember(t *testing.T) {
	v := sketch()
	v.Now.Totals.BytesDelivered = 8e9
	for range 600 {
		v.Remember()
	}
	if n := len(v.Past); n != 512 || v.Past[0].Rate != 1e9 || math.IsNaN(v.Past[0].Waited) {
		t.Errorf("%d looks, %+v", n, v.Past[0])
	}
	idle := overview.View{Now: status.Document{}, Seconds: 2}
	if idle.Remember(); len(idle.Past) != 1 || !math.IsNaN(idle.Past[0].Waited) {
		t.Errorf("idle: %+v", idle.Past)
	}
}

func TestEventLines(t *testing.T) {
	var events []status.Event
	for _, kind := range []string{"started", "device", "job", "layout", "bottleneck", "source", "job"} {
		events = append(events, status.Event{Time: "2026-11-26T19:11:47Z", Kind: kind, Text: "a " + kind + " \x1b[31mevent"})
	}
	lines := strings.Join(eventLines(events, 0), "\n")
	if strings.Count(lines, "\n") != 2 || !strings.Contains(lines, "a source") || !strings.Contains(lines, "a layout") || strings.Contains(lines, "a device") || strings.Contains(lines, "a job") || strings.Contains(lines, "\x1b") {
		t.Errorf("%q", lines)
	}
}
