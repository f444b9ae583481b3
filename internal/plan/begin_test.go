package plan

import (
	"math"
	"strings"
	"testing"
	"time"
)

// capped is a cloud volume of 3,000 operations/s and 500 MiB/s each way.
var capped = DiskLine{ReadBPS: 524288000, WriteBPS: 524288000, ReadIOPS: 3000, WriteIOPS: 3000, OpBytes: 1 << 20}

// secondRun is an epoch of 10 GB over a log of 10 GB, on the capped volume, with samples of the given size.
func secondRun(sample float64) Beginning {
	return Beginning{
		Left: 10e9, Held: 10e9, Waited: time.Second,
		Place: 3000 * sample / (1 + sample/(1<<20)), Sort: 524288000, Read: 524288000,
		Device: capped,
	}
}

func TestBeginningDecides(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Beginning)
		sample float64
		want   Choice
		why    string
	}{
		{"16 KB samples: random reads take five times as long", nil, 16e3, Sort, "with a sort"},
		{"100 KB samples: both take as long", nil, 100e3, Wait, "not enough"},
		{"ranks do not wait, so nothing is written", func(b *Beginning) { b.Waited = 299 * time.Millisecond }, 16e3, Wait, "waited only"},
		{"0.3 s of waiting is enough", func(b *Beginning) { b.Waited = 300 * time.Millisecond }, 16e3, Sort, ""},
		{"just before a quarter is delivered", func(b *Beginning) { b.Delivered = 0.2499 }, 16e3, Sort, ""},
		{"a quarter is delivered", func(b *Beginning) { b.Delivered = 0.25 }, 16e3, InPlace, "quarter"},
		{"the share is not a number", func(b *Beginning) { b.Delivered = math.NaN() }, 16e3, InPlace, "quarter"},
		{"the last epoch, 16 KB: one write beats random reads", func(b *Beginning) { b.Last = true }, 16e3, Sort, ""},
		{"the last epoch, 400 KB: it does not", func(b *Beginning) { b.Last = true }, 400e3, Wait, "not enough"},
		{"the last epoch has little left: sorting everything does not pay", func(b *Beginning) { b.Last, b.Left = true, 5e8 }, 16e3, Wait, "not enough"},
		{"the source binds both", func(b *Beginning) { b.MissBytes, b.Source = 10e9, 30e6 }, 16e3, Wait, "not enough"},
		{"the source is fast enough to leave it to the disk", func(b *Beginning) { b.MissBytes, b.Source = 10e9, 300e6 }, 16e3, Sort, ""},
		{"the source's rate is not known", func(b *Beginning) { b.MissBytes = 1 }, 16e3, Wait, "source's rate"},
		{"random reads are not measured yet", func(b *Beginning) { b.Place = 0 }, 16e3, Wait, "random reads is not known"},
		{"the sort is not measured yet", func(b *Beginning) { b.Sort = math.NaN() }, 16e3, Wait, "sort is not known"},
		{"the pass is not measured yet", func(b *Beginning) { b.Read = -1 }, 16e3, Wait, "sequential reads is not known"},
		{"a rate is infinite", func(b *Beginning) { b.Place = math.Inf(1) }, 16e3, Wait, ""},
		{"measured rates alone decide without a device line", func(b *Beginning) { b.Device = DiskLine{} }, 16e3, Sort, ""},
		{"the log holds nothing", func(b *Beginning) { b.Held = 0 }, 16e3, InPlace, "nothing"},
		{"everything is delivered", func(b *Beginning) { b.Left = 0 }, 16e3, InPlace, "nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := secondRun(tc.sample)
			if tc.change != nil {
				tc.change(&b)
			}
			got, place, sort, why := b.Decide()
			if got != tc.want || !strings.Contains(why, tc.why) {
				t.Errorf("got %v, want %v: place %.1f s, sort %.1f s: %s", got, tc.want, place, sort, why)
			}
		})
	}
}

// TestBeginningSeconds compares with the shares of the disk's bandwidth on the capped volume: random reads get 0.09
// of it at 16 KB, and at 100 KB 0.52 (1 MiB blocks) or 0.41 (256 KiB blocks). A sort and the epoch after it get half.
func TestBeginningSeconds(t *testing.T) {
	for _, tc := range []struct{ sample, block, want float64 }{
		{16e3, 1 << 20, 0.09}, {100e3, 1 << 20, 0.52}, {100e3, 256 << 10, 0.41},
	} {
		b := secondRun(tc.sample)
		b.Last, b.Place = true, 3000*tc.sample/(1+tc.sample/tc.block)
		_, place, sort, _ := b.Decide()
		if got := 10e9 / place / 524288000; math.Abs(got-tc.want) > 0.005 {
			t.Errorf("samples of %.0f bytes in blocks of %.0f: random reads have %.3f of the bandwidth, want %.2f", tc.sample, tc.block, got, tc.want)
		}
		if got := 10e9 / sort / 524288000; math.Abs(got-0.5) > 1e-9 {
			t.Errorf("a sort and the epoch: %.3f of the bandwidth, want 0.5", got)
		}
	}
	// With a next epoch, the scan reads and writes while the prefetcher reads: 20 GB are read, 10 GB written.
	b := secondRun(400e3)
	if _, place, _, _ := b.Decide(); math.Abs(place-20e9/524288000) > 1e-9 {
		t.Errorf("random reads during a scan: %.2f s, want %.2f s", place, 20e9/524288000)
	}
}

func FuzzBeginning(f *testing.F) {
	f.Add(uint64(10e9), uint64(10e9), int64(1e9), 0.1, false, 48e6, 500e6, 500e6, 1e9, uint64(0), 500e6, 3000.0, 1048576.0)
	f.Add(uint64(1<<63), uint64(0), int64(-1), math.NaN(), true, math.Inf(1), -1.0, 0.0, 1e-300, uint64(1), 0.0, math.NaN(), -5.0)
	f.Fuzz(func(t *testing.T, left, held uint64, waited int64, delivered float64, last bool, place, sort, read, source float64, miss uint64, bps, iops, block float64) {
		b := Beginning{left, held, time.Duration(waited), delivered, last, place, sort, read, source, miss, DiskLine{ReadBPS: bps, CombinedIOPS: iops}, block}
		got, p, s, why := b.Decide()
		if got != Wait && got != Sort && got != InPlace || why == "" {
			t.Fatalf("%v %q", got, why)
		}
		if got == Sort && !(p > s && b.Waited >= WaitedEnough && delivered < TooLate) {
			t.Fatalf("sorts with place %v s, sort %v s, waited %v, delivered %v", p, s, b.Waited, delivered)
		}
	})
}

// TestReconsiderAfter: the choice is made several times before a quarter of the epoch is delivered.
func TestReconsiderAfter(t *testing.T) {
	for rest, want := range map[float64]time.Duration{0: 0, 4: 200 * time.Millisecond, 20: time.Second, 100: 5 * time.Second, 1e300: 5 * time.Second, math.Inf(1): 5 * time.Second, math.NaN(): 5 * time.Second, -1: 5 * time.Second} {
		if got := ReconsiderAfter(rest); got != want {
			t.Errorf("a rest of %v s: %v, want %v", rest, got, want)
		}
	}
}
