package main

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"

	"lcache/cmd/lcache/internal/overview"
	"lcache/internal/serve/status"
)

// crowded is a server with some live jobs, where only the last one reads, and 16 ended ones.
func crowded(jobs int) overview.View {
	v := sketch()
	reads, read := v.Now.Jobs[0], v.Before.Jobs[0]
	v.Now.Jobs, v.Before.Jobs = nil, nil
	for k := range jobs {
		job, was := read, read
		if k == jobs-1 {
			job = reads
		}
		job.ID = fmt.Sprintf("pid-%d-57520918/%d", 5545+k/2, k%2)
		was.ID, job.Owner, job.Pids = job.ID, k == 0, []int{5545 + k/2}
		v.Now.Jobs, v.Before.Jobs = append(v.Now.Jobs, job), append(v.Before.Jobs, was)
	}
	for k := range 16 {
		v.Now.Jobs = append(v.Now.Jobs, status.Job{Name: "train", ID: fmt.Sprintf("pid-4000-57520918/%d", k), Ended: true, SamplesDelivered: 1000})
	}
	return v
}

// TestStatusPageFits: a page of any number of jobs and servers fits the width of the screen, and also its height after cropping. The reading job is on top.
func TestStatusPageFits(t *testing.T) {
	troubled := crowded(27)
	troubled.Now.Cache.State = "degraded"
	long := sketch()
	long.Now.Jobs[0].Name = strings.Repeat("a name that is long ", 10)
	for name, views := range map[string][]overview.View{"1 job": {crowded(1)}, "8 jobs": {crowded(8)}, "27 jobs": {crowded(27)}, "trouble": {troubled}, "a long name": {long},
		"many servers": {crowded(1), sketch(), crowded(2), sketch(), sketch(), crowded(9), {}}} {
		for _, on := range []screen{{80, 23}, {200, 49}, {40, 10}, {20, 5}, {1, 1}} {
			lines := crop(statusPage(views, on), on)
			if len(lines) > on.height {
				t.Errorf("%s on %v: %d lines", name, on, len(lines))
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > on.width {
					t.Errorf("%s on %v: a line of %d columns: %s", name, on, n, line)
				}
			}
			if text := strings.Join(lines, "\n"); on.width >= 80 && name == "27 jobs" && !strings.Contains(strings.Join(lines[:3], ""), "pid 5558") {
				t.Errorf("on %v what reads is not on top:\n%s", on, text)
			} else if on.width >= 80 && name == "trouble" && !strings.Contains(text, "! the cache is degraded") {
				t.Errorf("on %v the warning is cropped:\n%s", on, text)
			}
		}
	}
}

// TestStatusPage reads testdata/status.txt: pages of a number of jobs on one server, or of as many servers with one job each. go test ./cmd/lcache -rewrite
// writes the changed pages.
func TestStatusPage(t *testing.T) {
	datadriven.RunTest(t, "testdata/status.txt", func(t *testing.T, d *datadriven.TestData) string {
		var on screen
		var jobs, servers int
		d.MaybeScanArgs(t, "jobs", &jobs)
		d.MaybeScanArgs(t, "servers", &servers)
		d.MaybeScanArgs(t, "width", &on.width)
		d.MaybeScanArgs(t, "height", &on.height)
		views := []overview.View{crowded(jobs)}
		if servers > 0 {
			views = nil
		}
		for k := range servers {
			v := sketch()
			v.Now.Jobs[0].Name = fmt.Sprintf("val-%d", k)
			if k%2 == 0 {
				v.Now.Jobs[0].LoopSeconds = nil // it reports no waits
			}
			views = append(views, v)
		}
		return strings.Join(crop(statusPage(views, on), on), "\n") + "\n"
	})
}
