package engine

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
)

// openTestBench opens a cache, and closes it when the test is over, unless readBench has.
func openTestBench(t *testing.T, o Options, reorder bool) (b *Bench, end func()) {
	t.Helper()
	b, err := OpenBench(Options{Dirs: o.Dirs, IO: o.IO, Logger: o.Logger}, reorder)
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { closeEngine(t, b.Engine) })
	t.Cleanup(end)
	return b, end
}

// readBench reads the epoch and closes. It fails unless every sample arrives, and the log is written exactly if that was requested.
func readBench(t *testing.T, d *dataset, b *Bench, end func(), writes bool) {
	t.Helper()
	limited, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n, bytes, err := b.Read(limited)
	if err != nil {
		t.Fatal(err)
	}
	if n < int64(len(d.bytes)) || bytes < d.total {
		t.Errorf("%d samples of %d bytes, the dataset has %d of %d", n, bytes, len(d.bytes), d.total)
	}
	if err := b.MovedOn(limited); err != nil {
		t.Error(err)
	}
	b.mu.Lock()
	if b.broken != nil {
		t.Errorf("the log could not go on: %v", b.broken)
	}
	b.mu.Unlock()
	if j := b.Status().Jobs[0]; j.Misses != 0 || (j.LogWriteBytes > 0) != writes {
		t.Errorf("%d misses, %d bytes written; writing should be %v", j.Misses, j.LogWriteBytes, writes)
	}
	end()
}

func TestBench(t *testing.T) {
	for _, c := range []struct {
		name    string
		job     schedule.Job
		settles bool
	}{
		{"a recipe", samplerJob(2, 16, 2, false), false},
		{"no recipe", schedule.Job{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := makeDataset(t, 300, func(r *rand.Rand, i int) int { return 1 + r.IntN(30_000) })
			o, _ := ingested(t, d, ingest.Options{Job: c.job})
			b, end := openTestBench(t, o, true)
			if b.Settling != c.settles || b.Epoch != 0 || b.Samples != int64(len(d.bytes)) || b.Bytes != d.total {
				t.Fatalf("%+v", b)
			}
			readBench(t, d, b, end, true)
			at := 1
			if c.settles {
				at = 0
			}
			// Without reorder the log stays as it is; with it, the log moves on, even beyond the job's last epoch.
			for _, reorder := range []bool{false, false, true, false, true, false} {
				b, end := openTestBench(t, o, reorder)
				if b.Settling || b.Epoch != at {
					t.Fatalf("at epoch %d, want %d; settling %v", b.Epoch, at, b.Settling)
				}
				readBench(t, d, b, end, reorder)
				if reorder {
					at++
				}
			}
			if r, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: o.Dirs, IO: o.IO, Against: d.dir}); err != nil || r.Good != len(d.bytes) {
				t.Errorf("afterwards: %+v %v", r, err)
			}
		})
	}
}

func TestBenchRefuses(t *testing.T) {
	d := makeDataset(t, 30, func(*rand.Rand, int) int { return 1000 })
	o, _ := ingested(t, d, ingest.Options{Job: samplerJob(2, 16, 1, false), NoPrefill: true})
	if _, err := OpenBench(Options{Dirs: o.Dirs, IO: o.IO}, false); err == nil || !strings.Contains(err.Error(), "holds no samples yet") {
		t.Errorf("an empty log: %v", err)
	}
	if _, err := OpenBench(Options{Dirs: []string{filepath.Join(t.TempDir(), "none")}}, false); err == nil || !strings.Contains(err.Error(), "not a cache") {
		t.Errorf("no cache: %v", err)
	}
	e := open(t, o)
	defer closeEngine(t, e)
	if _, err := OpenBench(Options{Dirs: o.Dirs, IO: o.IO}, false); err == nil || !strings.Contains(err.Error(), "in use by process") {
		t.Errorf("a served cache: %v", err)
	}
}
