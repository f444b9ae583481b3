package reorder_test

import (
	"testing"

	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
)

// halfPackaged is a Logfile that lacks every second sample of its line: those lie in finished packages.
func (b *bed) halfPackaged(seed uint64) (l, packages *reorder.EpochLog, inLog, inPackages []sample.Index) {
	b.t.Helper()
	order := permutation(len(b.Sizes), seed)
	l, segment := b.line(0, order)
	p, err := b.Store.BeginPackages(logfile.Header{Fingerprint: b.Manifest.Fingerprint(), SegmentBlocks: capacity / block, Open: 1}, len(order), len(order))
	if err != nil {
		b.t.Fatal(err)
	}
	for k, i := range order {
		if k%2 == 0 {
			b.Fill(l.Log, int(segment[i]), i)
			inLog = append(inLog, i)
		} else {
			b.Pack(p, 0, i)
			inPackages = append(inPackages, i)
		}
	}
	if err := p.Finish(b.t.Context(), 0); err != nil {
		b.t.Fatal(err)
	}
	for _, log := range []*logfile.Logfile{l.Log, p.Log()} {
		if err := log.Flush(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
	b.lines++
	return l, &reorder.EpochLog{ID: b.lines, Epoch: -1, Log: p.Log(), Packages: p}, inLog, inPackages
}

// TestPackagedSamplesStayInPackages is a regression: samples that a segment lacks, because they lie in packages, were appended to the next Logfile while the packages kept their places. When the arena
// was full, appends waited for a place until their deadline. Now these samples are delivered, and stay in their packages until those are emptied.
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
		b.inLog(next.Log.Half(), inLog)
		b.inLog(logfile.PackageHalf, inPackages)
		b.drain(packages, target)
		b.inLog(next.Log.Half(), inPackages)
		if !l.Log.Empty() || !packages.Log.Empty() {
			t.Errorf("use %d: blocks are left: %d bytes of the old Logfile, %d of packages", use, l.Log.Held(), packages.Log.Held())
		}
		if st := &b.pass.Stats; len(b.Source.Reads()) != 0 || st.Dropped.Load() != 0 {
			t.Errorf("use %d: source %v, dropped %d", use, b.Source.Reads(), st.Dropped.Load())
		}
	}
}

// drain moves all that a log holds, one segment at a time.
func (b *bed) drain(l, target *reorder.EpochLog) {
	b.t.Helper()
	for seg := range int(l.Log.Header().Segments) {
		_, done := b.load(l, seg, target, reorder.Drain)
		b.wait(done)
	}
	for b.reclaim(l) > 0 {
	}
}
