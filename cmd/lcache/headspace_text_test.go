package main

import (
	"bytes"
	"testing"

	"lcache/cmd/lcache/internal/launch"
)

func TestHeadspaceText(t *testing.T) {
	of := func(job string, best, real float64, first bool) launch.Headspace {
		return launch.Headspace{Job: job, Best: best, Real: real, First: first}
	}
	for _, c := range []struct {
		loaders []launch.Headspace
		want    string
	}{
		{nil, "headspace  not measured: COMMAND used no DataLoader of lcache.torch, and none through lcache.torch.watch\n"},
		{[]launch.Headspace{of("run-7", 412.3, 408, false)}, "headspace  your loop takes 412 batches/s at best; lcache gives 408: change nothing\n"},
		{[]launch.Headspace{of("run-7", 412.3, 41.23, false)}, "headspace  your loop takes 412 batches/s at best; lcache gives 41.2: a faster data path could make it 10.0 times as fast\n"},
		{[]launch.Headspace{of("run-7", 412.3, 95, true)}, "headspace  your loop takes 412 batches/s at best; lcache gives 95 in the first epoch, which may wait for the source: train a second one to know more\n"},
		{[]launch.Headspace{of("run-7", 9.5, 9.4, false), of("run-7#1", 0, 30, false)}, "headspace  job run-7: your loop takes 9.5 batches/s at best; lcache gives 9.4: change nothing\n" +
			"headspace  job run-7#1: lcache gives 30 batches/s; the best is not known, because no epoch came beyond its half\n"},
		{[]launch.Headspace{{}}, "headspace  not measured: an epoch of this loader has too few batches\n"},
		{[]launch.Headspace{of("", 20, 0, true)}, "headspace  your loop takes 20 batches/s at best; epochs are too short for lcache's rate\n"},
	} {
		var out bytes.Buffer
		writeHeadspace(&out, c.loaders)
		if out.String() != c.want {
			t.Errorf("got  %swant %s", out.String(), c.want)
		}
	}
}
