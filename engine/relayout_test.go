package engine

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lcache/blockio"
	"lcache/cache"
	"lcache/plan"
)

// slowReads is a disk whose log is the better choice, slowWrites one that is better read in place.
var (
	slowReads  = cache.Disk{Line: plan.DiskLine{ReadIOPS: 100, WriteBPS: 1e9, OpBytes: 1 << 20}, From: "made up"}
	slowWrites = cache.Disk{Line: plan.DiskLine{ReadIOPS: 1e6, WriteBPS: 1e6, OpBytes: 1 << 20}, From: "made up"}
)

// changes says the layouts at the ends of epochs, and remembers in which layout they were read and what had been written.
type changes struct {
	mu      sync.Mutex // guards the fields that follow
	read    []string
	written []uint64
}

func (c *changes) say(e **Engine, layouts ...string) func(plan.Served) string {
	return func(s plan.Served) string {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.read, c.written = append(c.read, string(s.Layout)), append(c.written, (*e).cache.Store.Stats().WriteBytes)
		return layouts[min(len(c.read), len(layouts))-1]
	}
}

func (c *changes) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.read)
}

// TestLayoutChangesWhileItIsServed: a log is served, then samples are read in place, then they are in order again. Every byte and every order is right, the source
// is not asked, in place nothing is written; and whenever the server is killed the next one has everything, but for what lay in buffers.
func TestLayoutChangesWhileItIsServed(t *testing.T) {
	j := samplerJob(40, 16, 1, false)
	d, o := small(t, j)
	o.Disk = slowReads
	var e *Engine
	c := &changes{}
	o.Relayout = c.say(&e, "log", "static", "static", "log", "log")
	o.Begin = func(plan.Beginning) plan.Choice { return plan.Sort }
	var epoch, writes atomic.Int64
	killed := map[string]int64{} // the epoch that was read
	plain := o.IO
	o.IO.Inject = func(io *blockio.IO) {
		blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
			if op.Write && op.Buf != nil && writes.Add(1)%60 == 0 {
				c.mu.Lock()
				dir := t.TempDir()
				copyCache(t, o.Dirs[0], dir)
				killed[dir] = epoch.Load()
				c.mu.Unlock()
			}
			return blockio.Fault{}
		})
	}
	e = open(t, o)
	defer closeEngine(t, e)
	isWritten := func() bool { // samples are put in order again, after all that was said
		return c.seen() >= 4 && e.cache.Store.Stats().WriteBytes > c.written[3]
	}
	for ; !isWritten() && epoch.Load() < 39; epoch.Add(1) {
		d.readEpochs(t, e, j, int(epoch.Load()), int(epoch.Load())+1)
		e.mu.Lock()
		inPlace := e.relayout.inPlace
		e.mu.Unlock()
		if s := e.Status().Jobs[0]; (s.Layout == cache.LayoutStatic) != inPlace || inPlace && !strings.HasSuffix(s.LayoutReason, "as long as a test says") {
			t.Errorf("epoch %d: status says %s: %s", epoch.Load(), s.Layout, s.LayoutReason)
		}
	}
	becomes(t, e, "samples are put in order again", isWritten)
	noSource(t, e)
	if read := strings.Join(c.read[:4], " "); read != "log log static static" {
		t.Fatalf("%d epochs were read in the layouts %s", epoch.Load(), read)
	}
	if c.written[3] != c.written[2] {
		t.Errorf("bytes written until the ends of epochs: %d", c.written)
	}
	if len(killed) < 3 {
		t.Errorf("%d bytes were written at the end, in %d blocks: too few to be killed between them", c.written[3], writes.Load())
	}
	for dir, at := range killed {
		after := o
		after.Dirs, after.Relayout, after.IO = []string{dir}, nil, plain
		again := open(t, after)
		d.readEpochs(t, again, j, int(at), int(at)+2)
		s := again.Status().Jobs[0]
		t.Logf("killed in epoch %d: %d samples come from the source", at, s.SourceReads)
		if s.SourceReads > int64(len(d.bytes)/2) { // of a cache this small the buffers of all segments are much
			t.Errorf("killed in epoch %d: %d samples come from the source", at, s.SourceReads)
		}
		closeEngine(t, again)
	}
}

// TestLayoutChangesAtTheNextStart: a server that began in the static layout notes that a log is better. The next one has it, also after a kill, and asks the source
// for nothing; and that one may change its mind.
func TestLayoutChangesAtTheNextStart(t *testing.T) {
	j := samplerJob(8, 16, 2, false)
	d, o := small(t, j)
	o.Disk = slowWrites
	var e *Engine
	o.Relayout = (&changes{}).say(&e, "log")
	e = open(t, o)
	d.readEpochs(t, e, j, 0, 2)
	if s := still(t, e); !strings.HasSuffix(s.LayoutReason, "; so it will be from the next start of the server on") {
		t.Errorf("the reason is %s", s.LayoutReason)
	}
	becomes(t, e, "the layout is noted", func() bool { return !e.relayout.unnoted && !e.relayout.noting })
	killed := o
	killed.Dirs = []string{t.TempDir()}
	copyCache(t, o.Dirs[0], killed.Dirs[0])
	closeEngine(t, e)
	for _, o := range []Options{o, killed} {
		o.Relayout = (&changes{}).say(&e, "static")
		e = open(t, o)
		d.readEpochs(t, e, j, 2, 4)
		if s := noSource(t, e); !strings.HasSuffix(s.LayoutReason, "as long as a test says") || e.cache.Layout != cache.LayoutLog {
			t.Errorf("served in the layout %s, then %s: %s", e.cache.Layout, s.Layout, s.LayoutReason)
		}
		closeEngine(t, e)
		o.Relayout = nil
		e = open(t, o)
		d.readEpochs(t, e, j, 4, 5)
		still(t, e)
		closeEngine(t, e)
		o.Disk.From = "measured again" // facts of another measurement do not keep the choice
		if e = open(t, o); strings.HasSuffix(e.cache.LayoutReason, "as long as a test says") {
			t.Errorf("the reason is still %s", e.cache.LayoutReason)
		}
		closeEngine(t, e)
	}
}
