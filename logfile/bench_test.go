package logfile

import (
	"context"
	"fmt"
	"os"
	"testing"

	"lcache/sample"
)

// BenchmarkAppend writes and frees in a loop: copy, routing, disk.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100 << 10, 4 << 10} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			const segments, w = 64, 1 << 20
			bed := newBed(b, 1, w, 512, []uint32{uint32(size)})
			bed.opts.Spare = 16
			bed.open()
			l := bed.begin(0, 0, segments, 1<<20, 1<<24)
			if err := bed.opts.IO.Register(l.Buffers()); err != nil {
				b.Fatal(err)
			}
			data := bed.content(0)
			ctx := context.Background()
			b.SetBytes(int64(size))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				seg := i % segments
				if _, err := l.Append(ctx, seg, 0, data); err != nil {
					b.Fatal(err)
				}
				if i++; i%(segments*64) == 0 {
					for k := range segments {
						l.FreeBlocks(k, l.Blocks(k)-1)
					}
				}
			}
			b.StopTimer()
			if err := bed.s.Drop(0); err != nil {
				b.Fatal(err)
			}
			bed.close()
		})
	}
}

// BenchmarkRecover opens a cache whose journal has 1 M records with 16 samples each.
func BenchmarkRecover(b *testing.B) {
	const records, each, segments, w = 1 << 20, 16, 1024, 4096
	const samples = records * each
	sizes := make([]uint32, samples)
	for i := range sizes {
		sizes[i] = 256
	}
	bed := newBed(b, 1, w, records, sizes[:1])
	bed.sizes, bed.opts.Sizes = sizes, sizes
	// The arena need not hold anything.
	bed.open()
	perSegment := records / segments
	l := bed.begin(0, 0, segments, perSegment, perSegment*each)
	path := bed.s.journalPath(0)
	gen := l.Generation()
	bed.close()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	indices := make([]sample.Index, each)
	for i := range records {
		for k := range indices {
			indices[k] = uint32(i*each+k*7919*each) % samples
		}
		r := record{generation: gen + uint64(i) + 1, segment: uint32(i % segments), sequence: uint32(i / segments), place: uint32(i), used: w}
		buf = appendRecord(buf, &r, indices, bed.format.seed())
		if len(buf) > 1<<20 {
			f.Write(buf)
			buf = buf[:0]
		}
	}
	f.Write(buf)
	f.Close()
	for b.Loop() {
		s := bed.open()
		st := s.Stats()
		b.ReportMetric(float64(st.RecoveredRecords-st.IgnoredRecords), "records")
		b.StopTimer()
		bed.close()
		b.StartTimer()
	}
}
