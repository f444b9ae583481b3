package engine

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"lcache/internal/disk/blockio"
	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/ingest"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

// onDisk returns the bytes of a cache's files without importance states, which are not part of the budget.
func onDisk(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && d.Type().IsRegular() && !strings.HasPrefix(d.Name(), state.FilePrefix) && unix.Lstat(path, &st) == nil {
			n += st.Blocks * 512
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return n
}

// TestKilledWithPackages: files as a killed server leaves them while samples are put into packages and Logfiles are emptied. A server that starts over them delivers the same orders and the right bytes, continues with
// the packages, and reads little more from the source than the samples that were in write buffers. The H-samples change from epoch to epoch, so packages are emptied, too. The budget holds at each moment.
func TestKilledWithPackages(t *testing.T) {
	inLayouts(t, func(t *testing.T, layout string) {
		d, o, text := lowBed(t, 1500, ingest.Options{})
		o.Layout = layout
		e := open(t, o)
		l := losing{d: d, e: e, world: 1}
		l.ask(t, 0, text)
		c := attach(t, e)
		killed, orders := map[string]int{}, map[int][]sample.Index{} // by directory: the epoch
		root := t.TempDir()
		for epoch := range 6 {
			orders[epoch] = l.observed(t, c, epoch, func(batch int) {
				if epoch >= 1 && (batch == 2 || batch == 9) {
					to := filepath.Join(root, fmt.Sprintf("%d-%d", epoch, batch))
					copyCache(t, e.cache.Dirs[0], to)
					killed[to] = epoch
				}
				if n := onDisk(t, e.cache.Dirs[0]); uint64(n) > e.cache.Sizing.Budget {
					t.Fatalf("epoch %d: %d bytes on disk, the budget is %d", epoch, n, e.cache.Sizing.Budget)
				}
			})
		}
		_, packed, absent, _ := countPlaces(e, func(sample.Index) bool { return false })
		if packed < 800 || absent > 0 {
			t.Errorf("%d samples are in packages, %d nowhere", packed, absent)
		}
		noSource(t, e)
		c.Disconnected()
		closeEngine(t, e)
		restarted(t, o, d, text, killed, func(dir string, epoch int, l losing, c *deliver.Client) {
			l.goesOn(t, c, epoch, orders[epoch])
			l.observed(t, c, epoch+1, func(int) {})
			if s := l.e.Status().Jobs[0]; s.SourceReads > 700 { // the arena and the journals are copied at different moments
				t.Errorf("%s: %d of 1,500 samples read from the source", filepath.Base(dir), s.SourceReads)
			}
			if n := onDisk(t, dir); uint64(n) > l.e.cache.Sizing.Budget {
				t.Errorf("%s: %d bytes on disk, the budget is %d", filepath.Base(dir), n, l.e.cache.Sizing.Budget)
			}
		})
	})
}

// TestPackagesWithFaults: writes fail while samples are put into packages, and reads fail while pieces are emptied. This costs reads from the source, and never a wrong byte.
func TestPackagesWithFaults(t *testing.T) {
	for _, what := range []string{"each 7th write", "each 40th read", "all writes after the 60th"} {
		t.Run(what, func(t *testing.T) {
			d, o, text := lowBed(t, 1200, ingest.Options{})
			var on atomic.Bool
			var writes, reads atomic.Int64
			o.IO.Inject = func(io *blockio.IO) {
				blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
					if !on.Load() || op.Buf == nil {
						return blockio.Fault{}
					}
					w, r := int64(1), int64(1)
					if op.Write {
						w = writes.Add(1)
					} else {
						r = reads.Add(1)
					}
					if what[5] == '7' && w%7 == 0 || what[5] == '4' && r%40 == 0 || what[0] == 'a' && w > 60 {
						return blockio.Fault{Err: unix.EIO}
					}
					return blockio.Fault{}
				})
			}
			e := open(t, o)
			l := losing{d: d, e: e, world: 1}
			l.ask(t, 0, text)
			c := attach(t, e)
			for epoch := range 6 {
				on.Store(epoch >= 1 && epoch < 4)
				l.observed(t, c, epoch, func(int) {})
			}
			s := e.Status().Jobs[0]
			if s.Divergences != 0 || s.CorruptSamples != 0 {
				t.Errorf("%d divergences, %d corrupt samples", s.Divergences, s.CorruptSamples)
			}
			_, packed, absent, _ := countPlaces(e, func(sample.Index) bool { return false })
			t.Logf("%d writes, %d reads; %d samples are in packages, %d nowhere, %d were read from the source", writes.Load(), reads.Load(), packed, absent, s.SourceReads)
			if writes.Load() < 20 && what[5] != '4' || reads.Load() < 100 {
				t.Error("nothing was put to the test")
			}
			c.Disconnected()
			closeEngine(t, e)
		})
	}
}
