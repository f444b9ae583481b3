package engine

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"lcache/internal/store/ingest"

	"golang.org/x/sys/unix"
)

// A budget that would leave less than the file system's reserve is an error, and the budget that the error names is accepted. An existing cache is not
// rejected for the space that it uses itself, and does not get lost if a new budget is impossible.
func TestBudgetKeepsTheReserve(t *testing.T) {
	d := makeDataset(t, 300, func(r *rand.Rand, _ int) int { return 60_000 + r.IntN(10_000) }) // 19 MB
	free := int64(0)
	in := ingest.Options{Dirs: []string{filepath.Join(t.TempDir(), "cache")}, Source: d.dir, Job: samplerJob(2, 16, 1, false), Memory: 64 << 20, IO: testIO(),
		Statfs: func(_ string, fs *unix.Statfs_t) error {
			*fs = unix.Statfs_t{Bsize: 4096, Blocks: 8e9 / 4096, Bavail: uint64(free) / 4096, Bfree: uint64(free)/4096 + 1e6}
			return nil
		}}
	build := func(budget, unused int64) (*ingest.Report, error) {
		free = 1e9 + unused
		o := in
		o.Budget = budget
		return ingest.Run(t.Context(), o)
	}
	for _, budget := range []int64{0, 16 << 20} {
		if _, err := build(budget, 0); err == nil || !strings.Contains(err.Error(), "make room, or give another --cache") || strings.Contains(err.Error(), "--budget") {
			t.Errorf("nothing free above the reserve, budget %d: %v", budget, err)
		}
	}
	_, err := build(1<<30, 16<<20)
	named := regexp.MustCompile(`give --budget (\d+)MiB or less`).FindStringSubmatch(fmt.Sprint(err))
	if named == nil || !strings.Contains(err.Error(), "1.0 GB must stay free") {
		t.Fatalf("a budget that leaves less than the reserve: %v", err)
	}
	most, _ := strconv.ParseInt(named[1], 10, 64)
	if _, err := build((most+1)<<20, 16<<20); err == nil {
		t.Errorf("%d MiB is not the largest budget", most)
	}
	rep, err := build(most<<20, 16<<20)
	if err != nil || rep.ArenaBytes+rep.MetadataBytes > 16<<20 || rep.ArenaBytes < 12<<20 {
		t.Fatalf("the budget that was named, %d MiB: %+v, %v", most, rep, err)
	}
	if again, err := build(most<<20, 0); err != nil || again.ReadSamples != 0 {
		t.Errorf("the existing cache on a full disk: %+v, %v", again, err)
	}
	if _, err := build(1<<30, 0); err == nil {
		t.Error("a larger budget on a full disk was accepted")
	}
	e := open(t, Options{Dirs: in.Dirs, IO: testIO()})
	if kept := e.Status().Cache.UsedBytes; kept < 8<<20 {
		t.Errorf("the refused budget damaged the existing cache: %d bytes are left, want 8 MiB", kept)
	}
	closeEngine(t, e)
	if smaller, err := build(most<<20-(2<<20), 0); err != nil || !(smaller.ReadSamples > 0) {
		t.Errorf("a smaller budget in the space of the larger one: %+v, %v", smaller, err)
	}
	if rep, err := build(0, 64<<20); err != nil || rep.StoredSamples == 300 {
		t.Errorf("without a budget an existing cache stays: %+v, %v", rep, err)
	}
}
