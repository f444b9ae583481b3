package engine

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lcache/internal/disk/blockio"
	"lcache/internal/plan"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/cache"
	"lcache/internal/testenv"
)

// slowReads is a disk whose log is the better choice, slowWrites one that is better read in place.
var (
	slowReads  = cache.Disk{Line: plan.DiskLine{ReadIOPS: 100, WriteBPS: 1e9, OpBytes: 1 << 20}, From: "assumed"}
	slowWrites = cache.Disk{Line: plan.DiskLine{ReadIOPS: 1e6, WriteBPS: 1e6, OpBytes: 1 << 20}, From: "assumed"}
)

// changes chooses the layouts at the ends of epochs, and records the layout in which each was read and the bytes written until then.
type changes struct {
	mu      sync.Mutex // guards the fields that follow
	read    []string
	written []uint64
	said    string // the layout that was said last
}

func (c *changes) say(e **Engine, layouts ...string) func(plan.Served) string {
	return func(s plan.Served) string {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.read, c.written = append(c.read, string(s.Layout)), append(c.written, (*e).cache.Store.Stats().WriteBytes)
		c.said = layouts[min(len(c.read), len(layouts))-1]
		return c.said
	}
}

// last returns the layout that was chosen last.
func (c *changes) last() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

func (c *changes) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.read)
}

// TestLayoutChangesWhileItIsServed: samples are read in one layout, then in the other one, then in the first again. Every byte and every order is right, the source
// is not read, and in place nothing is written. Whenever the server is killed, the next one has all samples except those in buffers.
func TestLayoutChangesWhileItIsServed(t *testing.T) {
	t.Run("from the log", func(t *testing.T) {
		testLayoutChanges(t, slowReads, []string{"log", "static", "static", "log", "log"}, "log log static static")
	})
	t.Run("from the static layout", func(t *testing.T) {
		testLayoutChanges(t, slowWrites, []string{"static", "log", "static", "static", "log"}, "static static log static static")
	})
}

// testLayoutChanges serves epochs until samples are put in order after all that was said. said are the layouts from the ends of epochs on, read those in which the
// epochs that count must have been read.
func testLayoutChanges(t *testing.T, disk cache.Disk, said []string, read string) {
	j := samplerJob(60, 16, 1, false)
	d, o := small(t, j)
	o.Disk = disk
	var e *Engine
	c := &changes{}
	o.Relayout = c.say(&e, said...)
	o.Begin = func(plan.Beginning) plan.Choice { return plan.Sort }
	var epoch, writes atomic.Int64
	var copying sync.Mutex
	killed, killedCopy := map[string]int64{}, map[string]string{} // the epoch that was read, and the same cache once more
	plain := o.IO
	o.IO.Inject = func(io *blockio.IO) {
		blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
			if !op.Write {
				return blockio.Fault{}
			}
			copying.Lock() // no write begins while the cache is copied
			defer copying.Unlock()
			if op.Buf != nil && writes.Add(1)%30 == 0 && len(killed) < 5 {
				c.mu.Lock()
				dir := t.TempDir()
				copyCache(t, o.Dirs[0], dir)
				killed[dir], killedCopy[dir] = epoch.Load(), t.TempDir()
				copyCache(t, dir, killedCopy[dir])
				c.mu.Unlock()
			}
			return blockio.Fault{}
		})
	}
	e = open(t, o)
	defer closeEngine(t, e)
	want := strings.Fields(read)
	isWritten := func() bool { return c.seen() >= len(want) && e.cache.Store.Stats().WriteBytes > c.written[len(want)-1] }
	for ; !isWritten() && epoch.Load() < 59; epoch.Add(1) {
		d.readEpochs(t, e, j, int(epoch.Load()), int(epoch.Load())+1)
		if s := e.Status().Jobs[0]; c.seen() > 0 && (s.Layout != c.last() || !strings.HasSuffix(s.LayoutReason, "as long as a test says")) {
			t.Errorf("epoch %d: status says %s: %s", epoch.Load(), s.Layout, s.LayoutReason)
		}
	}
	waitFor(t, "samples are put in order again", func() bool { e.nudge(); return isWritten() })
	noSource(t, e)
	if was := strings.Join(c.read[:len(want)], " "); was != read {
		t.Fatalf("%d epochs were read in the layouts %s", epoch.Load(), was)
	}
	for i := 1; i < len(want) && testenv.Timed(); i++ { // on busy CPUs the moves before it are still being written
		if want[i-1] == "static" && want[i] == "static" && c.written[i]-c.written[i-1] > uint64(d.total)/10 {
			t.Errorf("bytes written until the ends of epochs: %d", c.written)
		}
	}
	if len(killed) < 3 {
		t.Errorf("%d blocks were written: too few to be killed between them", writes.Load())
	}
	copies := testenv.Some(slices.Sorted(maps.Keys(killed)), 3)
	for _, dir := range copies {
		at := killed[dir]
		after := o
		after.Dirs, after.Relayout, after.IO = []string{dir}, nil, plain
		again := open(t, after)
		d.readEpochs(t, again, j, int(at), int(at)+2)
		s := again.Status().Jobs[0]
		t.Logf("killed in epoch %d: %d samples come from the source, layout %s", at, s.SourceReads, s.Layout)
		if s.SourceReads > 2*int64(len(d.bytes)/2) { // of a cache this small the buffers of all segments are much, and it is two epochs
			t.Errorf("killed in epoch %d: %d samples come from the source", at, s.SourceReads)
		}
		closeEngine(t, again)
	}
	for _, dir := range copies { // half a log is taken up by a server that began in place
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		at, after := killed[dir], o
		after.Dirs, after.IO, after.Disk = []string{killedCopy[dir]}, plain, slowWrites
		after.Disk.From = "assumed again"
		after.Relayout = (&changes{}).say(&e, "log")
		again := open(t, after)
		if again.cache.Layout != cache.LayoutStatic {
			t.Errorf("killed in epoch %d: layout %s", at, again.cache.Layout)
		}
		is, epochs := false, int64(0) // samples that the log lacks are read from the source in each of them
		for ; epochs < 20 && !is; epochs++ {
			d.readEpochs(t, again, j, int(at+epochs), int(at+epochs)+1)
			l, ok, _ := again.nowLogfiles()
			is = ok && l.read >= int(at)
		}
		s := again.Status().Jobs[0]
		t.Logf("killed in epoch %d: %d samples come from the source until the log is in order, in %d epochs", at, s.SourceReads, epochs)
		if !is || s.SourceReads > epochs*int64(len(d.bytes)/2) || s.Layout != cache.LayoutLog {
			t.Errorf("killed in epoch %d: in order: %v, %d samples come from the source, layout %s", at, is, s.SourceReads, s.Layout)
		}
		closeEngine(t, again)
	}
}

