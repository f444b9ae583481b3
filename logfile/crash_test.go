package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/durable/durabletest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestCrashClones runs Stores through random lives. At random steps towards the disk (journal, renames and arena) it makes a random state that a
// power cut could leave, and recovers from it. Recovery must succeed with a consistent free list, and every sample that a Seal
// covered must be found with its bytes, whatever else is lost. The last clone of a life is the start of the next one.
// LCACHE_CRASH_CLONES is the number of recovered clones (150). LCACHE_SEED replays one chain of lives, except for the timing of the I/O.
func TestCrashClones(t *testing.T) {
	testenv.Long(t)
	clones := testenv.Pick(150, 60)
	if n, err := strconv.Atoi(os.Getenv("LCACHE_CRASH_CLONES")); err == nil {
		clones = n
	}
	first := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("LCACHE_SEED"), 10, 64); err == nil {
		first, clones = n, 1
	}
	var sum tally
	for seed := first; sum.clones < clones && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("LCACHE_SEED=%d", seed), func(t *testing.T) { crashChain(t, seed, false, &sum) })
	}
	t.Logf("%d clones recovered: %d samples right as promised, %d right beyond that, %d stale or torn", sum.clones, sum.promised, sum.right, sum.stale)
	if sum.promised == 0 || sum.stale == 0 || sum.right == 0 {
		t.Error("the crashes were too kind, or too cruel, to show anything")
	}
}

// TestKillClones is TestCrashClones for a process that is killed again and again while the machine keeps running. Every sample that is listed afterwards is right, because a place is noted before it is overwritten.
func TestKillClones(t *testing.T) {
	testenv.Long(t)
	first := uint64(time.Now().UnixNano())
	clones := testenv.Pick(100, 40)
	if n, err := strconv.ParseUint(os.Getenv("LCACHE_SEED"), 10, 64); err == nil {
		first, clones = n, 1
	}
	var sum tally
	for seed := first; sum.clones < clones && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("LCACHE_SEED=%d", seed), func(t *testing.T) { crashChain(t, seed, true, &sum) })
	}
	t.Logf("%d clones recovered: %d samples right as promised, %d right beyond that, %d stale", sum.clones, sum.promised, sum.right, sum.stale)
	if sum.promised == 0 || sum.right == 0 {
		t.Error("the kills were too kind, or too cruel, to show anything")
	}
}

type tally struct{ clones, promised, right, stale int }

// promise is a sample that a Seal has made durable and that was not freed since.
type promise struct {
	gen   uint64 // of the Logfile
	seg   int
	off   uint64
	index sample.Index
}

// clone is the state after a crash at one moment, and the samples that must be found in it.
type clone struct {
	image    durabletest.Image
	promises map[promise]bool
	killed   bool   // and the machine goes on
	names    string // of the step, for messages
}

// life is a Store from its start to its death.
type life struct {
	*bed
	r    *rand.Rand
	disk *durabletest.Disk

	killed bool // no power cuts

	mu       sync.Mutex // guards the fields that follow; the disk's lock comes before it
	promises map[promise]bool
	dice     *rand.Rand
	next     int // steps until the next clone
	clones   []clone
}

const crashSegments, crashRoom, crashSamples = 3, 120, 200

func crashChain(t *testing.T, seed uint64, killed bool, sum *tally) {
	r := rand.New(rand.NewPCG(seed, 3))
	block := []int{4096, 8192, 16384}[r.IntN(3)]
	b := newBed(t, 1+r.IntN(2), block, 60+r.IntN(40), randomSizes(crashSamples, block, 2*block+1000, seed))
	checks := openIO(t) // clones have their own engine, so that the disk model does not see their transfers
	promises := map[promise]bool{}
	for n := range 6 {
		l := &life{bed: b, r: r, disk: durabletest.New(), killed: killed, promises: promises, dice: rand.New(rand.NewPCG(seed, 100+uint64(n))), next: r.IntN(40)}
		l.live()
		if t.Failed() || len(l.clones) == 0 {
			return
		}
		for i, c := range l.clones {
			next := b.afterlife(c, checks, i == len(l.clones)-1, sum)
			if t.Failed() {
				t.Logf("life %d, clone %d of %d", n, i+1, len(l.clones))
				return
			}
			if next != nil {
				os.RemoveAll(filepath.Dir(b.dirs[0]))
				b, promises = next, c.promises
				b.opts.IO = l.opts.IO
			}
		}
	}
	os.RemoveAll(filepath.Dir(b.dirs[0]))
}

// live opens the Store, works with it, and closes it cleanly or not. The clones are the test.
func (l *life) live() {
	l.disk.Load(l.t, l.dirs...)
	l.disk.Step = l.step
	l.disk.Watch(l.opts.IO)
	defer blockio.Inject(l.opts.IO, nil)
	l.opts.Trace = l.disk.Trace
	l.open()
	for slot := range 2 {
		if l.s.Logfiles()[slot] == nil {
			l.begin(slot, l.r.Uint32(), crashSegments, 60, crashRoom)
		}
	}
	for range 40 + l.r.IntN(80) {
		l.act()
	}
	l.take("before the stop")
	l.bed.close()
	l.take("after the stop")
}

