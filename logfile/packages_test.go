package logfile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/durable/durabletest"
	"lcache/internal/testenv"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

func (b *bed) packages(open, blocks, packages, room int) *Packages {
	b.t.Helper()
	p, err := b.s.BeginPackages(Header{Fingerprint: b.opts.Fingerprint, SegmentBlocks: uint32(blocks), Open: uint32(open)}, packages, room)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *bed) put(p *Packages, lane int, i sample.Index) (number int, off uint64) {
	b.t.Helper()
	number, off, err := p.Put(b.t.Context(), lane, i, b.content(i))
	if err != nil {
		b.t.Fatal(err)
	}
	return number, off
}

// entries returns a package's arrival list.
func entries(l *Logfile, number int) (out []entry) {
	l.Arrivals(number, func(_ int, i sample.Index, off uint64) bool { out = append(out, entry{i, off}); return true })
	return out
}

// TestPackageIsFinishedWhenFull: samples go to one open package until the next does not fit. The package's last block is then written, with zeros as padding.
func TestPackageIsFinishedWhenFull(t *testing.T) {
	b := newBed(t, 2, 4096, 40, slices.Repeat([]uint32{1500}, 40))
	b.open()
	p := b.packages(2, 2, 10, 40)
	byNumber := map[int][]sample.Index{}
	for i := range sample.Index(22) {
		number, _ := b.put(p, int(i)%2, i)
		byNumber[number] = append(byNumber[number], i)
	}
	// 1536 bytes a sample, 5 of them in 8192.
	want := map[int][]sample.Index{0: {0, 2, 4, 6, 8}, 1: {1, 3, 5, 7, 9}, 2: {10, 12, 14, 16, 18}, 3: {11, 13, 15, 17, 19}, 4: {20}, 5: {21}}
	if fmt.Sprint(byNumber) != fmt.Sprint(want) {
		t.Errorf("samples went to packages %v, want %v", byNumber, want)
	}
	if got := p.Finished(); !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("finished: %v", got)
	}
	if got, err := p.Unplaced(t.Context()); err != nil || got != 2*1536 {
		t.Errorf("%d bytes have no place yet, want %d: %v", got, 2*1536, err)
	}
	b.flush(p.Log())
	if got := b.s.Used(); got != 8 {
		t.Errorf("%d places hold blocks, want 8: two for each finished package", got)
	}
	if got := b.check(p.Log()); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if err := p.Free(4); err == nil {
		t.Error("an open package was freed")
	}
	if err := p.Finish(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	b.flush(p.Log())
	if number, _ := b.put(p, 0, 30); number != 6 {
		t.Errorf("after a package was finished the next sample is in package %d, want 6", number)
	}
	c := b.crashed() // open packages were in memory
	c.open()
	if got := c.check(c.s.Packages().Log()); len(got) != 5 || !slices.Equal(got[4], want[4]) || !slices.Equal(got[3], want[3]) {
		t.Errorf("after a kill: %v, want the five finished ones", got)
	}
	c.close()
	b.close()
	b.open()
	got := b.check(b.s.Packages().Log())
	want[6] = []sample.Index{30}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a clean stop: %v, want %v", got, want)
	}
	b.close()
}