// TestLayoutIsKept: the next server begins in the layout that was found to be better, even after a kill, as long as the same facts about the disk are known.
func TestLayoutIsKept(t *testing.T) {
	j := samplerJob(8, 16, 2, false)
	d, o := small(t, j)
	o.Disk = slowWrites
	var e *Engine
	o.Relayout = (&changes{}).say(&e, "log")
	e = open(t, o)
	d.readEpochs(t, e, j, 0, 2)
	waitFor(t, "the layout is recorded for the next start", func() bool {
		r, err := cache.ReadRecord(o.Dirs[0])
		return err == nil && r.Chosen != nil && r.Chosen.Layout == cache.LayoutLog
	})
	killed := o
	killed.Dirs = []string{t.TempDir()}
	copyCache(t, o.Dirs[0], killed.Dirs[0])
	closeEngine(t, e)
	for _, o := range []Options{o, killed} {
		o.Relayout = (&changes{}).say(&e, "static")
		e = open(t, o)
		if e.cache.Layout != cache.LayoutLog {
			t.Errorf("the next server begins in the layout %s", e.cache.Layout)
		}
		d.readEpochs(t, e, j, 2, 6)
		waitFor(t, "samples stay in place", func() bool { return e.Status().Jobs[0].Layout == cache.LayoutStatic })
		closeEngine(t, e)
		o.Relayout = nil
		e = open(t, o)
		d.readEpochs(t, e, j, 6, 7)
		if s := e.Status().Jobs[0]; s.Layout != cache.LayoutStatic || s.LogWriteBytes != 0 {
			t.Errorf("the one after that: layout %s, %d bytes written", s.Layout, s.LogWriteBytes)
		}
		closeEngine(t, e)
		o.Disk.From = "measured again" // facts of another measurement do not keep the choice
		if e = open(t, o); strings.HasSuffix(e.cache.LayoutReason, "as long as a test says") {
			t.Errorf("the reason is still %s", e.cache.LayoutReason)
		}
		closeEngine(t, e)
	}
}

// TestLayoutChangesWhileAClientHoldsBatches: a client that keeps batches of the ring keeps only the slots that they are in. Its bytes stay as they are while
// the log is read and written in order.
func TestLayoutChangesWhileAClientHoldsBatches(t *testing.T) {
	for _, batches := range []int{1, 16} { // in one slot or two, and in most of them
		j := samplerJob(60, 16, 1, false)
		d, o := small(t, j)
		o.Disk = slowWrites
		var e *Engine
		o.Relayout = (&changes{}).say(&e, "log")
		o.Begin = func(plan.Beginning) plan.Choice { return plan.Sort }
		e = open(t, o)
		hoarder := attach(t, e)
		mem := e.staging.Memory()
		var kept []*deliver.Batch
		for b := range batches {
			batch, err := hoarder.Chunk(t.Context(), 0, 0, b)
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, batch)
		}
		check := func() {
			t.Helper()
			for _, b := range kept {
				for i, index := range b.Indices {
					if got := mem[b.Offsets[i] : b.Offsets[i]+uint64(b.Lengths[i])]; !bytes.Equal(got, d.bytes[index]) {
						t.Fatalf("sample %d, which a client keeps, was written over", index)
					}
				}
			}
		}
		for epoch := 0; epoch < 3; epoch++ {
			d.readEpochs(t, e, j, epoch, epoch+1)
			check()
		}
		inPlace, back := e.Status().Jobs[0].Layout == cache.LayoutStatic, e.staging.SlotsBack()
		t.Logf("%d of %d slots are back while %d batches are kept", back, e.cache.Sizing.Slots, len(kept))
		if inPlace || back == int(e.cache.Sizing.Slots) {
			t.Errorf("%d batches are kept, the layout is in place: %v, %d of %d slots are back", len(kept), inPlace, back, e.cache.Sizing.Slots)
		}
		for _, b := range kept {
			hoarder.Release(b.Lease)
		}
		for epoch := 3; epoch < 50 && e.Status().Jobs[0].LogWriteBytes == 0; epoch++ {
			d.readEpochs(t, e, j, epoch, epoch+1)
		}
		if e.staging.SlotsBack() != int(e.cache.Sizing.Slots) || noSource(t, e).LogWriteBytes == 0 {
			t.Errorf("%d slots are back, %d bytes were written", e.staging.SlotsBack(), e.Status().Jobs[0].LogWriteBytes)
		}
		hoarder.Disconnected()
		closeEngine(t, e)
	}
}
