package main

import (
	"strings"
	"testing"

	"lcache/cmd/lcache/internal/bench"
)

func TestBenchText(t *testing.T) {
	full := bench.Report{Dirs: []string{"/nvme/train"}, Samples: 1_281_167, Bytes: 138e9, Engine: "io_uring", Direct: true, Page: 2 << 20, Memory: 1.5e9, CPUs: 16, From: 3, To: 4,
		Epochs: []bench.Epoch{{Into: "nothing", Seconds: 276, Samples: 1_281_167, Bytes: 138e9, CPU: 16.6, Limit: 503e6, Bound: "disk"},
			{Reorder: true, Into: "Python", Seconds: 3, Samples: 1_281_167, Bytes: 138e9, CPU: 38.6, Misses: 1, Bound: "unknown"}},
		NoLimit: "no O_DIRECT there", NoPython: "no python3"}
	quiet := full
	quiet.NoLimit, quiet.NoPython, quiet.To, quiet.Epochs = "", "", 3, full.Epochs[:1]
	for _, c := range []struct {
		name string
		r    bench.Report
		want string
	}{
		{"all remarks", full, `
/nvme/train                                             1,281,167 samples · 138 GB
  io_uring · O_DIRECT · pages of 2 MiB · 1.5 GB of memory · 16 CPUs
  epoch                          time      rate  samples/s    device  of it  CPU-s/GB  bottleneck
  read only, into nothing  4 min 36 s  500 MB/s      4,642  503 MB/s  99.4 %      0.12      disk
  reordering, into Python       3.0 s   46 GB/s    427,056         –       –      0.28   unknown
  the device was not measured: no O_DIRECT there
  no epoch into Python: no python3
  1 sample was read from the source
  an epoch of a few seconds says little: filling new memory takes part of it
  the log advanced from epoch 3 to 4; run your lcache ingest again to start from the first epoch
`},
		{"no remark", quiet, `
/nvme/train                                             1,281,167 samples · 138 GB
  io_uring · O_DIRECT · pages of 2 MiB · 1.5 GB of memory · 16 CPUs
  epoch                          time      rate  samples/s    device   of it  CPU-s/GB  bottleneck
  read only, into nothing  4 min 36 s  500 MB/s      4,642  503 MB/s  99.4 %      0.12      disk
`},
	} {
		var out strings.Builder
		writeBench(&out, &c.r)
		if got := "\n" + out.String(); spaces.ReplaceAllString(got, " ") != spaces.ReplaceAllString(c.want, " ") {
			t.Errorf("%s: got%s\nwant%s", c.name, got, c.want)
		}
	}
}

// TestBenchNamesALimit: where a limit was measured, the one that the epoch came nearest to is named.
func TestBenchNamesALimit(t *testing.T) {
	for _, c := range []struct {
		e    bench.Epoch
		want string
	}{
		{bench.Epoch{Bound: "disk", Seconds: 1, Limit: 100, Bytes: 95}, "disk"},
		{bench.Epoch{Bound: "unknown", Seconds: 1, Limit: 100, Bytes: 62}, "disk, at 62 %"},
		{bench.Epoch{Bound: "unknown", Seconds: 1, Limit: 100, Bytes: 30, CPU: 1.4}, "CPU, at 70 %"},
		{bench.Epoch{Bound: "unknown", Seconds: 1, Limit: 100, Bytes: 30, Into: "Python", Client: 0.75, CPU: 0.2}, "Python, at 75 %"},
		{bench.Epoch{Bound: "unknown", Seconds: 1, Bytes: 62}, "unknown"},
	} {
		if got := boundOf(c.e, 2); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.e, got, c.want)
		}
	}
}