// TestPackageNumbersAreGivenAgain: numbers are reused in the order in which they were freed. The samples of a number's earlier package are gone, at once and after a restart of each kind.
func TestPackageNumbersAreGivenAgain(t *testing.T) {
	b := newBed(t, 1, 4096, 12, slices.Repeat([]uint32{4096}, 60))
	b.open()
	p := b.packages(1, 2, 4, 10)
	for i := range sample.Index(8) { // packages 0 to 3
		b.put(p, 0, i)
	}
	if err := p.Finish(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Put(t.Context(), 0, 8, b.content(8)); !errors.Is(err, ErrFull) {
		t.Errorf("put with all numbers in use: got %v, want ErrFull", err)
	}
	if _, _, err := p.Put(t.Context(), 1, 8, b.content(8)); err == nil {
		t.Error("put in open package 1 worked, want an error: only 0 exists")
	}
	for _, number := range []int{2, 0} {
		if err := p.Free(number); err != nil {
			t.Fatal(err)
		}
		if err := p.Free(number); err != nil { // a second free changes nothing
			t.Fatal(err)
		}
	}
	if p.Unused() != 2 {
		t.Errorf("%d numbers are unused, want 2", p.Unused())
	}
	if err := readBlock(p.Log(), 2, 0, aligned(t, 4096)); !isErr(err, ErrFreed) {
		t.Errorf("a block of a freed package: %v", err)
	}
	for i := sample.Index(8); i < 11; i++ {
		b.put(p, 0, i)
	}
	want := map[int][]entry{0: {{10, 0}}, 1: {{2, 0}, {3, 4096}}, 2: {{8, 0}, {9, 4096}}, 3: {{6, 0}, {7, 4096}}}
	look := func(when string, s *Store) {
		t.Helper()
		for number, w := range want {
			if got := entries(s.Packages().Log(), number); !slices.Equal(got, w) {
				t.Errorf("%s: package %d holds %v, want %v", when, number, got, w)
			}
		}
	}
	b.flush(p.Log())
	look("at once", b.s)
	c := b.crashed()
	c.open()
	look("after a kill", c.s)
	c.check(c.s.Packages().Log())
	c.close()
	b.close()
	b.open()
	look("after a clean stop", b.s)
	if err := b.s.DropPackages(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(b.dirs[0], packsName)); b.s.Packages() != nil || b.s.Free() != 12 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("packages were dropped: %v, %d of 12 places free, journal: %v", b.s.Packages(), b.s.Free(), err)
	}
	b.close()
}

// TestCacheWithoutPackages: its files have no trace of packages, and a cache that was served without packages continues with them.
func TestCacheWithoutPackages(t *testing.T) {
	b, journal := small(t)
	names, err := os.ReadDir(b.dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !slices.Contains([]string{"FORMAT", "arena", "journal-0", "places", "LOCK"}, name.Name()) {
			t.Errorf("the cache has %s", name.Name())
		}
	}
	if golden := goldenBytes(t, "journal.hex"); !slices.Equal(golden, journal) {
		t.Error("the journal of a Logfile has changed")
	}
	b.open()
	if b.s.Packages() != nil {
		t.Error("the store has packages before any were begun")
	}
	p := b.packages(1, 3, 3, 10)
	before := b.check(b.s.Logfiles()[0])
	b.put(p, 0, 2)
	b.put(p, 0, 3) // too large for the remaining part of the package
	b.close()
	now, err := os.ReadFile(filepath.Join(b.dirs[0], "journal-0"))
	if err != nil || !slices.Equal(now, journal) {
		t.Errorf("packages have changed the journal of a Logfile: %v", err)
	}
	b.open()
	if got := b.check(b.s.Logfiles()[0]); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("the Logfile holds %v, want %v", got, before)
	}
	if got := b.check(b.s.Packages().Log()); len(got) != 1 && len(got) != 2 {
		t.Errorf("packages hold %v", got)
	}
	b.close()
}

// TestJournalsOfEachKind: a journal of packages in the place of a Logfile's is left unchanged, and the reverse.
func TestJournalsOfEachKind(t *testing.T) {
	b := newBed(t, 1, 4096, 20, slices.Repeat([]uint32{4096}, 9))
	b.open()
	p, l := b.packages(1, 2, 3, 10), b.begin(0, 1, 2, 3, 9)
	b.put(p, 0, 1)
	b.append(l, 0, 2)
	b.close()
	first, packs, third := filepath.Join(b.dirs[0], "journal-0"), filepath.Join(b.dirs[0], packsName), filepath.Join(b.dirs[0], "third")
	for _, step := range [][2]string{{first, third}, {packs, first}, {third, packs}} {
		if err := os.Rename(step[0], step[1]); err != nil {
			t.Fatal(err)
		}
	}
	b.open()
	if b.s.Logfiles()[0] != nil || b.s.Packages() != nil {
		t.Errorf("opened: %v, %v", b.s.Logfiles()[0], b.s.Packages())
	}
	if gen := b.s.gen.Load(); gen < 3 {
		t.Errorf("the last generation is %d, want the generations of unchanged journals to count too", gen)
	}
	b.close()
}

