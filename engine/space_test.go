package engine

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
		{"the floor exactly", one(8*gb, gb, 0), 0, 0},
		{"under the floor", one(8*gb, gb/2, 0), 0, 0},
		{"room for the index alone", one(8*gb, gb+100*mib, 0), 100 * mib, 0},
		{"what is removed first counts", one(8*gb, gb, gb), 0, (gb - mib) >> 20 << 20},
		{"nothing is free, and much is removed", one(8*gb, 0, 3*gb), 0, (2*gb - mib) >> 20 << 20},
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

// A budget that would take a file system below its floor is refused, and the one that the error names is not. An existing cache is neither
// refused for the space that it takes itself, nor lost to a budget that can't be had.
func TestBudgetKeepsTheFloor(t *testing.T) {
	d := makeDataset(t, 300, func(r *rand.Rand, _ int) int { return 60_000 + r.IntN(10_000) }) // 19 MB
	free := int64(0)
	in := IngestOptions{Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Source: d.dir, Job: samplerJob(2, 16, 1, false), Memory: 64 << 20, IO: testIO(),
		statfs: func(_ string, fs *unix.Statfs_t) error {
			*fs = unix.Statfs_t{Bsize: 4096, Blocks: 8e9 / 4096, Bavail: uint64(free) / 4096, Bfree: uint64(free)/4096 + 1e6}
			return nil
		}}
	ingest := func(budget, unused int64) (*IngestReport, error) {
		free = 1e9 + unused
		o := in
		o.Budget = budget
		return Ingest(t.Context(), o)
	}
	for _, budget := range []int64{0, 16 << 20} {
		if _, err := ingest(budget, 0); err == nil || !strings.Contains(err.Error(), "make room, or give another --cache") || strings.Contains(err.Error(), "--budget") {
			t.Errorf("nothing above the floor, budget %d: %v", budget, err)
		}
	}
	_, err := ingest(1<<30, 16<<20)
	named := regexp.MustCompile(`give --budget (\d+)MiB or less`).FindStringSubmatch(fmt.Sprint(err))
	if named == nil || !strings.Contains(err.Error(), "1.0 GB are to stay free") {
		t.Fatalf("a budget beyond the floor: %v", err)
	}
	most, _ := strconv.ParseInt(named[1], 10, 64)
	if _, err := ingest((most+1)<<20, 16<<20); err == nil {
		t.Errorf("%d MiB is not the largest budget", most)
	}
	rep, err := ingest(most<<20, 16<<20)
	if err != nil || rep.ArenaBytes+rep.MetadataBytes > 16<<20 || rep.ArenaBytes < 12<<20 {
		t.Fatalf("the budget that was named, %d MiB: %+v, %v", most, rep, err)
	}
	if again, err := ingest(most<<20, 0); err != nil || again.ReadSamples != 0 {
		t.Errorf("the cache that is there, over a full disk: %+v, %v", again, err)
	}
	if _, err := ingest(1<<30, 0); err == nil {
		t.Error("a larger budget over a full disk is not refused")
	}
	e := open(t, Options{Dirs: in.Dirs, IO: testIO()})
	if kept := e.Status().Cache.UsedBytes; kept < 8<<20 {
		t.Errorf("what was refused cost the cache that was there: %d bytes are left", kept)
	}
	closeEngine(t, e)
	if smaller, err := ingest(most<<20-(2<<20), 0); err != nil || !(smaller.ReadSamples > 0) {
		t.Errorf("a smaller budget in the space of the larger one: %+v, %v", smaller, err)
	}
	if rep, err := ingest(0, 64<<20); err != nil || rep.StoredSamples == 300 {
		t.Errorf("without a budget an existing cache stays: %+v, %v", rep, err)
	}
}
