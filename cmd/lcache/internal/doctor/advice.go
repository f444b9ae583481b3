package doctor

import (
	"fmt"
	"math"

	"lcache/internal/store/cachedir"
)

// Verdict is whether lcache would help.
type Verdict string

// The verdicts.
const (
	Worth   Verdict = "worth it"
	Bother  Verdict = "don't bother"
	Unclear Verdict = "unclear"
)

// An Advice compares the rate at which a source's files can be read now with the rate of the log. Rates are in bytes a second.
type Advice struct {
	Verdict  Verdict `json:"verdict"`
	Why      string  `json:"why"`
	Now      float64 `json:"now_bytes_per_second"`      // with 32 readers, without lcache
	Expected float64 `json:"expected_bytes_per_second"` // of an epoch that is reordered
	Last     float64 `json:"last_bytes_per_second"`     // of the last epoch, which is only read
	Share    float64 `json:"share"`                     // of the data for which the cache has space
	Disk     uint64  `json:"needs_disk_bytes"`
	Memory   uint64  `json:"needs_memory_bytes"`
}

// The server's cost, in CPU-seconds for 10^9 bytes, with huge pages.
const (
	cpuReorder = 0.28
	cpuRead    = 0.12
)

// Worthwhile is how many times faster the log must be to be worth another tool.
const Worthwhile = 1.2

// Advise compares the facts. Without Facts.Reading, or without a measured device, the verdict is Unclear.
func (f *Facts) Advise() (a Advice) {
	a.Verdict = Unclear
	r := f.Reading
	if r == nil || len(r.Readers) == 0 || r.Bytes == 0 {
		a.Why = "no files were read"
		return a
	}
	a.Now = r.Readers[len(r.Readers)-1].BytesPerSecond()
	a.Disk = uint64(float64(r.Bytes) * 1.02)
	a.Memory = needsMemory(uint64(r.Bytes))
	reorder, read, ok := f.LogRate()
	if !ok || a.Now <= 0 {
		a.Why = "the device of the cache was not measured"
		return a
	}
	cpus := float64(max(f.CPUs, 1))
	reorder, read = min(reorder, cpus/cpuReorder*1e9), min(read, cpus/cpuRead*1e9)
	var room uint64
	for _, p := range f.Places {
		room += p.room()
	}
	a.Share = min(float64(room)/float64(a.Disk), 1)
	a.Expected, a.Last = withMisses(a.Share, reorder, a.Now), withMisses(a.Share, read, a.Now)
	a.judge(f)
	return a
}

// withMisses returns the rate of an epoch that reads a share of its bytes from the log and, in parallel, the others from the source.
func withMisses(share, log, source float64) float64 {
	if share <= 0 || log <= 0 {
		return source
	}
	return 1 / max(share/log, (1-share)/source)
}

// judge sets the verdict and the reason from the rates.
func (a *Advice) judge(f *Facts) {
	r := f.Reading
	faster := a.Expected / a.Now
	switch {
	case uint64(r.Bytes) <= f.Memory.Available/2 && r.Nature != cachedir.Network:
		a.Verdict = Bother
		a.Why = fmt.Sprintf("all %s of it fit into memory: from the second epoch on the page cache has them", size(uint64(r.Bytes)))
	case faster < Worthwhile:
		a.Verdict = Bother
		a.Why = fmt.Sprintf("your disk is fast enough: 32 readers get %s now, the log would give %s", speed(a.Now), speed(a.Expected))
		if a.Share < 0.5 {
			a.Why = fmt.Sprintf("there is room for %.0f %% of the data only: %s now, %s with lcache; with more space ask again", 100*a.Share, speed(a.Now), speed(a.Expected))
		}
	default:
		a.Verdict = Worth
		a.Why = fmt.Sprintf("%.1f times what 32 readers get now", faster)
	}
}

// needsMemory returns the memory that a server needs while clients hold no samples: 4·√(data·block) + 32 blocks of 1 MiB, and 64 MiB for
// misses.
func needsMemory(bytes uint64) uint64 {
	const block = 1 << 20
	return uint64(4*math.Sqrt(float64(bytes)*block)) + 32*block + 64<<20
}
