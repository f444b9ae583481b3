package planner

import (
	"math"

	"lcache/chunker"
	"lcache/internal/plan"
)

// tableBytes is the memory per sample for a server's tables and orders. indexBytes is the part of the budget per sample for checksums and journals.
const (
	tableBytes = 72
	indexBytes = 22
)

// serverSizes are the sizes that ingest and serve compute for the facts of a plan. It is a plan.Sizer.
func serverSizes(f plan.Facts, inPlace bool) (z plan.Sizes, sp plan.Space, fits bool) {
	padded := plan.Padded(f.DatasetBytes, f.Samples)
	sp.PaddedBytes = padded * f.StoredRatio
	mean := f.DatasetBytes / f.Samples
	s, err := chunker.Size(chunker.Facts{
		Kept: whole(padded), Packed: f.StoredRatio != 1, Stored: whole(sp.PaddedBytes), Samples: int(whole(f.Samples)), TableBytes: tableBytes, Largest: whole(f.LargestBytes),
		Batch: whole(max(f.Batch*mean, f.LargestBytes)), BatchSamples: int(whole(f.Batch)), Ranks: int(whole(f.Ranks)), Devices: int(whole(f.Devices)),
		Metadata: whole(indexBytes * f.Samples), Budget: max(1, whole(f.CacheBytes)), Memory: max(1, whole(f.MemoryBytes)), Static: inPlace,
	})
	z = plan.Sizes{BlockBytes: float64(s.Block), SegmentBytes: float64(s.Segment), Segments: float64(s.Segments), Slots: float64(s.Slots), MemoryBytes: float64(s.Memory)}
	if s.Lent {
		z.Slots = 0
	}
	sp.SlackBytes = float64(s.Slack)
	if s.Room > 0 {
		sp.Hit = min(1, float64(s.Room)/sp.PaddedBytes)
	}
	return z, sp, err == nil || s.Room == 0 && s.Memory <= uint64(whole(f.MemoryBytes)) // a budget without room holds nothing; that is not a lack of memory
}

// whole is a number of a plan as a server counts it: far below where sums of such numbers would overflow.
func whole(x float64) uint64 { return uint64(math.Ceil(min(max(x, 0), 1<<50))) }
