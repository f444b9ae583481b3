package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// modes are the I/O modes of the suite: one if the environment chooses, else the two extremes.
func modes() []IO {
	if io := testIO(); io.Engine != "" || io.Direct != "" {
		return []IO{io}
	}
	return []IO{{Engine: "auto", Direct: "auto"}, {Engine: "pread", Direct: "off"}}
}

// used is what the directories take on disk.
func used(t testing.TB, dirs []string) (n int64) {
	t.Helper()
	for _, d := range dirs {
		err := filepath.WalkDir(d, func(path string, e fs.DirEntry, err error) error {
			var st syscall.Stat_t
			if err == nil {
				err = syscall.Lstat(path, &st)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a journal that was just replaced
			}
			if err != nil {
				return err
			}
			n += st.Blocks * 512
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestMatrix reads 4 epochs in every combination of ranks, drop_last, budget and I/O mode, two ranks from two directories, some of them
// in the static layout as well: bytes, labels and orders exact, no misses with a full budget, as many hits as the budget allows with a
// smaller one, and never more on disk than it.
func TestMatrix(t *testing.T) {
	n := 3000
	if slow || testing.Short() {
		n = 1000
	}
	d := makeDataset(t, n, mixedSizes)
	for _, io := range modes() {
		for _, world := range []int{1, 2, 8} {
			for _, drop := range []bool{false, true} {
				for _, budget := range []float64{1, 0.5, 0.1} {
					name := fmt.Sprintf("%s,%s/world=%d,drop=%v,budget=%v", io.Engine, io.Direct, world, drop, budget)
					t.Run(name, func(t *testing.T) { d.matrixCase(t, io, samplerJob(4, 7, world, drop), budget, layoutLog) })
					if drop == (budget == 0.5) && (world == 1) == (budget == 1) {
						t.Run(name+",static", func(t *testing.T) { d.matrixCase(t, io, samplerJob(4, 7, world, drop), budget, layoutStatic) })
					}
				}
			}
		}
	}
}

func (d *dataset) matrixCase(t *testing.T, io IO, j Job, budget float64, layout string) {
	in := IngestOptions{Job: j, Memory: 56 << 20, IO: io, Layout: layout}
	if j.World == 2 {
		in.Dirs, in.Memory = twoDirs(t), 72<<20
	}
	if budget < 1 {
		in.Budget = int64(budget*float64(d.total)) + 6<<20 // and the least slack of 32 blocks, which is nothing beside a real budget
	}
	o, rep := ingested(t, d, in)
	o.Patience = 5 * time.Second // a machine that is busy elsewhere makes nobody late
	e := open(t, o)
	if du := used(t, o.Dirs); du > rep.BudgetBytes {
		t.Errorf("%d bytes on disk after ingest, the budget is %d", du, rep.BudgetBytes)
	}
	d.readEpochs(t, e, j, 0, j.Epochs)
	s := e.Status()
	du := used(t, o.Dirs)
	closeEngine(t, e)
	if du > s.Cache.BudgetBytes {
		t.Errorf("%d bytes on disk, the budget is %d", du, s.Cache.BudgetBytes)
	}
	js := s.Jobs[0]
	if js.CorruptSamples != 0 || js.StaleSamples != 0 || js.ReorderDropped != 0 || js.Divergences != 0 {
		t.Errorf("corrupt %d, stale %d, dropped %d, divergences %d: want none", js.CorruptSamples, js.StaleSamples, js.ReorderDropped, js.Divergences)
	}
	if budget == 1 {
		if js.Misses != 0 || js.SourceReads != 0 {
			t.Errorf("misses %d, source reads %d: want none with a full budget", js.Misses, js.SourceReads)
		}
	} else {
		c := float64(s.Cache.BudgetBytes-s.Cache.SlackBytes-rep.MetadataBytes) / float64(d.total)
		if got := float64(js.KeptBytes) / float64(d.total); got < 0.98*c-float64(d.largest())/float64(d.total) {
			t.Errorf("kept %.3f of the bytes, the budget allows %.3f", got, c)
		}
		// Hits are counted by samples; with a set drawn by name hash both shares agree but for chance.
		kept := float64(e.job.Kept+d.empty()) / float64(len(d.bytes))
		if got := float64(js.Hits) / float64(js.Hits+js.Misses); got < 0.98*kept {
			t.Errorf("hit ratio %.3f, %.3f of the samples are kept", got, kept)
		}
	}
	if js.Layout != layout {
		t.Errorf("layout %s (%s), want %s", js.Layout, js.LayoutReason, layout)
	}
	if layout == layoutStatic {
		if js.LogWriteBytes != 0 || js.EvictedSegments != 0 {
			t.Errorf("%d bytes written, %d segments evicted: want samples to stay where they are", js.LogWriteBytes, js.EvictedSegments)
		}
		if js.LogReadBytes == 0 {
			t.Error("nothing was read from the log")
		}
	} else if mean := js.LogReadBytes / max(js.LogReadOps, 1); js.LogReadOps > 0 && mean < 200<<10 && rep.BlockBytes >= 256<<10 {
		t.Errorf("mean log read is %d bytes, want about a block of %d", mean, rep.BlockBytes)
	}
	for _, dev := range s.Cache.Devices {
		if share := int64(len(s.Cache.Devices)); dev.State != "normal" || dev.Errors != 0 || dev.Blocks < js.LogWriteOps/(4*share) {
			t.Errorf("%+v of %d writes: want a share of them, without errors", dev, js.LogWriteOps)
		}
	}
	if len(js.EpochsDone) != j.Epochs {
		t.Errorf("%d epochs done, want %d", len(js.EpochsDone), j.Epochs)
	}
	if js.RandomReads > int64(len(d.bytes)/10) {
		t.Errorf("%d samples read by index: the window should bring them (%d segments evicted)", js.RandomReads, js.EvictedSegments)
	}
}

// largest is the size of the largest sample.
func (d *dataset) largest() (n int) {
	for _, b := range d.bytes {
		n = max(n, len(b))
	}
	return n
}

// empty counts the samples without bytes, which are always hits.
func (d *dataset) empty() (n int) {
	for _, b := range d.bytes {
		if len(b) == 0 {
			n++
		}
	}
	return n
}
