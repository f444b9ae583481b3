package reorder_test

import (
	"testing"

	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
)

// halfPackaged is a Logfile with half of the samples of its layout. The other samples are in finished packages.
func (b *bed) halfPackaged(seed uint64) (l, packages *reorder.EpochLog, inLog, inPackages []sample.Index) {
	b.t.Helper()
	order := permutation(len(b.Sizes), seed)
	l, segment := b.line(0, order)
	p := b.beginPackages(len(order))
	for k, i := range order {
		if k%2 == 0 {
			b.Fill(l.Log, int(segment[i]), i)
			inLog = append(inLog, i)
		} else {
			b.Pack(p, 0, i)
			inPackages = append(inPackages, i)
		}
	}
	b.settle(l.Log, p)
	b.lines++
	return l, &reorder.EpochLog{ID: b.lines, Epoch: -1, Log: p.Log(), Packages: p}, inLog, inPackages
}

func (b *bed) beginPackages(n int) *logfile.Packages {
	b.t.Helper()
	p, err := b.Store.BeginPackages(logfile.Header{Fingerprint: b.Manifest.Fingerprint(), SegmentBlocks: capacity / block, Open: 1}, n, n)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// settle finishes the open package, and waits until all full blocks are on disk.
func (b *bed) settle(l *logfile.Logfile, p *logfile.Packages) {
	b.t.Helper()
	if err := p.Finish(b.t.Context(), 0); err != nil {
		b.t.Fatal(err)
	}
	for _, log := range []*logfile.Logfile{l, p.Log()} {
		if err := log.Flush(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
}

// TestPackagedSamplesStayInPackages: a segment lacks samples that are in packages. They are delivered, and stay in place until their packages are emptied. Regression: they were appended to the next
// Logfile while the packages kept their places. In a full arena, appends then waited for a place until their deadline.
func TestPackagedSamplesStayInPackages(t *testing.T) {
	for _, use := range []reorder.Use{reorder.Deliver, reorder.Drain} {
		s := spec{sizes: randomSizes(300, 6), workers: 2}
		b := newBed(t, s)
		l, packages, inLog, inPackages := b.halfPackaged(6)
		next, segment := b.line(1, permutation(len(s.sizes), 7))
		target := b.aim(next, segment)
		if use == reorder.Deliver {
			b.over(l, target, 2)
		} else {
			b.drain(l, target)
		}
		b.inLog(next.Log.Num(), inLog)
		b.inLog(logfile.PackagesNum, inPackages)
		b.drain(packages, target)
		b.inLog(next.Log.Num(), inPackages)
		if !l.Log.Empty() || !packages.Log.Empty() {
			t.Errorf("use %d: blocks are left: %d bytes of the old Logfile, %d of packages", use, l.Log.Held(), packages.Log.Held())
		}
		if st := &b.scan.Stats; len(b.Source.Reads()) != 0 || st.Dropped.Load() != 0 {
			t.Errorf("use %d: source %v, dropped %d", use, b.Source.Reads(), st.Dropped.Load())
		}
	}
}

// TestMissesInAFullArena: samples from the source are delivered while the arena is full of blocks whose samples have moved. Samples from the source free no place. So only some of them are appended, and none waits for
// a place.
func TestMissesInAFullArena(t *testing.T) {
	for _, use := range []reorder.Use{reorder.Deliver, reorder.Drain} {
		s := spec{sizes: randomSizes(300, 8), workers: 2}
		b := newBed(t, s)
		b.Know()
		order := permutation(len(s.sizes), 8)
		missed, moved := order[:len(order)/2], order[len(order)/2:]
		l, segment := b.line(0, order)
		p := b.beginPackages(len(order))
		for _, i := range moved {
			b.Fill(l.Log, int(segment[i]), i)
		}
		for _, i := range moved {
			b.Pack(p, 0, i)
		}
		b.settle(l.Log, p)
		next, segment := b.line(1, permutation(len(order), 9))
		target := b.aim(next, segment)
		if use == reorder.Deliver {
			b.over(l, target, 2)
		} else {
			b.drain(l, target)
		}
		if err := next.Log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.inLog(logfile.PackagesNum, moved)
		written := 0
		for _, i := range missed {
			if b.Locations.In(i, 1) {
				written++
			}
		}
		if written == 0 || written == len(missed) || !l.Log.Empty() || len(b.Lost()) != 0 {
			t.Errorf("use %d: %d of %d samples that came from the source were written; the old Logfile still holds %d bytes; lost %v", use, written, len(missed), l.Log.Held(), b.Lost())
		}
	}
}

// drain moves all samples of a log, one segment at a time.
func (b *bed) drain(l, target *reorder.EpochLog) {
	b.t.Helper()
	for seg := range int(l.Log.Header().Segments) {
		_, done := b.load(l, seg, target, reorder.Drain)
		b.wait(done)
	}
	for b.reclaim(l) > 0 {
	}
}