// The disk calls step, with its lock held, before each change.
func (l *life) step() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next--; l.next < 0 {
		l.next = l.dice.IntN(60)
		l.cloneLocked("in the middle")
	}
}

func (l *life) take(what string) {
	l.disk.Locked(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cloneLocked(what)
	})
}

func (l *life) cloneLocked(what string) {
	if l.killed {
		l.clones = append(l.clones, clone{image: l.disk.Kill(l.dice), promises: maps.Clone(l.promises), killed: true, names: what})
		return
	}
	keep := []float64{0, 0.3, 0.5, 0.9, 1}[l.dice.IntN(5)]
	l.clones = append(l.clones, clone{image: l.disk.Crash(l.dice, keep), promises: maps.Clone(l.promises), names: fmt.Sprintf("%s, pages kept with %v", what, keep)})
}

func (l *life) act() {
	slot, seg := l.r.IntN(2), l.r.IntN(crashSegments)
	log := l.s.Logfiles()[slot]
	switch l.r.IntN(24) {
	case 0:
		l.free(log, seg, l.r.IntN(log.Blocks(seg)+2))
	case 1:
		if err := log.WriteTails(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
	case 2, 3:
		l.seal(log)
	case 4:
		_ = l.s.syncAll(l.t.Context(), nil) // the background's sync
	case 5:
		l.s.flushJournals()
	case 6:
		if l.r.IntN(3) == 0 {
			l.unpromise(func(p promise) bool { return p.gen == log.Generation() })
			if err := l.s.Drop(slot); err != nil {
				l.t.Fatal(err)
			}
			l.begin(slot, l.r.Uint32(), crashSegments, 60, crashRoom)
		}
	case 7, 8:
		l.carry(log, seg, l.s.Logfiles()[1-slot], l.r.IntN(crashSegments))
	default:
		for range 1 + l.r.IntN(6) {
			l.grow(log, seg)
		}
	}
}

// carry carries a segment to the other Logfile, which is emptied for it. What was sealed there is in one of both after a crash, or in parts in each.
func (l *life) carry(log *Logfile, seg int, to *Logfile, toSeg int) {
	if to.Blocks(toSeg) > 0 {
		l.unpromise(func(p promise) bool { return p.gen == to.Generation() })
		if err := l.s.Drop(to.Num()); err != nil {
			l.t.Fatal(err)
		}
		to = l.begin(to.Num(), l.r.Uint32(), crashSegments, 60, crashRoom)
	}
	if err := log.Flush(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	l.unpromise(func(p promise) bool { return p.gen == log.Generation() && p.seg == seg })
	if err := log.Carry(l.t.Context(), seg, to, toSeg, func() {}); err != nil && !errors.Is(err, ErrBusy) {
		l.t.Fatal(err)
	}
}

// grow appends a sample, after making sure that no append has to wait for a place.
func (l *life) grow(log *Logfile, seg int) {
	for s := 0; l.s.Free() < 24 && s < 2*crashSegments; s++ {
		old := l.s.Logfiles()[s%2]
		l.free(old, s/2, old.Blocks(s/2))
		if err := old.Flush(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
	}
	// A growing tail is in two places for a while, and is certain to be in either only after the next Seal.
	w := uint64(l.format.Block)
	l.unpromise(func(p promise) bool {
		return p.gen == log.Generation() && p.seg == seg && p.off+l.format.pad(int(l.sizes[p.index])) > log.Length(seg)/w*w
	})
	i := l.r.Uint32N(crashSamples)
	if _, err := log.Append(l.t.Context(), seg, i, l.content(i)); err != nil && !errors.Is(err, ErrFull) {
		l.t.Fatal(err)
	}
}

func (l *life) free(log *Logfile, seg, upto int) {
	end := uint64(upto) * uint64(l.format.Block)
	l.unpromise(func(p promise) bool { return p.gen == log.Generation() && p.seg == seg && p.off < end })
	if err := log.FreeBlocks(seg, upto); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) unpromise(match func(p promise) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.promises, func(p promise, _ bool) bool { return match(p) })
}

// seal records the samples in full blocks, and in written tails, as durable.
func (l *life) seal(log *Logfile) {
	tails := l.r.IntN(2) == 0
	if tails {
		if err := log.WriteTails(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := log.Seal(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	fresh := map[promise]bool{}
	for seg := range crashSegments {
		end := log.Length(seg)
		if !tails {
			end -= end % uint64(l.format.Block)
		}
		log.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
			if off+l.format.pad(int(l.sizes[i])) <= end {
				fresh[promise{log.Generation(), seg, off, i}] = true
			}
			return true
		})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.promises, fresh)
}

// afterlife recovers a clone and compares; it is returned, closed only by its own crash, if it is to live on.
func (b *bed) afterlife(c clone, io *blockio.IO, goesOn bool, sum *tally) *bed {
	root, err := os.MkdirTemp("", "lcache-crash-")
	if err != nil {
		b.t.Fatal(err)
	}
	c.image.Write(b.t, filepath.Dir(b.dirs[0]), root)
	k := &bed{t: b.t, format: b.format, sizes: b.sizes, opts: b.opts, lost: map[sample.Index]int{}}
	for _, dir := range b.dirs {
		k.dirs = append(k.dirs, filepath.Join(root, filepath.Base(dir)))
	}
	var next *bed
	if goesOn {
		next = &bed{t: b.t, format: b.format, sizes: b.sizes, opts: b.opts, lost: map[sample.Index]int{}, dirs: []string{}}
		again := b.t.TempDir()
		c.image.Write(b.t, filepath.Dir(b.dirs[0]), again)
		for _, dir := range b.dirs {
			next.dirs = append(next.dirs, filepath.Join(again, filepath.Base(dir)))
		}
	}
	k.opts.IO, k.opts.Trace, k.opts.Lost = io, nil, k.noteLost
	k.open()
	k.keepsPromises(c, sum)
	k.books()
	k.close()
	sum.clones++
	if b.t.Failed() {
		b.t.Logf("crashed %s; its files are in %s", c.names, root)
	} else if err := os.RemoveAll(root); err != nil {
		b.t.Fatal(err)
	}
	return next
}

// keepsPromises reads everything that a recovered Store lists.
func (b *bed) keepsPromises(c clone, sum *tally) {
	b.t.Helper()
	kept := 0
	buf := aligned(b.t, Span(4095, int(maxOf(b.sizes)))+unit)
	for _, l := range b.s.all() {
		for seg := range int(l.Header().Segments) {
			l.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
				want := b.content(i)
				data, err := l.Read(b.t.Context(), seg, off, len(want), buf)
				right := err == nil && bytes.Equal(data, want)
				p := promise{l.Generation(), seg, off, i}
				switch {
				case err != nil:
					b.t.Errorf("%+v is listed and can't be read: %v", p, err)
				case c.promises[p] && !right:
					b.t.Errorf("%+v was sealed and is not right", p)
				case c.promises[p]:
					kept++
				case right:
					sum.right++
				default:
					if sum.stale++; c.killed {
						b.t.Errorf("%+v is listed, and the process was killed after its place was written over", p)
					}
				}
				return true
			})
		}
	}
	if kept != len(c.promises) {
		b.t.Errorf("%d of %d sealed samples are found", kept, len(c.promises))
	}
	sum.promised += kept
}

func maxOf(sizes []uint32) (n uint32) {
	for _, s := range sizes {
		n = max(n, s)
	}
	return n
}

// TestCrashCreate cuts the power at every step of a Create. Either the cache can be opened then, or made once more, or the refusal names
// the directory that holds half of it.
func TestCrashCreate(t *testing.T) {
	testenv.Long(t)
	for _, dirs := range []int{1, 3} {
		b := newBed(t, dirs, 4096, 12, []uint32{1})
		for _, dir := range b.dirs {
			if err := os.Remove(filepath.Join(dir, formatName)); err != nil {
				t.Fatal(err)
			}
		}
		d := durabletest.New()
		d.Load(t, b.dirs...) // the arenas, as Create has reserved and synced them
		r := rand.New(rand.NewPCG(uint64(dirs), 8))
		var images []durabletest.Image
		d.Step = func() {
			for range 20 {
				images = append(images, d.Crash(r, 0.5))
			}
		}
		if err := create(b.dirs, b.format, d.Trace); err != nil {
			t.Fatal(err)
		}
		var opened, again, named int
		for n, m := range images {
			root := t.TempDir()
			m.Write(t, filepath.Dir(b.dirs[0]), root)
			c := &bed{t: t, opts: b.opts, sizes: b.sizes}
			for _, dir := range b.dirs {
				c.dirs = append(c.dirs, filepath.Join(root, filepath.Base(dir)))
			}
			if s, err := Open(c.dirs, c.opts); err == nil {
				opened++
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				continue
			}
			switch err := Create(c.dirs, b.format); {
			case err == nil:
				again++
				c.open()
				c.close()
			case dirs > 1 && errors.Is(err, ErrExists) && strings.Contains(err.Error(), root):
				named++
			default:
				t.Errorf("%d directories, clone %d: %v", dirs, n, err)
			}
		}
		t.Logf("%d directories: %d opened, %d made again, %d refused", dirs, opened, again, named)
		if again == 0 || dirs > 1 && (opened == 0 || named == 0) {
			t.Errorf("%d directories: %d opened, %d made again, %d refused: want some of each", dirs, opened, again, named)
		}
	}
}
