package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/testenv"
	"lcache/sample"
)

// packed is a cache with packages of several turns, closed cleanly, and their journal.
func packed(t *testing.T) (b *bed, journal []byte) {
	t.Helper()
	b = newBed(t, 2, 4096, 30, []uint32{1000, 2000, 3000, 9000, 500, 100, 4096, 64})
	b.opts.IO = openIODepth(t, 1)
	b.open()
	p := b.packages(2, 3, 4, 6)
	for round := range 3 { // the last one ends with tails
		for _, i := range []sample.Index{3, 0, 2, 6} {
			b.put(p, int(i)%2, i)
			b.flush(p.Log())
		}
		if round == 2 {
			break
		}
		if err := errors.Join(p.Finish(t.Context(), 0), p.Finish(t.Context(), 1)); err != nil {
			t.Fatal(err)
		}
		b.flush(p.Log())
		if err := p.Free(2 * round); err != nil {
			t.Fatal(err)
		}
	}
	b.close()
	journal, err := os.ReadFile(filepath.Join(b.dirs[0], packsName))
	if err != nil {
		t.Fatal(err)
	}
	return b, journal
}

// withPackages opens the cache with other bytes in the journal of packages. Everything that is listed then is right, or of a round before.
func (b *bed) withPackages(journal []byte) (found map[int][]sample.Index, records uint64) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dirs[0], packsName), journal, 0o600); err != nil {
		b.t.Fatal(err)
	}
	s := b.open()
	if p := s.Packages(); p != nil {
		found = listed(p.Log())
		buf := aligned(b.t, Span(4095, int(maxOf(b.sizes)))+unit)
		for number, list := range found {
			for _, e := range entries(p.Log(), number) {
				if _, err := p.Log().Read(b.t.Context(), number, e.off, int(b.sizes[e.index]), buf); err != nil {
					b.t.Errorf("sample %d of %v is listed and can't be read: %v", e.index, list, err)
				}
			}
		}
	}
	b.books()
	records = s.Stats().RecoveredRecords
	b.close()
	return found, records
}

// TestPackageJournalCutAndFlipped: cut anywhere it gives the records that are complete; a flipped byte costs the header's packages, or one record.
func TestPackageJournalCutAndFlipped(t *testing.T) {
	b, whole := packed(t)
	all, records := b.withPackages(whole)
	if records < 6 || len(all) == 0 {
		t.Fatalf("%d records, %v", records, all)
	}
	head := headerSize(4)
	ends := b.recordEnds(whole, head)
	for cut := 0; cut <= len(whole); cut += testenv.Pick(7, 35) {
		found, got := b.withPackages(whole[:cut])
		complete := slices.IndexFunc(ends, func(end int) bool { return end > cut })
		if complete < 0 {
			complete = len(ends)
		}
		if cut < head && found != nil || cut >= head && (found == nil || int(got) != complete) {
			t.Errorf("cut at %d: %d records, want %d: %v", cut, got, complete, found)
		}
	}
	for i := 0; i < len(whole); i += testenv.Pick(1, 5) {
		bad := slices.Clone(whole)
		bad[i] ^= 1 << (i % 8)
		found, got := b.withPackages(bad)
		if i < head && found != nil || i >= head && (found == nil || int(got) != len(ends)-1) {
			t.Errorf("byte %d flipped: %d records: %v", i, got, found)
		}
	}
}

// TestPackagesOnALostDirectory: samples in the other directories are found, and numbers and places of the lost one are not assigned twice.
func TestPackagesOnALostDirectory(t *testing.T) {
	const n = 40
	b := newBed(t, 2, 4096, 60, slices.Repeat([]uint32{4096}, n))
	b.open()
	p := b.packages(1, 2, 30, 4)
	for i := range sample.Index(n) {
		b.put(p, 0, i)
		b.flush(p.Log())
	}
	b.close()
	if err := os.RemoveAll(b.dirs[1]); err != nil {
		t.Fatal(err)
	}
	b.open()
	found := 0
	for _, list := range b.check(b.s.Packages().Log()) {
		found += len(list)
	}
	if found != n/2 {
		t.Errorf("%d samples are found, want %d", found, n/2)
	}
	b.books()
	if _, _, err := b.s.Packages().Put(t.Context(), 0, 0, b.content(0)); err != nil {
		t.Error(err)
	}
	_ = b.s.Close() // a directory is gone
}

