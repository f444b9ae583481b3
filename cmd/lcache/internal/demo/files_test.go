package demo

import (
	"slices"
	"testing"

	"lcache/internal/serve/status"
)

func examplePlain() *PlainFiles {
	reading := func(how string, epochs, threads int, samples, disk int64, crcs ...uint32) Reading {
		return Reading{How: how, Epochs: epochs, Threads: threads, Samples: samples, Bytes: samples * 10000, Seconds: 0.5, Disk: disk,
			crcs: [][]uint32{crcs, crcs}}
	}
	p := &PlainFiles{Fits: true, Readings: []Reading{reading(coldFiles, 1, 1, 1000, 10e6, 1), reading(coldFiles, 1, 16, 2000, 21e6, 1, 2),
		reading(warmFiles, 1, 1, 10000, 0, 1, 2, 3), reading(fromLcache, 2, 1, 8000, 76e6, 1, 2)}}
	p.compare()
	return p
}

// TestPlain: the finding says where lcache is not faster, and whether the files were cold.
func TestPlain(t *testing.T) {
	const faster, cold = "the same bytes, and lcache is 4.0 times as fast as cold files, 16 threads a rank", "no benefit on this disk: the same bytes, and lcache is 0.5 times as fast as cold files, 1 thread a rank"
	for _, tt := range []struct {
		name  string
		spoil func(p *PlainFiles)
		want  string
	}{
		{"does not fit", func(p *PlainFiles) { p.Readings = slices.Delete(p.Readings, 2, 3) }, faster},
		{"in memory", func(*PlainFiles) {}, faster + "; the files fit into memory, where plain files are 1.2 times as fast as lcache: lcache is not worth it for a dataset of this size"},
		{"slow memory", func(p *PlainFiles) { p.Readings[2].Samples = 800 }, faster + "; the files fit into memory, but lcache is 10.0 times as fast as files in memory, 1 thread a rank"},
		{"fast disk", func(p *PlainFiles) {
			p.Readings = slices.Delete(p.Readings, 2, 3)
			p.Readings[0].Samples, p.Readings[0].Disk = 16000, 100e6
		}, cold},
		{"not dropped", func(p *PlainFiles) { p.Readings = slices.Delete(p.Readings, 2, 3); p.Readings[1].Disk = 0 }, faster + "; but most of the files came from memory in spite of that"},
		{"no counter", func(p *PlainFiles) { p.Readings = slices.Delete(p.Readings, 2, 3); p.Readings[1].Disk = -1 }, faster + "; the kernel does not tell whether the files came from the disk"},
	} {
		p := examplePlain()
		tt.spoil(p)
		if c := p.check(); c.Text != tt.want || !c.Good {
			t.Errorf("%s: got %v %q, want %q", tt.name, c.Good, c.Text, tt.want)
		}
	}
}

// TestReading adds up what ranks answered: the slowest one's time, and no bytes from the disk if one does not know.
func TestReading(t *testing.T) {
	five := int64(5)
	var known, unknown Reading
	known.add([]timed{{1, 10, 0.5, &five, []uint32{1}}, {2, 20, 0.25, &five, []uint32{2}}})
	unknown.add([]timed{{1, 10, 0.5, nil, nil}, {2, 20, 0.25, &five, nil}})
	if known.Samples != 3 || known.Bytes != 30 || known.Seconds != 0.5 || known.Disk != 10 || len(known.crcs) != 2 || unknown.Disk != -1 {
		t.Errorf("got %+v and %+v", known, unknown)
	}
}

// TestFromServer: a server gets its bytes from its log and its source. Without O_DIRECT they may come from the page cache.
func TestFromServer(t *testing.T) {
	doc := func(direct bool, log, source int64) status.Document {
		return status.Document{Direct: direct, Jobs: []status.Job{{}}, Totals: status.Totals{SourceBytes: source, ServerFigures: status.ServerFigures{LogReadBytes: log}}}
	}
	if got := fromServer(doc(true, 20, 3), doc(true, 60, 13)); got != 50 {
		t.Errorf("got %d bytes", got)
	}
	if got := fromServer(doc(false, 20, 3), doc(false, 60, 13)); got != -1 {
		t.Errorf("without O_DIRECT: got %d", got)
	}
	if got := fromServer(status.Document{Direct: true}, status.Document{Direct: true}); got != -1 {
		t.Errorf("without a job: got %d", got)
	}
}
