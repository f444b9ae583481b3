package main

import (
	"strings"
	"testing"
	"time"

	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/store/cachedir"
)

func doctorExample() *doctor.Report {
	return &doctor.Report{Schema: 1, Version: "1", Facts: &doctor.Facts{When: time.Unix(1e9, 0).UTC(), Places: []doctor.Place{{Dir: "/nvme"}}, Reading: &doctor.Reading{Source: "/data/train", Kind: "xfs", Nature: cachedir.Local, Files: 1_281_167, Bytes: 138e9,
		Readers: []doctor.Reader{{Readers: 1, Files: 5000, Bytes: 540e6, Seconds: 10, Disk: 540e6}, {Readers: 32, Files: 30_000, Bytes: 3_240e6, Seconds: 10, Disk: 1_620e6, Failed: 1}}}},
		Checks: []doctor.Check{{Name: "io_uring", State: doctor.Good, Found: "works"}, {Name: "huge pages", State: doctor.Better, Found: "4 KiB", Do: "echo advise"}},
		Unseen: []string{"burst credits"},
		Advice: &doctor.Advice{Verdict: doctor.Worth, Why: "1.5 times what 32 readers get now", Now: 324e6, Expected: 500e6, Last: 900e6, Share: 0.5, Disk: 141e9, Memory: 1.6e9}}
}

func TestDoctorText(t *testing.T) {
	for _, c := range []struct {
		name string
		bend func(r *doctor.Report)
		want string
	}{
		{"all", func(*doctor.Report) {}, `
good   io_uring    works
could  huge pages  4 KiB
                   → echo advise
?      not seen    burst credits
looked at /nvme and its disk

/data/train: 1,281,167 files · 138 GB · xfs
                      files/s  rate
  now, 1 reader       500      54 MB/s   from the device
  now, 32 readers     3,000    324 MB/s  50 % from the device, the rest from memory · 1 file could not be read
  lcache, reordering  4,641    500 MB/s  expected from the device
  lcache, last epoch  8,355    900 MB/s  expected from the device
  needs   141 GB on the disk, 1.6 GB of memory; there is room for 50 % of it
worth it: 1.5 times what 32 readers get now
`},
		{"nothing to do", func(r *doctor.Report) { r.Checks, r.Unseen, r.Advice = r.Checks[:1], nil, nil }, `
good   io_uring  works
looked at /nvme and its disk
nothing to do
no verdict: give --source DIR, the folder of your samples
`},
		{"no source", func(r *doctor.Report) { r.Unseen, r.Advice = nil, nil }, `
good   io_uring    works
could  huge pages  4 KiB
                   → echo advise
looked at /nvme and its disk
no verdict: give --source DIR, the folder of your samples
`},
		{"no --cache", func(r *doctor.Report) {
			r.Facts.Places = []doctor.Place{{Dir: "/home/me"}}
			r.Checks, r.Unseen, r.Advice = r.Checks[:1], nil, nil
		}, `
good   io_uring  works
looked at /home/me and its disk, as this is the working directory: --cache DIR names another one
nothing to do
no verdict: give --source DIR, the folder of your samples
`},
		{"network", func(r *doctor.Report) {
			r.Checks, r.Unseen = r.Checks[:1], nil
			r.Facts.Reading.Nature, r.Facts.Reading.Readers = cachedir.Network, r.Facts.Reading.Readers[:1]
			r.Advice = &doctor.Advice{Verdict: doctor.Unclear, Why: "the device of the cache was not measured", Disk: 141e9, Memory: 1.6e9}
		}, `
good   io_uring  works
looked at /nvme and its disk

/data/train: 1,281,167 files · 138 GB · xfs
                 files/s  rate
  now, 1 reader  500      54 MB/s
  needs   141 GB on the disk, 1.6 GB of memory
unclear: the device of the cache was not measured
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := doctorExample()
			c.bend(r)
			var out strings.Builder
			writeDoctor(&out, r, c.name != "no --cache")
			if got := "\n" + out.String(); got != c.want {
				t.Errorf("got%s\nwant%s", got, c.want)
			}
		})
	}
}
