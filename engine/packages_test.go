package engine

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/logfile"
	"lcache/sample"
)

// packAway moves the samples of every second segment of a cache into packages, and frees the segments. It returns the number of samples moved.
func packAway(t *testing.T, o Options) (n int) {
	t.Helper()
	c, err := cache.Open(cache.Options{Dirs: o.Dirs, IO: o.IO, Memory: o.Memory, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := c.Store.BeginPackages(logfile.Header{Fingerprint: c.Manifest.Fingerprint(), SegmentBlocks: 4, Open: 2}, 200, c.Manifest.Len())
	if err != nil {
		t.Fatal(err)
	}
	l := c.Store.ByAge()[0]
	mem, err := blockio.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer blockio.Free(mem)
	for seg := 0; seg < int(l.Header().Segments); seg += 2 {
		l.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
			data, err := l.Read(t.Context(), seg, off, c.StoredSize(i), mem)
			if err != nil {
				t.Error(err)
				return false
			}
			number, at, err := p.Put(t.Context(), int(i)%2, i, data)
			if err != nil {
				t.Error(err)
				return false
			}
			c.Locations.Set(i, c.Locations.At(logfile.PackagesNum, number, at))
			n++
			return true
		})
		l.FreeSegment(seg)
	}
	return n
}

// TestCacheWithPackages: a cache with many samples in packages is checked and served like any other. Each epoch has its order and the source's bytes, and
// nothing is read from the source. This holds in both layouts, compressed and not, and after a restart.
func TestCacheWithPackages(t *testing.T) {
	for _, layout := range []string{cache.LayoutLog, cache.LayoutStatic} {
		for _, compress := range []string{"", cache.LZ4} {
			t.Run(layout+compress, func(t *testing.T) {
				b := damageBedOf(t, 300, ingest.Options{Layout: layout, Compress: compress})
				packedAway := packAway(t, b.opts)
				if packedAway < 60 {
					t.Fatalf("only %d samples were packed", packedAway)
				}
				rep, err := cache.Verify(context.Background(), cache.VerifyOptions{Dirs: b.opts.Dirs, IO: b.opts.IO})
				if err != nil || rep.Good != rep.Samples {
					t.Fatalf("verify: %v, %+v", err, rep)
				}
				for epoch := range 3 {
					e := open(t, b.opts)
					b.readEpochs(t, e, b.job, epoch, epoch+1)
					if s := e.Status().Jobs[0]; s.SourceReads != 0 || s.CorruptSamples != 0 {
						t.Errorf("epoch %d: %d reads from the source, %d corrupt", epoch, s.SourceReads, s.CorruptSamples)
					}
					closeEngine(t, e)
				}
			})
		}
	}
}

// TestPackagesThatCantBeRemoved: if the journal of packages can't be removed, the server does not log that their samples are in the log again.
func TestPackagesThatCantBeRemoved(t *testing.T) {
	for _, fails := range []bool{false, true} {
		_, o, _ := lowBed(t, 50, ingest.Options{})
		log := new(logged)
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		e := open(t, o)
		if _, err := e.cache.BeginPackages(4, 1, 2, 50); err != nil {
			t.Fatal(err)
		}
		blockio.InjectPlain(e.cache.IO, func(_ int64, path, step string) (f blockio.Fault) {
			if fails && step == "remove" && filepath.Base(path) == "journal-packages" {
				f.Err = unix.EIO
			}
			return f
		})
		e.dropPackages()
		blockio.InjectPlain(e.cache.IO, nil)
		if done, failed := len(log.lines("the packages are empty and were removed")), len(log.lines("cannot remove the journal")); done+failed != 1 || (failed == 1) != fails {
			t.Errorf("the removal fails: %v; logged: %d times done, %d times failed", fails, done, failed)
		}
		closeEngine(t, e)
	}
}