// TestPackageJournalIsRewritten: whatever is packed and freed, the journal has at most 1.5 times the records of live blocks plus the slack. A restart finds the live samples.
func TestPackageJournalIsRewritten(t *testing.T) {
	const n, numbers, each = 4000, 30, 64
	b := newBed(t, 1, 4096, 64, slices.Repeat([]uint32{64}, n))
	b.open()
	p := b.packages(2, 1, numbers, each)
	path := filepath.Join(b.dirs[0], packsName)
	r := rand.New(rand.NewPCG(5, 5))
	live := make([][]entry, numbers)
	longest := int64(0)
	for k := range 40 * n {
		if p.Unused() < 3 {
			finished := p.Finished()
			number := finished[r.IntN(len(finished))]
			live[number] = nil
			if err := p.Free(number); err != nil {
				t.Fatal(err)
			}
		}
		i := sample.Index(k % n)
		number, off := b.put(p, k%2, i)
		live[number] = append(live[number], entry{i, off})
		if k%1000 == 999 {
			b.flush(p.Log())
			b.s.flushJournals()
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			longest = max(longest, st.Size())
		}
	}
	most := int64(headerSize(numbers) + numbers*recordSize(each)*3/2 + rewriteSlack + 1000/each*recordSize(each))
	if st := b.s.Stats(); st.JournalRewrites < 2 || longest > most || st.JournalBytes < uint64(3*most) {
		t.Errorf("the journal had up to %d bytes with %d rewrites and %d bytes written, want at most %d", longest, st.JournalRewrites, st.JournalBytes, most)
	}
	b.close()
	b.open()
	for number, want := range live {
		if got := entries(b.s.Packages().Log(), number); !slices.Equal(got, want) {
			t.Errorf("package %d holds %v, want %v", number, got, want)
		}
	}
	b.check(b.s.Packages().Log())
	b.close()
}

// bedWithPackages has 20 packages of 64 samples each, and puts half of the existing samples into them.
func bedWithPackages(t *testing.T) (*bed, *Packages) {
	t.Helper()
	b := newBed(t, 1, 4096, 64, slices.Repeat([]uint32{64}, 64*20))
	b.open()
	p := b.packages(1, 1, 20, 64)
	for i := range sample.Index(64 * 10) {
		b.put(p, 0, i)
	}
	return b, p
}

// TestPackageJournalCannotBeRewritten: if any step of a rewrite fails, the existing journal stays in use, and none of its records is lost.
func TestPackageJournalCannotBeRewritten(t *testing.T) {
	for nth := 0; ; nth++ {
		b, p := bedWithPackages(t)
		b.flush(p.Log())
		b.s.flushJournals()
		p.log.journal.live.Store(-p.log.s.format.rewriteSlack() * 2 / 3) // as if all records were dead
		step, hit := 0, false
		blockio.InjectPlain(b.opts.IO, func(_ int64, path, _ string) blockio.Fault {
			if filepath.Base(path) != packsName+".new" && path != b.dirs[0] {
				return blockio.Fault{}
			}
			step++
			if hit = hit || step-1 == nth; step-1 == nth {
				return blockio.Fault{Err: unix.EIO}
			}
			return blockio.Fault{}
		})
		p.rewriteJournal()
		blockio.InjectPlain(b.opts.IO, nil)
		st := b.s.Stats()
		if hit == (st.JournalErrors == 0) {
			t.Errorf("step %d fails: %v, counted %d errors, %d rewrites", nth, hit, st.JournalErrors, st.JournalRewrites)
		}
		for i := sample.Index(64 * 10); i < 64*12; i++ {
			b.put(p, 0, i)
		}
		b.flush(p.Log())
		c := b.crashed()
		c.open()
		found := 0
		for _, list := range c.check(c.s.Packages().Log()) {
			found += len(list)
		}
		if found != 64*12 {
			t.Errorf("step %d fails: %d samples are found, want %d", nth, found, 64*12)
		}
		c.close()
		_ = b.s.Close() // a rename that was not made durable is an error of the log
		if !hit {
			if nth < 4 {
				t.Errorf("a rewrite took %d steps, want create, write, sync, rename and sync of the directory", nth)
			}
			break
		}
	}
}

