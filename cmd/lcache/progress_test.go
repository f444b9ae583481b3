package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"lcache/internal/store/cache"
)

func TestProgressText(t *testing.T) {
	for _, c := range []struct {
		u       cache.Progress
		seconds float64
		want    string
	}{
		{cache.Progress{Stage: "reading", Done: 64e9, Total: 138e9, Unit: "bytes", Samples: 594_000, AllSamples: 1_281_167}, 256, "reading  64 GB of 138 GB · 594,000 of 1,281,167 samples · 46 % · 250 MB/s · 4 min 56 s left"},
		{cache.Progress{Stage: "reading", Done: 64e9, Total: 138e9, Unit: "bytes"}, 256, "reading  64 GB of 138 GB · 46 % · 250 MB/s · 4 min 56 s left"},
		{cache.Progress{Stage: "listing", Done: 12000, Unit: "samples"}, 1, "listing  12,000 samples"},
		{cache.Progress{Stage: "sorting", Done: 10, Total: 10, Unit: "samples"}, 1, "sorting  10 of 10 samples · 100 %"},
	} {
		if got := progressText(c.u, c.seconds); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestProgressPaces(t *testing.T) {
	clock := time.Unix(0, 0)
	for mode, want := range map[string]string{
		"none":  "",
		"plain": "reading  4 of 9 samples · 44 % · 5.0 s left\nreading  7 of 9 samples · 78 % · 2.0 s left\n",
		"json":  `{"done":4,"schema":1,"stage":"reading","total":9,"unit":"samples"}` + "\n" + `{"done":7,"schema":1,"stage":"reading","total":9,"unit":"samples"}` + "\n",
	} {
		var out bytes.Buffer
		p := &progress{mode: mode, out: &out, now: func() time.Time { return clock }, every: 3 * time.Second}
		p.update(cache.Progress{Stage: "listing", Done: 9, Unit: "samples"})
		for i := range int64(9) {
			p.update(cache.Progress{Stage: "reading", Done: i + 1, Total: 9, Unit: "samples"})
			clock = clock.Add(time.Second)
		}
		p.done()
		if mode == "plain" {
			// 4 samples took 3 s, 7 took 6 s.
			want = "reading  4 of 9 samples · 44 % · 3.8 s left\nreading  7 of 9 samples · 78 % · 1.7 s left\n"
		}
		same(t, out.String(), want)
	}
}

func TestProgressSamples(t *testing.T) {
	var out bytes.Buffer
	p := &progress{mode: "json", out: &out, now: time.Now}
	p.update(cache.Progress{Stage: "reading", Total: 9, Unit: "bytes", Samples: 0, AllSamples: 3})
	p.update(cache.Progress{Stage: "reading", Done: 4, Total: 9, Unit: "bytes", Samples: 1, AllSamples: 3})
	same(t, out.String(), `{"all_samples":3,"done":0,"samples":0,"schema":1,"stage":"reading","total":9,"unit":"bytes"}`+"\n"+
		`{"all_samples":3,"done":4,"samples":1,"schema":1,"stage":"reading","total":9,"unit":"bytes"}`+"\n")
}

func TestProgressBar(t *testing.T) {
	others := goleak.IgnoreCurrent()
	var out bytes.Buffer
	p := &progress{mode: "bar", out: &out, now: time.Now}
	p.update(cache.Progress{Stage: "listing", Done: 5, Unit: "samples"})
	p.update(cache.Progress{Stage: "reading", Done: 50, Total: 100, Unit: "bytes", Samples: 3, AllSamples: 4})
	if _, err := p.Write([]byte("level=WARN\n")); err != nil {
		t.Fatal(err)
	}
	p.update(cache.Progress{Stage: "reading", Done: 100, Total: 120, Unit: "bytes"}) // the total may grow
	p.done()
	p.done()
	goleak.VerifyNone(t, others) // nothing draws any longer
	for _, want := range []string{"listing", "reading", "50 %", "reading 3 samples", "level=WARN\n"} {
		if !strings.Contains(strings.ReplaceAll(out.String(), "%", " %"), want) {
			t.Errorf("%q is not in %q", want, out.String())
		}
	}
}

// TestProgressWithoutTotal: progress without a total shows no share, on a terminal or elsewhere.
func TestProgressWithoutTotal(t *testing.T) {
	clock := time.Unix(100, 0)
	for mode, want := range map[string][]string{"bar": {"reading kernel and memory settings", "measuring the device of /nvme: reading", "listing  5 samples"}, "plain": {"measuring the device of /nvme: reading\n", "listing  1,234 samples\n"}} {
		var out bytes.Buffer
		p := &progress{mode: mode, out: &out, now: func() time.Time { return clock }, every: 3 * time.Second}
		for _, u := range []cache.Progress{{Stage: "reading kernel and memory settings"}, {Stage: "measuring the device of /nvme"}, {Stage: "measuring the device of /nvme: reading"},
			{Stage: "listing", Done: 5, Unit: "samples"}, {Stage: "listing", Done: 1234, Unit: "samples"}} {
			p.update(u)
			clock = clock.Add(2 * time.Second)
			if u.Done > 0 {
				clock = clock.Add(2 * time.Second)
			}
		}
		p.done()
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: %q is not in %q", mode, text, out.String())
			}
		}
		if strings.Contains(out.String(), "/-") || strings.Contains(out.String(), "steps") || mode == "plain" && strings.Count(out.String(), "\n") != len(want) {
			t.Errorf("%s: %q", mode, out.String())
		}
	}
}

func TestProgressMode(t *testing.T) {
	var out bytes.Buffer
	for _, c := range []struct {
		g    globals
		want string
	}{
		{globals{progress: "auto"}, "plain"}, // a buffer is not a terminal
		{globals{progress: "json"}, "json"},
		{globals{progress: "plain", quiet: true}, "none"},
	} {
		if got := newProgress(&c.g, &out).mode; got != c.want {
			t.Errorf("%+v: got %s, want %s", c.g, got, c.want)
		}
	}
}

// TestBarWidth: a bar's line fits the terminal.
func TestBarWidth(t *testing.T) {
	for columns, want := range map[int]int{64: 4, 70: 10, 80: 20, 88: 28, 300: 28} {
		if got := barWidth(columns); got != want {
			t.Errorf("%d columns: got %d, want %d", columns, got, want)
		}
	}
	if got := columns(&bytes.Buffer{}); got != 80 {
		t.Errorf("no terminal: got %d", got)
	}
	// The widest line there can be, for bytes: at most as wide as its terminal.
	var out bytes.Buffer
	p := &progress{mode: "bar", out: &out, now: time.Now}
	p.update(cache.Progress{Stage: "verifying", Done: 1, Total: 999_999_999_999, Unit: "bytes"})
	p.update(cache.Progress{Stage: "verifying", Done: 888_888_888_888, Total: 999_999_999_999, Unit: "bytes"})
	for _, frame := range strings.Split(out.String(), "\r") {
		if n := utf8.RuneCountInString(frame); n > 80 {
			t.Errorf("%d columns of 80: %q", n, frame)
		}
	}
	if strings.Contains(out.String(), "\x1b[3") {
		t.Errorf("unrequested colours: %q", out.String())
	}
}
