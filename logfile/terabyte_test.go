package logfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"lcache/internal/disk/durable"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

// BenchmarkRecoverTerabyte opens a cache of 1 TB with 10 million samples of 100 KB as kill -9 leaves it in the middle of a reorder: a
// current Logfile whose first half was moved, and a target whose blocks are in the places that this freed. The arena is sparse. The
// goal is at most 2 s.
func BenchmarkRecoverTerabyte(b *testing.B) {
	const w, each, blocks, segments, align = 1 << 20, 10, 1 << 20, 2048, 64
	const samples = each * blocks
	sizes := make([]uint32, samples)
	for i := range sizes {
		sizes[i] = 104_832
		if i%each == each-1 {
			sizes[i] = w - (each-1)*104_832
		}
	}
	bed := &bed{t: b, sizes: sizes, dirs: []string{b.TempDir()}, lost: map[sample.Index]int{}}
	bed.format = Format{Block: w, Align: align, UUID: [16]byte{1, 2, 3}, Places: blocks + 4096}
	arena, err := os.Create(filepath.Join(bed.dirs[0], arenaName))
	if err != nil {
		b.Fatal(err)
	}
	if err := arena.Truncate(bed.format.arenaSize(0, 1)); err != nil {
		b.Skipf("no sparse file of a terabyte here: %v", err)
	}
	arena.Close()
	if err := durable.ReplaceFile(filepath.Join(bed.dirs[0], formatName), encodeFormat(bed.format, 0, 1)); err != nil {
		b.Fatal(err)
	}
	bed.opts = Options{IO: openIO(b), Sizes: sizes, Fingerprint: sample.Fingerprint{9}}
	bed.open()
	const perSegment = blocks / segments
	current := bed.begin(0, 0, segments, perSegment+1, perSegment*each)
	target := bed.begin(1, 1, segments, perSegment+1, perSegment*each)
	gen := target.Generation()
	bed.close()
	// Of the current one segment after the other was written, as by ingest; of the target, one block of each in turn.
	writeRecords(b, bed, current, blocks, func(i int) (seg, seq, place int, g uint64) {
		return i / perSegment, i % perSegment, i, gen + uint64(i) + 1
	})
	writeRecords(b, bed, target, blocks/2, func(i int) (seg, seq, place int, g uint64) {
		return i % segments, i / segments, i, gen + uint64(blocks+i) + 1
	})
	var cpu time.Duration
	for b.Loop() {
		before := cpuTime(b)
		s := bed.open()
		found := 0
		for _, l := range s.Logfiles() { // a caller looks at every sample once
			for seg := range segments {
				l.Arrivals(seg, func(int, sample.Index, uint64) bool { found++; return true })
			}
		}
		b.StopTimer()
		cpu += cpuTime(b) - before
		if found != samples {
			b.Fatalf("%d samples recovered, want %d", found, samples)
		}
		if got, want := s.Used(), blocks; got != want {
			b.Fatalf("%d blocks recovered, want %d", got, want)
		}
		bed.crash()
		b.StartTimer()
	}
	b.ReportMetric(cpu.Seconds()/float64(b.N), "cpu-s/op") // of a busy machine, the number that counts
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func writeRecords(b *testing.B, bed *bed, l *Logfile, n int, at func(i int) (seg, seq, place int, gen uint64)) {
	b.Helper()
	each := len(bed.sizes) / (1 << 20)
	f, err := os.OpenFile(bed.s.journalPath(l.Num()), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var buf []byte
	indices := make([]sample.Index, each)
	for i := range n {
		seg, seq, place, gen := at(i)
		first := (uint64(seg)*512 + uint64(seq)) * 7919 % (1 << 20) // scattered, as an order is
		for k := range indices {
			indices[k] = sample.Index(first)*sample.Index(each) + sample.Index(k)
		}
		r := record{generation: gen, epoch: l.head.Epoch, segment: uint32(seg), sequence: uint32(seq), place: uint32(place), used: uint32(bed.format.Block)}
		if buf = appendRecord(buf, &r, indices, bed.format.seed()); len(buf) > 1<<20 || i == n-1 {
			if _, err := f.Write(buf); err != nil {
				b.Fatal(err)
			}
			buf = buf[:0]
		}
	}
}

// crash closes without writing anything: the next open finds the same state as this one.
func (b *bed) crash() {
	b.t.Helper()
	b.s.dirty.Store(false)
	for _, l := range b.s.Logfiles() {
		for seg := range l.segs {
			l.segs[seg].freed = 0
		}
	}
	b.close()
}
