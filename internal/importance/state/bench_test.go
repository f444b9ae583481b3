package state

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/importance/score"
)

// BenchmarkAdvance measures the boundary between two epochs of 14.2 million samples, as the worker makes it: end the
// epoch, draw the next order, save the state. Drawing should take at most 3 s (BenchmarkBoundary of package
// importance). Saving adds the time of the disk.
func BenchmarkAdvance(b *testing.B) {
	const n = 14_200_000
	for _, job := range []string{`"method":"impact","lag":1,"params":{"s_share":0}`, `"method":"impact","lag":"split","params":{"s_share":0}`, `"method":"shade","lag":1`} {
		b.Run(job, func(b *testing.B) {
			c, err := Parse([]byte(`{"batch_size":256,"cache":"30GB",`+job+`}`), Defaults{})
			if err != nil {
				b.Fatal(err)
			}
			d := Dataset{Fingerprint: "f", Labels: make([]int32, n), Sizes: make([]uint32, n)}
			for i := range d.Sizes {
				d.Sizes[i] = 10_000
			}
			path := filepath.Join(b.TempDir(), "importance-bench")
			s, err := Open(c, path, d, true, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			r := rand.New(rand.NewPCG(1, 2))
			seen := func(epoch int) {
				o := score.Observation{Kind: score.Losses, Epoch: uint32(epoch)}
				for i := range uint32(n) {
					o.Index, o.Loss = append(o.Index, i), append(o.Loss, float32(math.Exp(0.8*r.NormFloat64())))
					if len(o.Index) == 4096 {
						s.Observe(o)
						o.Batch, o.Index, o.Loss = o.Batch+1, o.Index[:0], o.Loss[:0]
					}
				}
			}
			seen(0)
			for epoch := range 3 {
				if err := s.Advance(epoch+1, score.Progress{}); err != nil {
					b.Fatal(err)
				}
			}
			var saving time.Duration
			epoch, used := 4, processor(b)
			for b.Loop() {
				b.StopTimer()
				at := processor(b)
				seen(epoch - 1)
				used += processor(b) - at
				b.StartTimer()
				if err := s.Advance(epoch, score.Progress{}); err != nil {
					b.Fatal(err)
				}
				began := time.Now()
				if err := s.Save(); err != nil {
					b.Fatal(err)
				}
				saving += time.Since(began)
				epoch++
			}
			b.ReportMetric((processor(b)-used)/float64(b.N), "cpu-s/op")
			b.ReportMetric(saving.Seconds()/float64(b.N), "s-to-save/op")
			if info, err := os.Stat(path); err == nil {
				b.ReportMetric(float64(info.Size())/n, "file-bytes/sample")
			}
		})
	}
}

// processor returns the CPU seconds of this process.
func processor(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