// TestPackageJournalWithoutRoom: packages report that they are not recorded when their journal has grown too long and can't be rewritten.
func TestPackageJournalWithoutRoom(t *testing.T) {
	b, p := bedWithPackages(t)
	b.flush(p.Log())
	b.s.flushJournals()
	p.log.journal.live.Store(-p.log.s.format.rewriteSlack()) // as if all records were dead, for long
	if !p.IsRecorded() {
		t.Error("packages count as not recorded although the journal takes records")
	}
	blockio.InjectPlain(b.opts.IO, func(_ int64, path, _ string) (f blockio.Fault) {
		if filepath.Base(path) == packsName+".new" {
			f.Err = unix.ENOSPC
		}
		return f
	})
	p.rewriteJournal()
	blockio.InjectPlain(b.opts.IO, nil)
	if p.IsRecorded() {
		t.Error("packages count as recorded although their journal is closed")
	}
	b.close()
}

// TestFirstFinishedPackage: the first finished package is found without allocating memory, also among many.
func TestFirstFinishedPackage(t *testing.T) {
	b, p := bedWithPackages(t)
	finished := p.Finished()
	if len(finished) < 3 {
		t.Fatalf("%d packages are finished", len(finished))
	}
	for k, want := range finished {
		if got, ok := p.FirstFinished(func(number int) bool { return slices.Contains(finished[:k], number) }); !ok || got != want {
			t.Errorf("without the first %d: package %d, %v; want %d", k, got, ok, want)
		}
	}
	if _, ok := p.FirstFinished(func(int) bool { return true }); ok {
		t.Error("a package was found although all are excluded")
	}
	if n := testing.AllocsPerRun(100, func() { p.FirstFinished(func(int) bool { return true }) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	b.flush(p.Log())
	b.close()
}

// TestNthPackageWriteFails: one failed write causes a retry. Two failures of one block make a hole whose samples are reported lost once.
func TestNthPackageWriteFails(t *testing.T) {
	const n = 24
	for nth := int64(0); ; nth++ {
		for _, twice := range []bool{false, true} {
			b := newBed(t, 1, 4096, 40, randomSizes(n, 4096, 6000, 31))
			b.open()
			p := b.packages(2, 3, 20, n)
			hit := false
			failing(b.opts.IO, true, func(i int64) bool {
				hit = hit || i == nth
				return i == nth || twice && i == nth+1
			})
			for i := range sample.Index(n) {
				b.put(p, int(i)%2, i)
				b.flush(p.Log())
			}
			for lane := range 2 {
				if err := p.Finish(t.Context(), lane); err != nil {
					t.Fatal(err)
				}
				b.flush(p.Log())
			}
			blockio.Inject(b.opts.IO, nil)
			found := 0
			for _, list := range b.check(p.Log()) {
				found += len(list)
			}
			if found+len(b.losses()) != n || !twice && len(b.losses()) != 0 || twice && hit && len(b.losses()) == 0 && b.s.Stats().Holes != 0 {
				t.Errorf("write %d fails, twice %v: %d found, lost %v, %d holes", nth, twice, found, b.losses(), b.s.Stats().Holes)
			}
			b.close()
			b.open()
			again := 0
			for _, list := range b.check(b.s.Packages().Log()) {
				again += len(list)
			}
			if again != found {
				t.Errorf("write %d fails, twice %v: %d found after a restart, %d before", nth, twice, again, found)
			}
			b.close()
			if !hit {
				return
			}
		}
	}
}

// TestPackageFreedOnItsWay: a package is freed while one of its blocks is being written. A new package has its number when the write ends.
func TestPackageFreedOnItsWay(t *testing.T) {
	b := newBed(t, 1, 4096, 20, slices.Repeat([]uint32{4096}, 9))
	b.open()
	p := b.packages(1, 1, 2, 4)
	hold := make(chan struct{})
	blockio.Inject(b.opts.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Write && op.Offset == 0 {
			return blockio.Fault{Hold: hold}
		}
		return blockio.Fault{}
	})
	b.put(p, 0, 0) // package 0, held
	b.put(p, 0, 1) // package 1
	if err := p.Free(0); err != nil {
		t.Fatal(err)
	}
	if number, _ := b.put(p, 0, 2); number != 0 {
		t.Fatalf("the sample went to package %d", number)
	}
	close(hold)
	b.flush(p.Log())
	blockio.Inject(b.opts.IO, nil)
	want := map[int][]sample.Index{0: {2}, 1: {1}}
	if got := b.check(p.Log()); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", got, want)
	}
	c := b.crashed()
	c.open()
	if got := c.check(c.s.Packages().Log()); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a kill: %v, want %v", got, want)
	}
	c.close()
	b.close()
}

