package importance_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance"
	"lcache/internal/importance/draw"
	"lcache/internal/importance/importancetest"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/score"
	"lcache/internal/testenv"
)

// resident returns the process's memory in bytes, without memory that files back.
func resident(tb testing.TB) int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		tb.Skipf("no /proc/self/statm: %v", err)
	}
	f := strings.Fields(string(text))
	all, err1 := strconv.Atoi(f[1])
	shared, err2 := strconv.Atoi(f[2])
	if err1 != nil || err2 != nil {
		tb.Fatalf("/proc/self/statm holds %q", text)
	}
	return int64(all-shared) * int64(os.Getpagesize())
}

// BenchmarkBoundary measures the boundary of 14.2 million samples: sort, draw, shuffle. It should take at most 3 s,
// and the layer at most 0.5 GB.
func BenchmarkBoundary(b *testing.B) {
	for _, name := range []string{"impact", "shade"} {
		for _, d := range []draw.Draw{draw.Systematic, draw.Multinomial} {
			b.Run(name+"/"+string(d), func(b *testing.B) {
				m, err := importance.Lookup(name)
				if err != nil {
					b.Fatal(err)
				}
				s, err := m.Scorer(importancetest.ImageNet, m.Defaults, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				importancetest.Observe(s, importancetest.ImageNet, 0)
				s.EndEpoch(score.Progress{Epoch: 0})
				boundary := draw.Boundary{Scorer: s, Samples: importancetest.ImageNet, Seed: 1, Draw: d}
				cpu := importancetest.CPUTime(b)
				for b.Loop() {
					order, err := boundary.Order(1, m.Targets(m.Defaults), nil)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(len(order)), "samples")
					offheap.Free(order)
				}
				b.ReportMetric((importancetest.CPUTime(b)-cpu).Seconds()/float64(b.N), "cpu-s/op")
			})
		}
	}
}

// BenchmarkObserve measures the server's work for a batch of 256 random samples. A million batches should take at
// most 0.1 CPU-s.
func BenchmarkObserve(b *testing.B) {
	for _, name := range []string{"impact", "shade"} {
		for _, n := range []int{1_281_167, importancetest.ImageNet} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				m, err := importance.Lookup(name)
				if err != nil {
					b.Fatal(err)
				}
				s, err := m.Scorer(n, m.Defaults, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				importancetest.Observe(s, n, 0)
				r := rand.New(rand.NewPCG(1, 2))
				batches := make([]score.Observation, 1024)
				for k := range batches {
					o := &batches[k]
					o.Kind = score.Losses
					for range 256 {
						o.Index, o.Loss = append(o.Index, r.Uint32N(uint32(n))), append(o.Loss, r.Float32())
					}
				}
				cpu, k := importancetest.CPUTime(b), 0
				for b.Loop() {
					s.Observe(batches[k%len(batches)])
					k++
				}
				b.ReportMetric((importancetest.CPUTime(b)-cpu).Seconds()/float64(b.N)/256*1e6, "cpu-s/million")
			})
		}
	}
}

// TestBoundaryMemory: 14.2 million samples that several ranks observe take at most half a gigabyte at the boundary's peak, in the warm-up and after it, with a fifth of them in memory. The peak is
// computed from the mapped memory when each part is at its largest. The test also measures the resident memory at rest.
func TestBoundaryMemory(t *testing.T) {
	testenv.Long(t)
	const part = 40
	const n, most = importancetest.ImageNet / part, 500_000_000 / part
	before := offheap.Mapped()
	rest := resident(t)
	m, err := importance.Lookup("impact")
	if err != nil {
		t.Fatal(err)
	}
	p := m.Defaults
	p.Unstable, p.WarmUp = n/20, 2
	s, err := m.Scorer(n, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Share(8); err != nil { // the turns of several ranks
		t.Fatal(err)
	}
	for e := range 2 {
		importancetest.Observe(s, n, e)
		watch := watchMapped(t, most+before)
		s.EndEpoch(score.Progress{Epoch: e})
		watch("the warm-up")
	}
	cache, err := m.NewPolicy("next-use", n, n/5, p)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	b := draw.Boundary{Scorer: s, Samples: n, Seed: 1, Draw: draw.Systematic}
	if b.Plain(2) {
		t.Fatalf("the warm-up has not ended: %+v", s.Activity())
	}
	for e := 2; e < 4; e++ {
		watch := watchMapped(t, most+before)
		cache.(*policy.NextUse).EndEpoch()
		order, err := b.Order(e, m.Targets(p), nil)
		if err != nil {
			t.Fatal(err)
		}
		watch("the boundary")
		watch = watchMapped(t, most+before)
		cache.Begin(e, nil, order)
		for _, id := range order {
			if _, k := cache.Get(id, nil); k == policy.Miss {
				cache.Offer(id, 1)
			}
		}
		watch("the epoch")
		offheap.Free(order)
		s.EndEpoch(score.Progress{Epoch: e})
		importancetest.Observe(s, n, e+1)
	}
	t.Logf("mapped at the end %.1f bytes a sample, resident %.1f", float64(offheap.Mapped()-before)/n, float64(resident(t)-rest)/n)
}

// watchMapped samples the memory that is mapped outside the heap. The returned function ends that, and compares the peak with a limit.
func watchMapped(t *testing.T, limit int64) func(what string) {
	stop, peak := make(chan struct{}), make(chan int64)
	go func() {
		most := offheap.Mapped()
		tick := time.NewTicker(50 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				most = max(most, offheap.Mapped())
			case <-stop:
				peak <- max(most, offheap.Mapped())
				return
			}
		}
	}()
	return func(what string) {
		close(stop)
		most := <-peak
		t.Logf("%s: %.1f MB mapped at its peak", what, float64(most)/1e6)
		if most > limit {
			t.Errorf("%s: %d bytes are mapped at its peak, want at most %d", what, most, limit)
		}
	}
}
