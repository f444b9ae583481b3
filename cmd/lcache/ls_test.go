package main

import (
	"bytes"
	"testing"
	"time"

	"lcache/internal/store/cachedir"
)

func TestWriteList(t *testing.T) {
	now := time.Date(2026, 1, 20, 12, 0, 0, 0, time.UTC)
	l := listing{Roots: []string{"/nvme/lcache"}, Caches: []cachedir.Cache{
		{Dir: "/nvme/lcache/train-8c1f02aa", Source: "/data/imagenet/train", Bytes: 138e9, LastUse: now, Pid: 4711, Parts: 1},
		{Dir: "/nvme/lcache/val-00c1aa17", Source: "/data/imagenet/val", Bytes: 6.7e9, LastUse: now.Add(-3 * time.Hour), Parts: 1},
		{Dir: "/nvme/lcache/half", Bytes: 12e6, LastUse: now.Add(-100 * 24 * time.Hour), Parts: 1},
		{Dir: "/mnt/other", Source: "/data/a\x1b[2Jb", Bytes: 400, LastUse: now.Add(-90 * time.Second), Parts: 1},
	}}
	const want = `cache           source                                   bytes  last use      pid
train-8c1f02aa  /data/imagenet/train                    138 GB  now           4711
val-00c1aa17    /data/imagenet/val                      6.7 GB  3 h ago       –
half            not known: its ingest was not finished   12 MB  100 days ago  –
/mnt/other *    /data/a\x1b[2Jb                          400 B  1 min ago     –
3 caches · 145 GB in /nvme/lcache
* 1 cache · 400 B elsewhere, shown because a server of yours has it open
`
	var out bytes.Buffer
	writeList(&out, l, now)
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "just now", 59 * time.Second: "just now", time.Minute: "1 min ago", 59*time.Minute + 59*time.Second: "59 min ago",
		time.Hour: "1 h ago", 47 * time.Hour: "47 h ago", 48 * time.Hour: "2 days ago", 50000 * time.Hour: "2,083 days ago",
	} {
		if got := ago(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}
