package demo

import (
	"strings"
	"testing"

	"lcache/internal/serve/status"
	"lcache/internal/store/ingest"
)

func example() *Result {
	ingest := func(budget, slack int64) *ingest.Report {
		return &ingest.Report{Samples: 10000, Classes: 50, Bytes: 100e6, ReadBytes: 100e6, ReadSeconds: 0.5, BudgetBytes: budget,
			SlackBytes: slack, MemoryBytes: 80e6, Segments: 20, SegmentBytes: 5e6, BlockBytes: 256 << 10}
	}
	epoch := func(n int, source int64) Epoch {
		return Epoch{Epoch: n, Samples: 10000, Bytes: 100e6, Seconds: 0.5, Hits: 10000 - source/10000, Misses: source / 10000,
			LogReads: 400, LogRead: 100 << 20, LogWritten: 100e6, Source: source, Stalled: 0.04}
	}
	return &Result{Epochs: 2, World: 2, Plain: examplePlain(),
		Full: Pass{Ingest: ingest(110e6, 8e6), Epochs: []Epoch{epoch(0, 0), epoch(1, 0)}},
		Half: &Pass{Ingest: ingest(50e6, 6e6), Epochs: []Epoch{epoch(0, 56e6), epoch(1, 56e6)}},
	}
}

// TestHolds: the results of a demo that went well pass every check.
func TestHolds(t *testing.T) {
	if failed := example().Failed(); len(failed) != 0 {
		t.Errorf("failed: %v", failed)
	}
}

// TestSmall: a source that is too small to be halved is judged by the first pass alone.
func TestSmall(t *testing.T) {
	r := example()
	r.Half = nil
	if failed := r.Failed(); len(failed) != 0 || len(r.Checks()) != 4 {
		t.Errorf("failed: %v of %d checks", failed, len(r.Checks()))
	}
	r.Full.Wrongs = 1
	if failed := r.Failed(); len(failed) != 1 {
		t.Errorf("failed: %v", failed)
	}
}

// TestHalfOfBytes: many small misses of few bytes fail no check. They happen where the log keeps a few large files.
func TestHalfOfBytes(t *testing.T) {
	r := example()
	for i := range r.Half.Epochs {
		r.Half.Epochs[i].Hits, r.Half.Epochs[i].Misses = 1000, 9000
	}
	if failed := r.Failed(); len(failed) != 0 {
		t.Errorf("failed: %v", failed)
	}
}

// TestFails spoils one fact at a time: each must be found.
func TestFails(t *testing.T) {
	for name, spoil := range map[string]func(*Result){
		"exact: 3 differences": func(r *Result) { r.Full.Wrongs, r.Full.Wrong = 3, []string{"other bytes"} },
		"exact: 1 difference,": func(r *Result) { r.Half.Wrong = []string{"the server did not stop cleanly"} },
		"exact: 30,000 sample": func(r *Result) { r.Half.Epochs = r.Half.Epochs[:1] },
		"source: read once, b": func(r *Result) { r.Full.Epochs[1].Misses = 1 },
		"source: read once, ":  func(r *Result) { r.Full.Ingest.ReadBytes *= 2 },
		"log: a full shuffle, ": func(r *Result) {
			r.Full.Epochs[0].LogReads, r.Full.Epochs[1].LogReads = 0, 0
		},
		"log: a full shuffle, r":  func(r *Result) { r.Full.Epochs[1].LogRead = 0 }, // an epoch came from elsewhere
		"log: a full shuffle, re": func(r *Result) { r.Full.Epochs[0].LogWritten, r.Full.Epochs[1].LogWritten = 0, 0 },
		"plain: 1 difference, ":   func(r *Result) { r.Plain.Readings[1].crcs[1] = []uint32{1, 7}; r.Plain.compare() },
		"plain: 2 differences":    func(r *Result) { r.Plain.Readings[2].crcs = [][]uint32{nil, nil}; r.Plain.compare() },
		"half: hit ratio 42.0 %":  func(r *Result) { r.Half.Epochs[0].Source = 60e6 },
		"half: hit ratio 100.0 %": func(r *Result) { r.Half.Epochs = []Epoch{{Samples: 20000, Bytes: 200e6}} }, // no counters
	} {
		r := example()
		spoil(r)
		if failed := r.Failed(); len(failed) != 1 || !strings.HasPrefix(failed[0], name) {
			t.Errorf("%s: got %q", name, failed)
		}
	}
}

func TestSums(t *testing.T) {
	var p Pass
	before := status.Document{Totals: status.Totals{Hits: 5, Misses: 1, SourceBytes: 3, StallSeconds: 1, ServerFigures: status.ServerFigures{LogReadOps: 2, LogReadBytes: 20, LogWriteBytes: 7}}}
	after := status.Document{Totals: status.Totals{Hits: 15, Misses: 3, SourceBytes: 13, StallSeconds: 1.5, ServerFigures: status.ServerFigures{LogReadOps: 6, LogReadBytes: 60, LogWriteBytes: 17}}}
	p.add(3, 2, []seen{{Samples: 6, Bytes: 60, Wrong: []string{"a"}, Wrongs: 2}, {Samples: 6, Bytes: 40}}, before, after)
	want := Epoch{Epoch: 3, Samples: 12, Bytes: 100, Seconds: 2, Hits: 10, Misses: 2, LogReads: 4, LogRead: 40, LogWritten: 10, Source: 10, Stalled: 0.5}
	if p.Epochs[0] != want || p.Wrongs != 2 || len(p.Wrong) != 1 {
		t.Errorf("got %+v, want %+v", p, want)
	}
}
