package ingest

import (
	"testing"
)

func TestMostBudget(t *testing.T) {
	const mib, gb = 1 << 20, 1_000_000_000
	one := func(size, free, reserved uint64) []volume {
		return []volume{{dirs: 1, first: true, size: size, free: free, reserved: reserved}}
	}
	for _, c := range []struct {
		name     string
		volumes  []volume
		metadata uint64
		want     uint64
	}{
		{"1 GB stays free of a small one", one(8*gb, 6*gb, 0), 0, (5*gb - mib) >> 20 << 20},
		{"5 % stay free of a large one", one(100*gb, 15*gb, 0), 0, (10*gb - mib) >> 20 << 20},
		{"the index is part of the budget", one(8*gb, 6*gb, 0), 100 * mib, (5*gb - mib) >> 20 << 20},
		{"the reserve exactly", one(8*gb, gb, 0), 0, 0},
		{"under the reserve", one(8*gb, gb/2, 0), 0, 0},
		{"room for the index alone", one(8*gb, gb+100*mib, 0), 100 * mib, 0},
		{"space of removed files counts", one(8*gb, gb, gb), 0, (gb - mib) >> 20 << 20},
		{"no space is free, and much is removed", one(8*gb, 0, 3*gb), 0, (2*gb - mib) >> 20 << 20},
		{"two directories on one", []volume{{dirs: 2, first: true, size: 8 * gb, free: 6 * gb}}, 0, 2 * (5*gb/2 - mib) >> 20 << 20},
		{"the smaller of two", []volume{{dirs: 1, first: true, size: 8 * gb, free: 6 * gb}, {dirs: 1, size: 8 * gb, free: 2 * gb}}, 0, 2 * (gb - mib) >> 20 << 20},
		{"the first holds the index, too", []volume{{dirs: 1, first: true, size: 8 * gb, free: 2 * gb}, {dirs: 1, size: 8 * gb, free: 2 * gb}}, 500 * mib,
			(2*(gb-500*mib-mib) + 500*mib) >> 20 << 20},
		{"three, two of them on one", []volume{{dirs: 2, first: true, size: 8 * gb, free: 3 * gb}, {dirs: 1, size: 8 * gb, free: 7 * gb}}, 0, 3 * (gb - mib) >> 20 << 20},
		{"one of two is full", []volume{{dirs: 1, first: true, size: 8 * gb, free: 6 * gb}, {dirs: 1, size: 8 * gb, free: 0}}, 0, 0},
	} {
		if got, _ := mostBudget(c.volumes, c.metadata); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
