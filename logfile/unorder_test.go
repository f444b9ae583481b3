package logfile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lcache/internal/disk/durable"
	"lcache/sample"
)

// heldBy lists the samples that the logs of a store hold, and how often.
func (b *bed) heldBy(s *Store) map[sample.Index]int {
	b.t.Helper()
	held := map[sample.Index]int{}
	for _, l := range s.all() {
		for _, list := range b.check(l) {
			for _, i := range list {
				held[i]++
			}
		}
	}
	return held
}

// unordered makes packages of Logfile num, and fails unless the location of each of its samples in them was reported.
func (b *bed) unordered(num int) {
	b.t.Helper()
	want, told := 0, 0
	for _, list := range b.check(b.s.Log(num)) {
		want += len(list)
	}
	ok, err := b.s.Unorder(b.t.Context(), num, func(i sample.Index, seg, number int, off uint64) {
		told++
		buf := aligned(b.t, Span(off, int(b.sizes[i])))
		for l, k := range map[*Logfile]int{b.s.Log(num): seg, b.s.Log(PackagesNum): number} {
			if data, err := l.Read(b.t.Context(), k, off, int(b.sizes[i]), buf); err != nil || string(data) != string(b.content(i)) {
				b.t.Errorf("sample %d at %d of segment %d in Logfile %d: %v, or other bytes", i, off, k, l.Num(), err)
			}
		}
	})
	if !ok || err != nil || told != want {
		b.t.Fatalf("%v, %v, %d of %d samples told", ok, err, told, want)
	}
}

// broken is a cache with an interrupted scan: the newer Logfile has the samples of two segments of the older one.
func broken(t *testing.T, n int) *bed {
	sizes := randomSizes(n, 4096, 9000, 4)
	total := 0
	for _, size := range sizes {
		total += int(size) + 64
	}
	b := newBed(t, 2, 4096, total/4096+60, sizes)
	b.open()
	older := b.begin(0, 1, 4, n*2, n)
	for i := range sample.Index(n) {
		b.append(older, int(i)%4, i)
	}
	b.moves(older, 1, 0, 1, 3)
	return b
}

// moves begins a Logfile and moves to it what segments of another one hold.
func (b *bed) moves(from *Logfile, num int, segs ...int) {
	b.t.Helper()
	n := len(b.sizes)
	to := b.begin(num, 2, 5, n*2, n)
	for _, seg := range segs {
		for _, e := range entries(from, seg) {
			b.append(to, int(e.index)%5, e.index)
		}
		from.FreeSegment(seg)
	}
}

// all fails unless the logs hold each sample once.
func (b *bed) all(s *Store) {
	b.t.Helper()
	held := b.heldBy(s)
	for i := range b.sizes {
		if held[sample.Index(i)] != 1 {
			b.t.Errorf("sample %d is in %d logs, want 1", i, held[sample.Index(i)])
		}
	}
}

// TestUnorder: the Logfile of an interrupted scan becomes packages, twice, with other packages present and with partly filled blocks. It is then gone, and each sample
// exists once: immediately, after a clean stop, and after all packages but one were freed.
func TestUnorder(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprint("stopped before=", stopped), func(t *testing.T) {
			b := broken(t, 200)
			again := func() {
				b.all(b.s)
				b.books()
				if stopped {
					b.close()
					b.open()
					b.all(b.s)
				}
			}
			again()
			b.unordered(1)
			if b.s.Log(1) != nil || b.s.Packages() == nil {
				t.Fatal("the Logfile still exists, or packages don't")
			}
			again()
			b.moves(b.s.Log(0), 1, 2)
			again()
			before := b.s.Packages().Finished()
			if err := b.s.Packages().Free(before[0]); err != nil { // its number is given again
				t.Fatal(err)
			}
			gone := 200 - len(b.heldBy(b.s))
			b.unordered(1)
			if got := b.s.Packages().Finished(); len(got) < len(before) || !slices.Contains(got, before[0]) {
				t.Errorf("packages %v, and %v before", got, before)
			}
			if got := len(b.heldBy(b.s)); got != 200-gone {
				t.Errorf("%d samples are there, want %d", got, 200-gone)
			}
			b.close()
			b.open()
			if got := len(b.heldBy(b.s)); got != 200-gone {
				t.Errorf("after a stop %d samples are there, want %d", got, 200-gone)
			}
			if got := b.s.Packages().Finished(); len(got) == 0 {
				t.Error("no package is finished")
			}
			for _, number := range b.s.Packages().Finished() {
				for upto := range b.s.Packages().Log().Blocks(number) { // block by block, as a scan does
					if err := b.s.Packages().FreeBlocks(number, upto); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.s.Packages().Free(number); err != nil {
					t.Fatal(err)
				}
			}
			if !b.s.Packages().Log().Empty() {
				t.Error("packages that were all freed are not empty")
			}
			if err := b.s.DropPackages(); err != nil {
				t.Fatal(err)
			}
			b.close()
		})
	}
}

