package engine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"lcache/internal/plan"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// inAMiddle opens a cache, begins epoch 0 of some orders, and returns in the middle of the sort into it, with the disk's writes held by a gate.
func inAMiddle(t *testing.T, d *dataset, o Options, orders [][][]sample.Index) (*Engine, *gate) {
	t.Helper()
	g := newGate(t, &o, int(d.total/(128<<10))/2)
	e := open(t, o.chosen(plan.Sort))
	defer func() {
		if t.Failed() { // else the caller opens and closes
			g.open()
			closeEngine(t, e)
		}
	}()
	d.push(t, e, 0, 0, 2, orders)
	d.readSome(t, e, attach(t, e), 0, 0, 0, 2*fewBatches, orders[0])
	logsBecome(t, e, "a sort is in its middle", func(l logfiles) bool { return l.sorting && g.holds() })
	return e, g
}

// waitForJournals waits until the journals have a record of each written block. A record follows its block, and no block follows while a gate holds the disk's writes.
func waitForJournals(t *testing.T, dir string) {
	t.Helper()
	last := func() (at time.Time) {
		names, err := filepath.Glob(filepath.Join(dir, "journal*"))
		if err != nil || len(names) == 0 {
			t.Fatalf("journals %q in %s: %v", names, dir, err)
		}
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && info.ModTime().After(at) {
				at = info.ModTime()
			}
		}
		return at
	}
	for was, now := (time.Time{}), last(); !was.Equal(now); was, now = now, last() {
		time.Sleep(100 * time.Millisecond)
	}
}

// A sort that was cut off costs some samples: the ones that were partly appended when the server stopped and, where two logs become one, the ones that no segment has
// room for.
const (
	halfAppended = 0.01
	withoutRoom  = 0.05
)

// isAllThere reads two epochs in given orders, the first from a batch on. It fails if more than a share of the samples is read from the source.
func (d *dataset) isAllThere(t *testing.T, e *Engine, start int, orders [][][]sample.Index, lost float64) {
	t.Helper()
	c := attach(t, e)
	defer c.Disconnected()
	for epoch := range 2 {
		d.readOrder(t, e, c, epoch, 0, start, orders[epoch], nil)
		start = 0
	}
	s := e.Status().Jobs[0]
	if s.CorruptSamples != 0 || s.Divergences != 0 {
		t.Errorf("%d corrupt, %d divergences: want none", s.CorruptSamples, s.Divergences)
	}
	if most := int64(lost * float64(len(d.bytes))); s.SourceReads > most || s.ReorderDropped > most {
		t.Errorf("%d reads from the source, %d dropped, want at most %d", s.SourceReads, s.ReorderDropped, most)
	}
}

// TestOrderChangesWhileSorting: the order of the epoch that is read changes three times while the log is being sorted into it.
func TestOrderChangesWhileSorting(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	e, g := inAMiddle(t, d, o, shuffled(2, len(d.bytes), 2, 1, 0))
	defer closeEngine(t, e)
	defer g.open()
	c := attach(t, e)
	for seed := range uint64(3) {
		orders := shuffled(3+seed, len(d.bytes), 2, 1, 0)
		d.push(t, e, 0, 0, 2, orders)
		d.readSome(t, e, c, 0, 0, 0, 2*fewBatches, orders[0]) // the disk takes no block all the while
	}
	g.open()
	last := shuffled(5, len(d.bytes), 2, 1, 0)
	logsBecome(t, e, "the abandoned sort has ended", func(l logfiles) bool { return !l.hasTarget || l.read == 0 })
	d.readSome(t, e, c, 0, 0, 2*fewBatches, 4*fewBatches, last[0]) // these requests cause another decision
	logsBecome(t, e, "the log is sorted into the last order", isAt(0))
	d.isAllThere(t, e, 4*fewBatches, last, 0)
}

// TestClientGoneWhileSorting: the client is gone in the middle of a sort, and another one begins with another seed.
func TestClientGoneWhileSorting(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	orders := shuffled(2, len(d.bytes), 2, 1, 0)
	g := newGate(t, &o, int(d.total/(128<<10))/2)
	e := open(t, o.chosen(plan.Sort))
	defer closeEngine(t, e)
	defer g.open()
	first := attach(t, e)
	d.push(t, e, 0, 0, 2, orders)
	d.readSome(t, e, first, 0, 0, 0, 2*fewBatches, orders[0])
	logsBecome(t, e, "a sort is in its middle", func(l logfiles) bool { return l.sorting && g.holds() })
	b, err := first.Chunk(t.Context(), 0, 0, 2*fewBatches)
	if err != nil || len(b.Indices) == 0 {
		t.Fatal(err)
	}
	first.Disconnected() // with a lease
	g.open()
	others := shuffled(3, len(d.bytes), 2, 1, 0)
	d.push(t, e, 0, 0, 2, others)
	d.isAllThere(t, e, 0, others, 0)
}

