package main

import (
	"bytes"
	"strings"
	"testing"

	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
)

func TestIngestText(t *testing.T) {
	whole := ingest.Report{
		Source: "imagenet/train", Dirs: []string{"/nvme/lcache/train-8c1f02aa"},
		Samples: 1281167, Classes: 1000, Bytes: 138e9, Fingerprint: "8c1f02aa77bb00112233445566778899",
		ReadBytes: 138e9, ReadSeconds: 552, StoredSamples: 1281167, StoredBytes: 138e9, FreeAfter: 402e9, HitRatio: 1,
		Layout: "log", LayoutReason: "disk gives 307 MB/s random at 100 KB, 503 MB/s in order",
		MemoryBytes: 1.5e9, Segments: 364, SegmentBytes: 380e6, BlockBytes: 1 << 20,
	}
	resumed := whole
	resumed.ReadBytes, resumed.Already = 2e9, 1262600
	complete := whole
	complete.ReadBytes, complete.ReadSeconds, complete.Already = 0, 0, 1281167
	resorted := whole
	resorted.ReadBytes, resorted.Resorted = 0, true
	changed := whole
	changed.Changed, changed.Anew = true, true
	adapted := whole
	adapted.Changed, adapted.AddedSamples, adapted.ChangedSamples, adapted.ReadBytes, adapted.ReadSeconds = true, 1234, 1, 125e6, 0.5
	shrunk := adapted
	shrunk.ReadBytes, shrunk.Resorted, shrunk.AddedSamples, shrunk.ChangedSamples, shrunk.RemovedSamples = 0, true, 0, 0, 2
	relabelled := whole
	relabelled.Changed, relabelled.ReadBytes = true, 0
	lazy := whole
	lazy.ReadBytes, lazy.StoredBytes, lazy.LayoutReason = 0, 0, ""
	tried, packed := whole, whole
	little, much := 0.004, 0.29
	tried.Compress, tried.Saves = "none", &little
	packed.Compress, packed.Saves, packed.StoredBytes = "lz4", &much, 98e9
	half := whole
	half.StoredBytes, half.HitRatio, half.Dirs = 64e9, 0.464, []string{"/a b", "/c"}

	for _, c := range []struct {
		name   string
		report ingest.Report
		want   string
	}{
		{"whole", whole, `imagenet/train → /nvme/lcache/train-8c1f02aa            ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      138 GB in 9 min 12 s · 250 MB/s · once, in source order
  stored    138 GB · lz4 off · free after: 402 GB
  layout    log: disk gives 307 MB/s random at 100 KB, 503 MB/s in order
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache /nvme/lcache/train-8c1f02aa -- python train.py
`},
		{"resumed", resumed, `imagenet/train → /nvme/lcache/train-8c1f02aa            ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      2 GB in 9 min 12 s · 3.6 MB/s · once, in source order · 1,262,600 samples were there already
  stored    138 GB · lz4 off · free after: 402 GB
  layout    log: disk gives 307 MB/s random at 100 KB, 503 MB/s in order
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache /nvme/lcache/train-8c1f02aa -- python train.py
`},
		{"complete", complete, `imagenet/train → /nvme/lcache/train-8c1f02aa            ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      nothing: 1,281,167 samples were there already
  stored    138 GB · lz4 off · free after: 402 GB
  layout    log: disk gives 307 MB/s random at 100 KB, 503 MB/s in order
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache /nvme/lcache/train-8c1f02aa -- python train.py
`},
		{"resorted", resorted, `imagenet/train → /nvme/lcache/train-8c1f02aa            ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      nothing: the log is sorted again
  stored    138 GB · lz4 off · free after: 402 GB
  layout    log: disk gives 307 MB/s random at 100 KB, 503 MB/s in order
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache /nvme/lcache/train-8c1f02aa -- python train.py
`},
		{"changed", changed, `imagenet/train → /nvme/lcache/train-8c1f02aa            ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      138 GB in 9 min 12 s · 250 MB/s · once, in source order · the source has changed since the last ingest: the cache is made again
  stored    138 GB · lz4 off · free after: 402 GB
  layout    log: disk gives 307 MB/s random at 100 KB, 503 MB/s in order
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache /nvme/lcache/train-8c1f02aa -- python train.py
`},
		{"adapted", adapted, `imagenet/train → /nvme/lcache/train-8c1f02aa            ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      125 MB in 0.5 s · 250 MB/s · once, in source order · 1,234 added, 0 removed, 1 changed
  stored    138 GB · lz4 off · free after: 402 GB
  layout    log: disk gives 307 MB/s random at 100 KB, 503 MB/s in order
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache /nvme/lcache/train-8c1f02aa -- python train.py
`},
		{"shrunk", shrunk, `imagenet/train → /nvme/lcache/train-8c1f02aa            ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      nothing: the log is sorted again · 0 added, 2 removed, 0 changed
  stored    138 GB · lz4 off · free after: 402 GB
  layout    log: disk gives 307 MB/s random at 100 KB, 503 MB/s in order
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache /nvme/lcache/train-8c1f02aa -- python train.py
`},
		{"relabelled", relabelled, `imagenet/train → /nvme/lcache/train-8c1f02aa            ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      nothing · the same samples with other labels
  stored    138 GB · lz4 off · free after: 402 GB
  layout    log: disk gives 307 MB/s random at 100 KB, 503 MB/s in order
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache /nvme/lcache/train-8c1f02aa -- python train.py
`},
		{"lazy", lazy, `imagenet/train → /nvme/lcache/train-8c1f02aa            ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      nothing yet: the first epoch reads the source, and fills the log
  stored    0 B · lz4 off · free after: 402 GB
  layout    log
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache /nvme/lcache/train-8c1f02aa -- python train.py
`},
		{"tried", tried, `imagenet/train → /nvme/lcache/train-8c1f02aa            ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      138 GB in 9 min 12 s · 250 MB/s · once, in source order
  stored    138 GB · lz4 off (saves 0.4 %) · free after: 402 GB
  layout    log: disk gives 307 MB/s random at 100 KB, 503 MB/s in order
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache /nvme/lcache/train-8c1f02aa -- python train.py
`},
		{"packed", packed, `imagenet/train → /nvme/lcache/train-8c1f02aa            ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      138 GB in 9 min 12 s · 250 MB/s · once, in source order
  stored    98 GB · lz4 on (saves 29 %) · free after: 402 GB
  layout    log: disk gives 307 MB/s random at 100 KB, 503 MB/s in order
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache /nvme/lcache/train-8c1f02aa -- python train.py
`},
		{"half", half, `imagenet/train → /a b,/c                                ready
  1,281,167 samples · 1,000 classes · 138 GB · fingerprint 8c1f02aa
  read      138 GB in 9 min 12 s · 250 MB/s · once, in source order
  stored    64 GB of 138 GB · 46 % of each epoch from the log · lz4 off · free after: 402 GB
  layout    log: disk gives 307 MB/s random at 100 KB, 503 MB/s in order
  memory    1.5 GB · 364 segments of 380 MB · blocks of 1 MiB
next: lcache run --cache '/a b,/c' -- python train.py
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			writeIngest(&b, &c.report)
			same(t, b.String(), c.want)
		})
	}
}

func TestVerifyText(t *testing.T) {
	good := cache.VerifyReport{Samples: 11384, InLog: 11380, Good: 11380, Missing: 4, Bytes: 127e6, Seconds: 0.4}
	bad := good
	bad.Good, bad.Corrupt, bad.Different = 11376, 2, 2
	bad.Bad = []string{"a/b.jpg", "a/\nc.jpg", "d"}
	repaired := good
	repaired.Good, repaired.Corrupt, repaired.Forgotten, repaired.Bad = 11378, 2, 2, []string{"a/b.jpg", "a/c.jpg"}
	unreadable := good
	unreadable.Good, unreadable.Unreadable, unreadable.Uncompared = 11350, 30, 1
	unreadable.Errors = []string{"a/b.jpg: read 9 bytes at 0 of segment 0: input/output error"}
	both := good
	both.Good, both.Corrupt, both.Unreadable, both.Bad, both.Errors = 11349, 1, 30, []string{"d"}, []string{"a/b.jpg: input/output error"}
	for _, c := range []struct {
		name    string
		report  cache.VerifyReport
		against string
		want    string
		exit    int
	}{
		{"good", good, "", `verify /nvme/train                                      good
  11,384 samples · 11,380 in the log · 127 MB in 0.4 s · 318 MB/s
  checksum 11,380 good · 0 corrupt · 0 unknown · 4 not in the log, served from the source
`, exitDone},
		{"bad", bad, "/data/train", `verify /nvme/train                                      CORRUPT
  11,384 samples · 11,380 in the log · 127 MB in 0.4 s · 318 MB/s
  checksum 11,376 good · 2 corrupt · 0 unknown · 4 not in the log, served from the source
  against  /data/train: 2 different
! a/b.jpg
! a/\nc.jpg
! d
! and 1 more
`, exitCorrupt},
		{"repaired", repaired, "", `verify /nvme/train                                      CORRUPT
  11,384 samples · 11,380 in the log · 127 MB in 0.4 s · 318 MB/s
  checksum 11,378 good · 2 corrupt · 0 unknown · 4 not in the log, served from the source
  repair   2 dropped: the next ingest or epoch reads them from the source
! a/b.jpg
! a/c.jpg
`, exitCorrupt},
		{"unreadable", unreadable, "/data/train", `verify /nvme/train                                      UNREADABLE
  11,384 samples · 11,380 in the log · 127 MB in 0.4 s · 318 MB/s
  checksum 11,350 good · 0 corrupt · 30 unreadable · 0 unknown · 4 not in the log, served from the source
  against  /data/train: 0 different · 1 unreadable
! a/b.jpg: read 9 bytes at 0 of segment 0: input/output error
! and 30 more
`, exitError},
		{"both", both, "", `verify /nvme/train                                      CORRUPT
  11,384 samples · 11,380 in the log · 127 MB in 0.4 s · 318 MB/s
  checksum 11,349 good · 1 corrupt · 30 unreadable · 0 unknown · 4 not in the log, served from the source
! d
! a/b.jpg: input/output error
! and 29 more
`, exitCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			cache := []string{"/nvme/train"}
			writeVerify(&b, cache, c.against, &c.report)
			same(t, b.String(), c.want)
			exit := exitDone
			if err := foundDamage(cache, c.against, &c.report); err != nil {
				exit = exitCode(err)
			}
			if exit != c.exit {
				t.Errorf("exit code %d, want %d", exit, c.exit)
			}
		})
	}
}

// TestIngestTextWithoutClasses: labels without names have no classes. The text leaves the number out, because "0 classes" would mean that there are no labels.
func TestIngestTextWithoutClasses(t *testing.T) {
	var out strings.Builder
	writeIngest(&out, &ingest.Report{Source: "tar:/data/*.tar", Dirs: []string{"/nvme"}, Samples: 3000, Bytes: 27e6, Fingerprint: "8c1f02aa"})
	if got := out.String(); strings.Contains(got, "class") || !strings.Contains(got, "3,000 samples · 27 MB") {
		t.Errorf("got %s", got)
	}
}
