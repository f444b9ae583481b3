package cache

import (
	"math"
	"slices"
	"testing"

	"lcache/chunker"
)

// TestMostPacked: a few samples that are larger than 16 MiB and than a batch of the others are not compressed. If
// many are that large, all are compressed.
func TestMostPacked(t *testing.T) {
	const mb = 1_000_000
	for _, c := range []struct {
		name         string
		small, large int // samples of 100 KB, and of 300 MB
		batch        uint64
		want         uint32
	}{
		{"one", 1500, 1, 7 * mb, hugeSample},
		{"one of few", 10, 1, 7 * mb, hugeSample},
		{"one in a hundred", 990, 10, 7 * mb, hugeSample},
		{"more", 980, 20, 7 * mb, math.MaxUint32},
		{"of larger batches", 1500, 1, 40 * mb, 40 * mb},
		{"as large as a batch", 1500, 1, 300 * mb, math.MaxUint32},
		{"none", 1500, 0, 7 * mb, math.MaxUint32},
	} {
		sizes := append(slices.Repeat([]uint32{100_000}, c.small), slices.Repeat([]uint32{300 * mb}, c.large)...)
		f := chunker.Facts{Largest: chunker.Padded(slices.Max(sizes), 64), Batch: c.batch}
		if got := mostPacked(sizes, f); got != c.want {
			t.Errorf("%s: samples of up to %d bytes are compressed, want %d", c.name, got, c.want)
		}
	}
}