// TestPackageWithoutPlaces: a Put waits for a place until its context ends.
func TestPackageWithoutPlaces(t *testing.T) {
	b := newBed(t, 1, 4096, 3, slices.Repeat([]uint32{4096}, 12))
	b.open()
	p := b.packages(1, 4, 4, 4)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var err error
	n := sample.Index(0)
	for ; n < 12 && err == nil; n++ {
		_, _, err = p.Put(ctx, 0, n, b.content(n))
	}
	if !errors.Is(err, context.Canceled) || n < 4 {
		t.Errorf("sample %d: %v", n, err)
	}
	b.s.SetNoFrees(true)
	b.flush(p.Log())
	b.check(p.Log())
	b.close()
}

// packModel is the expected content of packages.
type packModel struct {
	samples map[int][]entry
	open    map[int]int // by open package
}

// TestPackageModel: random operations on packages, with Logfiles that take places from the same arena, clean restarts and kills among them, against a model.
func TestPackageModel(t *testing.T) {
	for seed := range testenv.Pick[uint64](3, 2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runPackModel(t, seed) })
	}
}

func runPackModel(t *testing.T, seed uint64) {
	const n, steps, lanes = 3000, 300, 3
	r := rand.New(rand.NewPCG(seed, 77))
	b := newBed(t, 1+int(seed%3), 8192, 300, randomSizes(n, 8192, 20000, seed))
	b.open()
	b.packages(lanes, 3, 40, 200)
	l := b.begin(0, 1, 2, 60, n)
	m := packModel{samples: map[int][]entry{}, open: map[int]int{}}
	inLog := 0
	compare := func() {
		t.Helper()
		p := b.s.Packages()
		b.check(p.Log())
		for number := range p.states {
			if got := entries(p.Log(), number); !slices.Equal(got, m.samples[number]) {
				t.Fatalf("package %d holds %v, want %v", number, got, m.samples[number])
			}
		}
		got := 0
		for _, list := range b.check(b.s.Logfiles()[0]) {
			got += len(list)
		}
		if got != inLog {
			t.Fatalf("the Logfile holds %d samples, want %d", got, inLog)
		}
		b.books()
	}
	next := sample.Index(0)
	for range steps {
		p := b.s.Packages()
		switch r.IntN(16) {
		case 0, 1, 2:
			if finished := p.Finished(); len(finished) > 4 {
				number := finished[r.IntN(len(finished))]
				delete(m.samples, number)
				if err := p.Free(number); err != nil {
					t.Fatal(err)
				}
			}
		case 3:
			if err := p.Log().Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 4:
			compare()
			b.close()
			b.open()
			l = b.s.Logfiles()[0]
			m.open = map[int]int{}
			compare()
		case 5:
			lane := r.IntN(lanes)
			if err := p.Finish(t.Context(), lane); err != nil {
				t.Fatal(err)
			}
			delete(m.open, lane)
		case 6:
			if _, bytes := l.Room(0); bytes > 30000 && next < n {
				b.append(l, 0, next)
				next, inLog = next+1, inLog+1
			}
		default:
			for range 1 + r.IntN(5) {
				lane := r.IntN(lanes)
				if next >= n || b.s.Free() < 60 {
					break
				}
				number, off, err := p.Put(t.Context(), lane, next, b.content(next))
				if errors.Is(err, ErrFull) && p.Unused() == 0 {
					delete(m.open, lane)
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if was, open := m.open[lane]; open && was != number && slices.Contains(p.Finished(), number) {
					t.Fatalf("open package %d fills package %d, which is finished", lane, number)
				}
				m.open[lane] = number
				m.samples[number] = append(m.samples[number], entry{next, off})
				next++
			}
		}
	}
	compare()
	b.close()
}

// TestPackageCrashClones: the power is cut at any step of the life of packages, including the rewrite of their journal. Recovery succeeds, its counts are right, and
// every sample of a package that a Seal has made durable, and that was not freed since, is found with its bytes. LCACHE_SEED replays one run.
func TestPackageCrashClones(t *testing.T) {
	var sum tally
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("LCACHE_SEED=%d", seed), func(t *testing.T) { crashPackages(t, seed, &sum) })
	}
	t.Logf("%d clones recovered: %d durable samples right, %d others right, %d stale or torn", sum.clones, sum.promised, sum.right, sum.stale)
	if sum.promised == 0 || sum.stale == 0 || sum.right == 0 {
		t.Error("the crashes left all samples intact, or none, so they show nothing")
	}
}