// TestPackagesOfAnOlderManifest can be read and freed, and not be added to. Others are begun when they are empty.
func TestPackagesOfAnOlderManifest(t *testing.T) {
	b := newBed(t, 1, 4096, 30, []uint32{1000, 2000, 3000, 4096})
	b.open()
	p := b.packages(1, 2, 4, 6)
	for i := range sample.Index(4) {
		b.put(p, 0, i)
	}
	b.close()
	old := b.opts.Fingerprint
	b.opts.Fingerprint = sample.Fingerprint{10}
	b.opts.Older = func(print sample.Fingerprint) (*Older, error) {
		if print != old {
			return nil, errors.New("unknown")
		}
		return &Older{Sizes: []uint32{1000, 2000, 3000, 4096}, To: []sample.Index{2, sample.None, 1, 0}}, nil
	}
	b.sizes = []uint32{4096, 3000, 1000}
	b.opts.Sizes = b.sizes
	b.open()
	p = b.s.Packages()
	var got []sample.Index
	for number := range 4 {
		for _, e := range entries(p.Log(), number) {
			got = append(got, e.index)
		}
	}
	if want := []sample.Index{2, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if _, _, err := p.Put(t.Context(), 0, 0, b.content(0)); err == nil {
		t.Error("a sample was put into packages of another manifest")
	}
	if _, err := b.s.BeginPackages(Header{Fingerprint: b.opts.Fingerprint, SegmentBlocks: 2, Open: 1}, 4, 6); err == nil {
		t.Error("packages were begun over others that hold samples")
	}
	for _, number := range p.Finished() {
		if err := p.Free(number); err != nil {
			t.Fatal(err)
		}
	}
	p = b.packages(1, 2, 4, 6)
	if number, _ := b.put(p, 0, 0); number != 0 || b.s.Packages() != p {
		t.Errorf("the first package is %d", number)
	}
	b.close()
	if err := Reprint(b.dirs, b.opts.Fingerprint, sample.Fingerprint{11}); err != nil {
		t.Fatal(err)
	}
	b.opts.Fingerprint = sample.Fingerprint{11}
	b.open()
	if got := b.check(b.s.Packages().Log()); fmt.Sprint(got) != fmt.Sprint(map[int][]sample.Index{0: {0}}) || b.s.Packages().Log().IsOlder() {
		t.Errorf("after the manifest has other labels: %v", got)
	}
	b.close()
}

// TestPackagesConcurrently: samples are put into all open packages, packages are freed, and the journal is rewritten, all at the same time. A restart finds the samples that were not freed.
func TestPackagesConcurrently(t *testing.T) {
	const lanes, each, numbers = 3, 300, 24
	b := newBed(t, 1, 4096, 300, randomSizes(lanes*each, 4096, 5000, 3))
	b.open()
	p := b.packages(lanes, 2, numbers, 100)
	var mu sync.Mutex
	live := make([][]entry, numbers)
	var puts, others sync.WaitGroup
	stop, freed := make(chan struct{}), make(chan struct{}, numbers)
	for lane := range lanes {
		puts.Go(func() {
			for k := range each {
				i := sample.Index(lane*each + k)
				number, off, err := p.Put(t.Context(), lane, i, b.content(i))
				for errors.Is(err, ErrFull) { // all numbers are taken
					select {
					case <-freed:
					case <-time.After(20 * time.Second):
						t.Error("no number is freed")
						return
					}
					number, off, err = p.Put(t.Context(), lane, i, b.content(i))
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				live[number] = append(live[number], entry{i, off})
				mu.Unlock()
			}
		})
	}
	others.Go(func() {
		r := rand.New(rand.NewPCG(1, 1))
		for step := 0; ; step++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if finished := p.Finished(); len(finished) > numbers/2 {
				number := finished[r.IntN(len(finished))]
				mu.Lock() // no open package has the number, so it is finished
				live[number] = nil
				mu.Unlock()
				if err := p.Free(number); err != nil {
					t.Error(err)
				}
				select {
				case freed <- struct{}{}:
				default:
				}
			}
			if step%8 == 0 {
				p.log.journal.live.Store(-p.log.s.format.rewriteSlack() * 2 / 3)
			}
			b.s.flushJournals()
		}
	})
	puts.Wait()
	close(stop)
	others.Wait()
	b.flush(p.Log())
	b.s.flushJournals()
	if b.s.Stats().JournalRewrites < 2 {
		t.Errorf("the journal was rewritten %d times", b.s.Stats().JournalRewrites)
	}
	b.close()
	b.open()
	for number, want := range live {
		got := entries(b.s.Packages().Log(), number)
		slices.SortFunc(want, func(a, b entry) int { return int(a.off) - int(b.off) })
		if !slices.Equal(got, want) {
			t.Errorf("package %d holds %v, want %v", number, got, want)
		}
	}
	b.check(b.s.Packages().Log())
	b.close()
}

// FuzzRecoverPackages opens a cache over a journal of packages and one of a Logfile, with valid records of any content. Whatever they contain, the cache opens, its
// free list is consistent, listed samples can be read, and packages can be filled and freed.
func FuzzRecoverPackages(f *testing.F) {
	f.Add([]byte{1, 64, 0, 0, 0, 64, 0, 0, 2, 0, 1, 2}, []byte{2, 0, 0, 0, 0, 64, 0, 0, 1, 0, 3})
	f.Add([]byte{1, 64, 0, 0, 0, 64, 0, 0, 1, 0, 3, 5, 128, 0, 1, 0, 64, 0, 0, 1, 0, 4, 3, 64, 1, 2, 0, 64, 0, 0, 1, 0, 2}, []byte{})
	f.Add(bytes.Repeat([]byte{7, 65, 1, 1, 2, 32, 0, 0, 1, 1, 4}, 5), bytes.Repeat([]byte{9, 1, 2, 1, 0, 32, 0, 1, 0, 0}, 3))
	b := newBed(f, 1, 4096, 16, fuzzSizes)
	b.open()
	b.begin(0, 0, 8, 12, 16)
	b.packages(2, 12, 8, 16)
	fuzzJournals(f, b, [2]int{PackagesNum, 0}, func(t *testing.T, c *bed) {
		p := c.s.Packages()
		if p == nil {
			t.Fatal("the packages are gone, with a good header")
		}
		buf := aligned(t, Span(4095, 12288)+unit)
		for number := range p.states {
			for _, e := range entries(p.Log(), number) {
				if _, err := p.Log().Read(t.Context(), number, e.off, int(fuzzSizes[e.index]), buf); err != nil {
					t.Errorf("package %d sample %d at %d is listed: %v", number, e.index, e.off, err)
				}
			}
		}
		c.s.SetNoFrees(true)
		if len(p.Finished()) > 0 {
			if err := p.Free(p.Finished()[0]); err != nil {
				t.Error(err)
			}
		}
		if _, _, err := p.Put(t.Context(), 0, 1, c.content(1)); err != nil && !errors.Is(err, ErrFull) {
			t.Error(err)
		}
	})
}