// TestUnorderOneSegment: a Logfile of one segment becomes packages, too, even if it is empty, and others can be filled at the same time.
func TestUnorderOneSegment(t *testing.T) {
	for n := range sample.Index(3) {
		b := newBed(t, 1, 4096, 40, []uint32{4096, 4096, 4096, 100})
		b.open()
		b.append(b.begin(0, 1, 1, 10, 10), 0, 3)
		l := b.begin(1, 2, 1, 10, 10)
		for i := range n {
			b.append(l, 0, i)
		}
		b.unordered(1)
		for i := n; i < 3; i++ {
			if _, _, err := b.s.Packages().Put(t.Context(), int(i)%2, i, b.content(i)); err != nil {
				t.Errorf("%d samples: put: %v", n, err)
			}
		}
		b.all(b.s)
		b.close()
		b.open()
		b.all(b.s)
		b.close()
	}
}

// TestUnorderKilled: a kill before any step loses no sample that was on disk: it is in the Logfile or in the packages.
func TestUnorderKilled(t *testing.T) {
	b := broken(t, 120)
	b.close() // all is on disk
	var clones []*bed
	b.opts.Trace = func(durable.Change) error {
		if b.s != nil {
			clones = append(clones, b.crashed())
		}
		return nil
	}
	b.s = nil
	b.open()
	clones = nil
	b.unordered(1)
	if len(clones) < 3 {
		t.Fatalf("%d steps, want a journal that is written, renamed, and one that is removed", len(clones))
	}
	for k, c := range append(clones, b.crashed()) {
		c.opts.Trace = nil
		c.open()
		if held := c.heldBy(c.s); len(held) != 120 {
			t.Errorf("killed before step %d: %d of 120 samples are there", k, len(held))
		}
		if k < 3 && c.s.Log(1) != nil && !c.s.Log(1).Empty() { // and it can be done once more
			c.unordered(1)
			c.all(c.s)
		}
		c.close()
	}
	b.opts.Trace = nil
	b.close()
}

// TestUnorderFails: if the packages' journal can't be written, nothing changes, and it can be tried again.
func TestUnorderFails(t *testing.T) {
	b := broken(t, 120)
	b.close()
	fail := false
	b.opts.Trace = func(c durable.Change) error {
		if fail && c.Step == durable.StepRename {
			return errors.New("no more")
		}
		return nil
	}
	b.open()
	fail = true
	if ok, err := b.s.Unorder(t.Context(), 1, func(sample.Index, int, int, uint64) { t.Error("a sample is told") }); ok || err == nil {
		t.Fatalf("%v, %v", ok, err)
	}
	b.all(b.s)
	fail = false
	b.unordered(1)
	b.all(b.s)
	b.close()
}

// TestUnorderedAreRead: random reads continue while a Logfile becomes packages, and return the right bytes from either location.
func TestUnorderedAreRead(t *testing.T) {
	b := broken(t, 200)
	type place struct {
		l   *Logfile
		e   entry
		seg int
	}
	var places []place
	for seg := range int(b.s.Log(1).Header().Segments) {
		for _, e := range entries(b.s.Log(1), seg) {
			places = append(places, place{b.s.Log(1), e, seg})
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began, done := make(chan struct{}), make(chan error, 1)
	go func() {
		r, buf, err := rand.New(rand.NewPCG(1, 1)), aligned(t, 3*4096+9000), error(nil)
		for k := 0; err == nil || !errors.Is(err, ErrFreed) && !errors.Is(err, ErrHole); k++ { // until the Logfile has let go of them
			p := places[r.IntN(len(places))]
			data, readErr := p.l.Read(ctx, p.seg, p.e.off, int(b.sizes[p.e.index]), buf)
			if err = readErr; err == nil && string(data) != string(b.content(p.e.index)) {
				err = fmt.Errorf("sample %d has other bytes", p.e.index)
				break
			}
			if k == 10 {
				close(began)
			}
		}
		done <- err
	}()
	<-began
	b.unordered(1)
	if err := <-done; !errors.Is(err, ErrFreed) && !errors.Is(err, ErrHole) {
		t.Error(err)
	}
	b.all(b.s)
	b.close()
}

// TestCutOffByAKill: a kill leaves segments whose last sample is not whole, because its end was in memory. The samples before it stay after the next stop, also if the segments became packages, or were
// carried to another Logfile.
func TestCutOffByAKill(t *testing.T) {
	for _, carried := range []bool{false, true} {
		t.Run(fmt.Sprint("carried=", carried), func(t *testing.T) {
			alive := broken(t, 200)
			if err := alive.s.Log(1).Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			b := alive.crashed()
			alive.close()
			b.open()
			if err := b.s.Drop(0); err != nil {
				t.Fatal(err)
			}
			want := b.heldBy(b.s)
			if carried {
				to := b.begin(0, 3, 5, 400, 200)
				for seg := range 5 {
					if err := b.s.Log(1).Carry(t.Context(), seg, to, seg, func() {}); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.s.Drop(1); err != nil {
					t.Fatal(err)
				}
			} else {
				b.unordered(1)
			}
			for _, when := range []string{"at once", "after a stop", "after a second one"} {
				if held := b.heldBy(b.s); len(want) == 0 || !maps.Equal(held, want) {
					t.Errorf("%s %d samples are there, want %d", when, len(held), len(want))
				}
				b.close()
				b.open()
			}
			b.close()
		})
	}
}