func crashPackages(t *testing.T, seed uint64, sum *tally) {
	r := rand.New(rand.NewPCG(seed, 13))
	const n = 300
	b := newBed(t, 1+r.IntN(2), 4096, 80, randomSizes(n, 4096, 7000, seed))
	l := &life{bed: b, r: r, disk: durabletest.New(), promises: map[promise]bool{}, dice: rand.New(rand.NewPCG(seed, 14)), next: 25}
	checks := openIO(t)
	l.disk.Load(t, b.dirs...)
	l.disk.Step = l.step
	l.disk.Watch(b.opts.IO)
	b.opts.Trace = l.disk.Trace
	b.open()
	p := b.packages(2, 3, 12, 60)
	for range 220 {
		switch r.IntN(12) {
		case 0, 1:
			if finished := p.Finished(); len(finished) > 3 {
				number := finished[r.IntN(len(finished))]
				l.unpromise(func(q promise) bool { return q.seg == number })
				if err := p.Free(number); err != nil {
					t.Fatal(err)
				}
			}
		case 2:
			if err := p.Log().Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
			fresh := map[promise]bool{}
			for _, number := range p.Finished() {
				for _, e := range entries(p.Log(), number) {
					fresh[promise{p.Log().Generation(), number, e.off, e.index}] = true
				}
			}
			l.mu.Lock()
			l.promises = fresh
			l.mu.Unlock()
		case 3:
			b.s.flushJournals()
			p.log.journal.live.Store(-p.log.s.format.rewriteSlack() * 2 / 3) // as if most records were dead
			p.rewriteJournal()
		case 4:
			_ = b.s.syncAll(t.Context(), nil)
		default:
			if p.Unused() < 3 || b.s.Free() < 20 {
				continue
			}
			i := r.Uint32N(n)
			b.put(p, r.IntN(2), i)
		}
	}
	l.take("before the stop")
	b.close()
	l.take("after the stop")
	blockio.Inject(b.opts.IO, nil)
	for i, c := range l.clones {
		root := t.TempDir()
		c.image.Write(t, filepath.Dir(b.dirs[0]), root)
		k := &bed{t: t, format: b.format, sizes: b.sizes, opts: b.opts, lost: map[sample.Index]int{}}
		for _, dir := range b.dirs {
			k.dirs = append(k.dirs, filepath.Join(root, filepath.Base(dir)))
		}
		k.opts.IO, k.opts.Trace, k.opts.Lost = checks, nil, k.noteLost
		k.open()
		k.keepsPromises(c, sum)
		k.books()
		if p := k.s.Packages(); p != nil && k.s.Free() > 8 { // the recovered cache continues
			i := r.Uint32N(n)
			if _, _, err := p.Put(t.Context(), 0, i, k.content(i)); err != nil && !errors.Is(err, ErrFull) {
				t.Errorf("clone %d: a sample can't be packed: %v", i, err)
			}
		}
		k.close()
		sum.clones++
		if t.Failed() {
			t.Logf("clone %d of %d, crashed %s", i, len(l.clones), c.names)
			return
		}
	}
}

// TestPackageJournalGolden fixes the bytes of the journal of packages.
func TestPackageJournalGolden(t *testing.T) {
	b := newBed(t, 1, 4096, 16, []uint32{1000, 2000, 3000, 9000, 500, 100})
	b.opts.IO = openIODepth(t, 1)
	b.open()
	p := b.packages(1, 3, 2, 4)
	for _, i := range []sample.Index{3, 0, 2} { // the third finishes the first package
		b.put(p, 0, i)
		b.flush(p.Log())
	}
	if err := errors.Join(p.Free(0), p.Finish(t.Context(), 0)); err != nil {
		t.Fatal(err)
	}
	b.flush(p.Log())
	for _, i := range []sample.Index{1, 4} { // number 0 has its second round
		b.put(p, 0, i)
		b.flush(p.Log())
	}
	b.close()
	got, err := os.ReadFile(filepath.Join(b.dirs[0], packsName))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "journal-packages.hex", annotated(got, "open"))
}
