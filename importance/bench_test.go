package importance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/offheap"
)

// imageNet is the number of samples of ImageNet-21k.
const imageNet = 14_200_000

// observe feeds losses that are drawn as the generator of the study draws them: log-normal, so that they spread over several powers of two.
func observe(s Scorer, n, epoch int) {
	r := rand.New(rand.NewPCG(1, uint64(epoch)))
	o := Observation{Kind: Losses, Epoch: uint32(epoch)}
	for i := range uint32(n) {
		o.Index, o.Loss = append(o.Index, i), append(o.Loss, float32(math.Exp(0.8*r.NormFloat64())))
		if len(o.Index) == 256 || int(i) == n-1 {
			s.Observe(o)
			o.Batch, o.Index, o.Loss = o.Batch+1, o.Index[:0], o.Loss[:0]
		}
	}
}

// resident is the process's memory in bytes, without what files back.
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

// cpuTime is what this process has computed so far: on a shared machine it says more than the clock.
func cpuTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkBoundary is what happens between two epochs of 14.2 million samples: sort, draw, shuffle. It should take at most 3 s, and the layer at most 0.5 GB.
func BenchmarkBoundary(b *testing.B) {
	for _, name := range []string{"impact", "shade"} {
		for _, draw := range []Draw{Systematic, Multinomial} {
			b.Run(name+"/"+string(draw), func(b *testing.B) {
				m, err := Lookup(name)
				if err != nil {
					b.Fatal(err)
				}
				s, err := m.Scorer(imageNet, m.Defaults, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				observe(s, imageNet, 0)
				s.EndEpoch(Progress{Epoch: 0})
				boundary := Boundary{Scorer: s, Samples: imageNet, Seed: 1, Draw: draw}
				cpu := cpuTime(b)
				for b.Loop() {
					order, err := boundary.Order(1, m.Targets(m.Defaults), nil)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(len(order)), "samples")
					offheap.Free(order)
				}
				b.ReportMetric((cpuTime(b)-cpu).Seconds()/float64(b.N), "cpu-s/op")
			})
		}
	}
}

// BenchmarkWarmUp is one epoch's end during ImPACT's warm-up.
func BenchmarkWarmUp(b *testing.B) {
	w, err := NewWarmUp(imageNet, LossOptions{Unstable: imageNet / 20, Overlap: 2, MaxEpochs: math.MaxInt})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	r := rand.New(rand.NewPCG(1, 2))
	values, err := offheap.Make[float64](imageNet)
	if err != nil {
		b.Fatal(err)
	}
	defer offheap.Free(values)
	for i := range values {
		values[i] = float64(float32(math.Exp(0.8 * r.NormFloat64())))
	}
	w.EndEpoch(values)
	cpu := cpuTime(b)
	for b.Loop() {
		w.EndEpoch(values)
	}
	b.ReportMetric((cpuTime(b)-cpu).Seconds()/float64(b.N), "cpu-s/op")
}

// BenchmarkObserve is the server's part of one batch of 256, of samples drawn at random. It should take at most 0.1 CPU-s for a million of them.
func BenchmarkObserve(b *testing.B) {
	for _, name := range []string{"impact", "shade"} {
		for _, n := range []int{1_281_167, imageNet} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				m, err := Lookup(name)
				if err != nil {
					b.Fatal(err)
				}
				s, err := m.Scorer(n, m.Defaults, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				observe(s, n, 0)
				r := rand.New(rand.NewPCG(1, 2))
				batches := make([]Observation, 1024)
				for k := range batches {
					o := &batches[k]
					o.Kind = Losses
					for range 256 {
						o.Index, o.Loss = append(o.Index, r.Uint32N(uint32(n))), append(o.Loss, r.Float32())
					}
				}
				cpu, k := cpuTime(b), 0
				for b.Loop() {
					s.Observe(batches[k%len(batches)])
					k++
				}
				b.ReportMetric((cpuTime(b)-cpu).Seconds()/float64(b.N)/256*1e6, "cpu-s/million")
			})
		}
	}
}

// BenchmarkNextUse is a request and, after a miss, an offer, with a fifth of the samples in memory.
func BenchmarkNextUse(b *testing.B) {
	const n = 1_000_000
	p, err := NewNextUse(n, n/5)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	order, err := Plain(n, 1, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer offheap.Free(order)
	at := n
	for b.Loop() {
		if at == n {
			p.Begin(0, nil, order)
			at = 0
		}
		if _, k := p.Get(order[at], nil); k == Miss {
			p.Offer(order[at], 1)
		}
		at++
	}
}

// TestBoundaryMemory: 14.2 million samples that several ranks observe take at most half a gigabyte at the boundary's peak, in the warm-up and after it, with a fifth of them in memory. The peak is
// computed from what is mapped when each part is at its largest; how much is really there at rest is looked at, too.
func TestBoundaryMemory(t *testing.T) {
	const part = 40
	const n, most = imageNet / part, 500_000_000 / part
	before := offheap.Mapped()
	rest := resident(t)
	m, err := Lookup("impact")
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
		observe(s, n, e)
		watch := watchMapped(t, most+before)
		s.EndEpoch(Progress{Epoch: e})
		watch("the warm-up")
	}
	policy, err := m.NewPolicy("next-use", n, n/5, p)
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	b := Boundary{Scorer: s, Samples: n, Seed: 1, Draw: Systematic}
	if b.Plain(2) {
		t.Fatalf("the warm-up has not ended: %+v", s.Activity())
	}
	for e := 2; e < 4; e++ {
		watch := watchMapped(t, most+before)
		policy.(*NextUse).EndEpoch()
		order, err := b.Order(e, m.Targets(p), nil)
		if err != nil {
			t.Fatal(err)
		}
		watch("the boundary")
		watch = watchMapped(t, most+before)
		policy.Begin(e, nil, order)
		for _, id := range order {
			if _, k := policy.Get(id, nil); k == Miss {
				policy.Offer(id, 1)
			}
		}
		watch("the epoch")
		offheap.Free(order)
		s.EndEpoch(Progress{Epoch: e})
		observe(s, n, e+1)
	}
	t.Logf("mapped at the end %.1f bytes a sample, resident %.1f", float64(offheap.Mapped()-before)/n, float64(resident(t)-rest)/n)
}

// watchMapped looks at what is mapped outside the heap while something runs. The function that it returns ends that, and compares the peak with a limit.
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