// TestStoppedWhileSorting: a server is stopped, or killed, in the middle of a sort. The next server finds two Logfiles in unknown orders, until the
// job continues in its order, or begins in another one.
func TestStoppedWhileSorting(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	for k, killed := range []bool{false, true} {
		for _, again := range testenv.One([]bool{true, false}, k) {
			t.Run(map[bool]string{false: "stopped", true: "killed"}[killed]+map[bool]string{false: ", another seed", true: ", same seed"}[again], func(t *testing.T) {
				was := shuffled(2, len(d.bytes), 2, 1, 0)
				before := o
				before.Dirs = []string{t.TempDir()}
				copyCache(t, o.Dirs[0], before.Dirs[0])
				e, g := inAMiddle(t, d, before, was)
				after, lost := before, map[bool]float64{true: halfAppended, false: withoutRoom}[again]
				if killed {
					after.Dirs = []string{t.TempDir()}
					lost += 0.1 // the buffers of all segments
					waitForJournals(t, before.Dirs[0])
					copyCache(t, before.Dirs[0], after.Dirs[0])
					g.open()
					closeEngine(t, e)
				} else {
					go func() { <-e.ctx.Done(); g.open() }()
					closeEngine(t, e)
				}
				after.IO = o.IO
				e = open(t, after.chosen(plan.Sort))
				defer closeEngine(t, e)
				if e.unidentified == nil || e.cur.Layout != nil {
					t.Error("the sort was not interrupted: want two Logfiles in unknown orders")
				}
				orders, start := was, 2*fewBatches
				if !again {
					orders, start = shuffled(3, len(d.bytes), 2, 1, 0), 0
				}
				d.push(t, e, 0, 0, 2, orders)
				d.isAllThere(t, e, start, orders, lost)
				t.Logf("%d samples came from the source", e.Status().Jobs[0].SourceReads)
			})
		}
	}
}

// TestBeginsAnyhow: in every kind of cache and with every choice, a second run gets every byte in the right order in both epochs. It reads only samples
// from the source that the log does not keep.
func TestBeginsAnyhow(t *testing.T) {
	for i, c := range testenv.Some([]struct {
		name  string
		in    ingest.Options
		start int // of the first epoch, in percent
	}{
		{"from the start", ingest.Options{}, 0},
		{"at 90 %", ingest.Options{}, 90},
		{"a tenth is kept", ingest.Options{Budget: -10, Memory: 32 << 20}, 0},
		{"half is kept", ingest.Options{Budget: -50, Memory: 32 << 20}, 0},
		{"half is kept, at 90 %", ingest.Options{Budget: -50, Memory: 32 << 20}, 90},
		{"two directories", ingest.Options{Dirs: []string{"a", "b"}, Memory: 28 << 20}, 0},
		{"lz4", ingest.Options{Compress: "lz4", Memory: 64 << 20}, 0},
	}, 4) {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for k, dir := range c.in.Dirs {
				c.in.Dirs[k] = filepath.Join(root, dir)
			}
			d, o := secondRun(t, c.in)
			for _, choice := range testenv.One([]plan.Choice{plan.Sort, plan.InPlace, plan.Wait}, i) {
				seed := uint64(2 + choice)
				o := o
				o.Dirs = slices.Clone(o.Dirs)
				for k, dir := range o.Dirs { // what one job leaves unfinished is not to be the next one's
					o.Dirs[k] = t.TempDir()
					copyCache(t, dir, o.Dirs[k])
				}
				e := open(t, o.chosen(choice))
				orders := shuffled(seed, len(d.bytes), 2, 1, 0)
				d.push(t, e, 0, 0, 2, orders)
				start := c.start * len(orders[0]) / 100
				misses := 0
				for _, batch := range append(orders[0][start:len(orders[0]):len(orders[0])], orders[1]...) {
					for _, index := range batch {
						if !e.cache.Keeps(index) && len(d.bytes[index]) > 0 {
							misses++
						}
					}
				}
				client := attach(t, e)
				for epoch := range 2 {
					d.readOrder(t, e, client, epoch, 0, start, orders[epoch], nil)
					start = 0
				}
				// A chunk that makes room for an earlier one is read twice.
				// A chunk that both epochs need at their boundary is read once.
				if s := e.Status().Jobs[0]; s.Misses > int64(misses) || s.Misses < int64(misses*9/10) || s.SourceReads > int64(misses*11/10) || s.CorruptSamples+s.ReorderDropped+s.Divergences != 0 || s.RandomReads > int64(len(d.bytes)/50) {
					t.Errorf("%s: %d misses, %d reads from the source, want %d; %d corrupt, %d dropped, %d by index", choice, s.Misses, s.SourceReads, misses, s.CorruptSamples, s.ReorderDropped, s.RandomReads)
				}
				closeEngine(t, e)
			}
		})
	}
}

