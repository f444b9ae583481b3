package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
)

// pacedReader reads epoch after epoch, as fast as the file pace says, and holds every sample against the source. Each epoch must have each sample once.
const pacedReader = `import os, time
import lcache

with lcache.connect("capped/cache/lcache.sock") as job:
    for epoch in range(job.epochs):
        if os.path.exists("enough"):
            break
        seen = bytearray(job.samples)
        for batch in job.epoch(epoch):
            for index, name, view in zip(batch.indices, batch.names, batch.samples):
                with open(os.path.join("source", name), "rb") as file:
                    assert file.read() == view, name
                seen[index] += 1
            with open("pace") as file:
                time.sleep(float(file.read() or 0))
        assert seen == bytearray(b"\1") * job.samples, epoch
`

// TestKilledWhileTheLayoutChanges: while a training over a volume with few operations is slow, samples stay in place. When it is fast, they are sorted.
// At each change the server is killed, a moment later than at the change before, and another one starts. The training continues throughout, with the right bytes.
// The source is read again only for bytes that were in buffers.
func TestKilledWhileTheLayoutChanges(t *testing.T) {
	const samples, size, operations, bandwidth = 5000, 16 << 10, 750, 60 << 20
	switch {
	case os.Getenv("LCACHE_LAYOUT_KILLS") == "":
		t.Skip("takes two minutes, and needs a volume whose speed decides the layout: set LCACHE_LAYOUT_KILLS=1")
	case os.Getenv("LCACHE_DIRECT") == "0":
		t.Skip("buffered reads come from the page cache, not from a volume that gives few operations")
	}
	s := newStage(t)
	work := filepath.Join(filepath.Dir(s.root), "work")
	volume := newCapped(t, work, 1600<<20, operations, bandwidth)
	random := rand.NewChaCha8([32]byte{1})
	for i := range samples {
		b := make([]byte, size)
		random.Read(b)
		path := filepath.Join(work, "source", fmt.Sprint(i%7), fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, string(b))
	}
	disk := &doctor.Device{When: time.Now(), Read: bandwidth, Write: bandwidth, BothRead: bandwidth, BothWrite: bandwidth, IOPS: operations, WriteIOPS: operations, OpBytes: 1 << 20, How: "synthetic"}
	facts, err := json.Marshal(doctor.Report{Schema: 1, Facts: &doctor.Facts{Places: []doctor.Place{{Device: disk}}}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(work, "facts.json"), string(facts))
	writeFile(t, filepath.Join(work, "read.py"), pacedReader)
	pace := func(seconds float64) {
		t.Helper()
		next := filepath.Join(work, "pace.next")
		writeFile(t, next, fmt.Sprint(seconds))
		if err := os.Rename(next, filepath.Join(work, "pace")); err != nil {
			t.Fatal(err)
		}
	}
	if _, errs, err := s.shell("lcache ingest --quiet --facts facts.json --source source --cache capped/cache --memory 48MB --recipe torch.distributed_sampler --epochs 500 --batch-size 50"); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	serve := volume.enter + "\nexec lcache serve --quiet --facts facts.json --cache capped/cache"
	status := func() (job status.Job, total status.Totals) {
		t.Helper()
		out, errs, err := s.shell("lcache status --socket capped/cache/lcache.sock --json")
		var now status.Document
		if err == nil {
			err = json.Unmarshal([]byte(out), &now)
		}
		if err != nil || len(now.Jobs) == 0 {
			t.Fatalf("status: %v: %s", err, errs)
		}
		return now.Jobs[0], now.Totals
	}
	pace(0.08)
	server, _ := s.command(serve)
	s.untilLine(server)
	reader, errs := s.command("exec python read.py")
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() { left <- reader.Wait() }()
	becomes := func(layout string) {
		t.Helper()
		for end := time.Now().Add(100 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			job, _ := status()
			select {
			case err := <-left:
				t.Fatalf("the reader left in epoch %d: %v: %s", job.Epoch, err, errs)
			default:
			}
			if job.Layout == layout {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the layout is still %s in epoch %d: %s; %+v", job.Layout, job.Epoch, job.LayoutReason, job.EpochsDone)
			}
		}
	}
	for _, moment := range []time.Duration{0, 400 * time.Millisecond, -1} { // -1: when a part of the sorted samples is written
		for _, layout := range []string{cache.LayoutStatic, cache.LayoutLog} {
			pace(map[string]float64{cache.LayoutStatic: 0.08, cache.LayoutLog: 0}[layout]) // what makes it the better one
			becomes(layout)
			time.Sleep(moment) // kill at several moments of the work that the change begins
			job, total := status()
			if before := job; moment < 0 && layout == cache.LayoutLog {
				until(t, "a quarter of the samples is written", func() bool {
					job, total = status()
					return job.LogWriteBytes >= before.LogWriteBytes+samples*size/4
				})
			}
			syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
			server.Wait()
			t.Logf("killed %v after the change to %s, in epoch %d: %d samples came from the source, %d bytes were written", moment, layout, job.Epoch, total.SourceReads, job.LogWriteBytes)
			if total.SourceReads > samples/5 {
				t.Errorf("%d of %d samples came from the source", total.SourceReads, samples)
			}
			server, _ = s.command(serve)
			s.untilLine(server)
		}
	}
	writeFile(t, filepath.Join(work, "enough"), "")
	if err := <-left; err != nil {
		t.Errorf("the reader: %v: %s", err, errs)
	}
	_, total := status()
	if total.CorruptSamples != 0 {
		t.Errorf("%d samples were corrupt", total.CorruptSamples)
	}
	syscall.Kill(-server.Process.Pid, syscall.SIGTERM)
	server.Wait()
	out, said, err := s.shell("lcache verify --cache capped/cache --against source --json")
	if err != nil {
		t.Errorf("verify: %v: %s%s", err, out, said)
	}
}