// TestBeginsTooLate: by the real rule, a job that continues at 90 % of an epoch over a log in another order does not sort the log into it.
func TestBeginsTooLate(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	e := open(t, o)
	defer closeEngine(t, e)
	orders := shuffled(2, len(d.bytes), 2, 1, 0)
	d.push(t, e, 0, 0, 2, orders)
	start := len(orders[0]) * 9 / 10
	c := attach(t, e)
	d.readSome(t, e, c, 0, 0, start, start+2, orders[0])
	logsBecome(t, e, "the log is laid out for the next epoch", func(l logfiles) bool { return l.hasTarget || l.read == 1 }) // the remaining samples take less time than a choice
	c.Disconnected()
	d.isAllThere(t, e, start+2, orders, 0)
	if s := noSource(t, e); s.SortBytes != 0 {
		t.Errorf("%d bytes written for a sort", s.SortBytes)
	}
}

// TestBeginsLastEpoch: in a job's last epoch a log in another order is sorted, or read with random reads. Nothing is written for an epoch that does not exist.
// drop_last leaves samples out of each epoch, and the log keeps them.
func TestBeginsLastEpoch(t *testing.T) {
	for _, choice := range []plan.Choice{plan.Sort, plan.InPlace, plan.Wait} {
		t.Run(choice.String(), func(t *testing.T) {
			j := samplerJob(3, 16, 2, true)
			d, o := small(t, j)
			e := open(t, o.chosen(choice)) // the log is in the order of epoch 0
			d.readEpochsPaced(t, e, j, 2, 3, func(batch int) {
				switch {
				case batch == 1:
					e.looksAtBeginning(t)
				case batch == 2*fewBatches && choice == plan.Sort && testenv.Timed(): // on a busy machine the epoch may be over before the sort begins
					logsBecome(t, e, "the log is sorted into the last epoch", isAt(2))
				}
			})
			s := noSource(t, e)
			wrote, mayWrite, mustWrite := s.LogWriteBytes > 0, choice == plan.Sort, choice == plan.Sort && testenv.Timed()
			if wrote && !mayWrite || !wrote && mustWrite || s.SortBytes != s.LogWriteBytes {
				t.Errorf("%d bytes written, %d of them for a sort", s.LogWriteBytes, s.SortBytes)
			}
			closeEngine(t, e)
			e = open(t, o.chosen(choice)) // and again from the first epoch on
			defer closeEngine(t, e)
			d.readEpochs(t, e, j, 0, 3)
			noSource(t, e)
		})
	}
}

// TestBeginsWithoutARank: a rank that never pushes its order does not prevent the sort for the others. It is served by index.
func TestBeginsWithoutARank(t *testing.T) {
	d, o := secondRun(t, ingest.Options{Job: schedule.Job{World: 2}})
	o.LateEpoch = 200 * time.Millisecond
	e := open(t, o.chosen(plan.Sort))
	defer closeEngine(t, e)
	orders := [][][][]sample.Index{shuffled(2, len(d.bytes), 2, 2, 0), shuffled(2, len(d.bytes), 2, 2, 1)}
	d.push(t, e, 0, 0, 2, orders[0])
	c, other := attach(t, e), attach(t, e)
	d.readOrder(t, e, c, 0, 0, 0, orders[0][0], func(batch int) {
		if batch == 2*fewBatches {
			logsBecome(t, e, "the log is sorted for the rank that has pushed", isAt(0))
		}
	})
	for _, indices := range orders[1][0] {
		b, err := other.Get(t.Context(), indices, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.check(e, b); err != nil {
			t.Fatal(err)
		}
		other.Release(b.Lease)
	}
	d.readOrder(t, e, c, 1, 0, 0, orders[0][1], nil)
	noSource(t, e)
}

// TestBeginsAcrossLayouts: a log whose sort was interrupted is served with random reads, and later sorted again. So is a log that was static.
func TestBeginsAcrossLayouts(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	e, g := inAMiddle(t, d, o, shuffled(2, len(d.bytes), 2, 1, 0))
	go func() { <-e.ctx.Done(); g.open() }()
	closeEngine(t, e)
	for k, layout := range []string{cache.LayoutStatic, cache.LayoutLog, cache.LayoutStatic, cache.LayoutLog} {
		o.Layout = layout
		e := open(t, o.chosen(plan.Sort))
		orders := shuffled(uint64(3+k), len(d.bytes), 2, 1, 0)
		d.push(t, e, 0, 0, 2, orders)
		d.isAllThere(t, e, 0, orders, 2*withoutRoom) // in the static layout they are read in each epoch
		if s := e.Status().Jobs[0]; (s.LogWriteBytes > 0) != (layout == cache.LayoutLog) || s.SortBytes > s.LogWriteBytes {
			t.Errorf("%s after the one before: %d bytes written, %d of them for a sort", layout, s.LogWriteBytes, s.SortBytes)
		}
		closeEngine(t, e)
	}
}
