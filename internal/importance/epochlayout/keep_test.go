package epochlayout

import (
	"slices"
	"testing"

	"lcache/chunker"
	"lcache/internal/disk/offheap"
	"lcache/internal/importance/state"
	"lcache/sample"
)

// dataset is a log of 8 samples of 100 bytes. The budget admits the even ones, and the log has them now.
func dataset() *Log {
	even := func(i sample.Index) bool { return i%2 == 0 }
	return &Log{Sizes: []uint32{100, 100, 100, 100, 100, 100, 100, 100}, Align: 8, Segment: 416, Block: 208, Admits: even, Has: even}
}

// predicted is an epoch with a given order of use. Memory will hold the most-used samples, as many as fit into cache
// bytes.
func predicted(t *testing.T, mostUsed []sample.Index, cache int64, order []sample.Index) *Epoch {
	t.Helper()
	by, err := offheap.MakeDense[sample.Index](len(mostUsed))
	if err != nil {
		t.Fatal(err)
	}
	copy(by, mostUsed)
	p, err := Predict(by, state.Config{Cache: cache}, func(sample.Index) int64 { return 100 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Free)
	return &Epoch{Prediction: p, Order: order, Earlier: func() []sample.Index { return nil }, Held: func(sample.Index) bool { return false }}
}

// members lists a set; nil for a nil set.
func members(s *sample.Set, n int) (list []sample.Index) {
	for i := range sample.Index(n) {
		if s != nil && s.Has(i) {
			list = append(list, i)
		}
	}
	return list
}

// TestKeeps: the log of a drawn epoch keeps the samples that the epoch delivers most often from the log. They must be
// in the log, or read from the source in the epoch before. It never takes more room than the samples that the budget
// admits.
func TestKeeps(t *testing.T) {
	const open = sample.None
	for _, c := range []struct {
		name   string
		change func(*Log, *Epoch)
		want   []sample.Index // nil: the samples that the budget admits
	}{
		{"the log's samples are kept", func(*Log, *Epoch) {}, []sample.Index{0, 2, 4, 6}},
		{"delivered samples that the epoch before reads from the source take the place of unused ones", func(_ *Log, e *Epoch) {
			e.Earlier = func() []sample.Index { return []sample.Index{5, 7, 5, open} }
		}, []sample.Index{0, 2, 5, 7}},
		{"memory has a sample already, and so it does not come from the source", func(_ *Log, e *Epoch) {
			e.Earlier = func() []sample.Index { return []sample.Index{5, 7} }
			e.Held = func(i sample.Index) bool { return i == 7 }
		}, []sample.Index{0, 2, 4, 5}},
		{"a sample that is larger than all admitted ones is not kept", func(l *Log, e *Epoch) {
			l.Sizes[5] = 101 // 104 bytes in the log, like the admitted ones
			l.Sizes[7] = 105
			e.Order = append(e.Order, 7, 7) // delivered most often
			e.Earlier = func() []sample.Index { return []sample.Index{5, 7} }
		}, []sample.Index{0, 2, 4, 5}},
		{"memory will hold the most used samples, and they are kept last", func(_ *Log, e *Epoch) {
			e.High.Add(0)
			e.Earlier = func() []sample.Index { return []sample.Index{5} }
		}, []sample.Index{2, 4, 5, 6}},
		{"the budget admits all samples", func(l *Log, _ *Epoch) { l.Admits = func(sample.Index) bool { return true } }, nil},
		{"the budget admits all samples but empty ones", func(l *Log, _ *Epoch) { l.Sizes = []uint32{100, 0, 100, 0, 100, 0, 100, 0} }, nil},
		{"compressed samples have other sizes in the log", func(l *Log, _ *Epoch) { l.Compressed = true }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, e := dataset(), predicted(t, []sample.Index{0, 1, 2, 3, 4, 5, 6, 7}, 0, []sample.Index{2, 5, 0, 7, open, 2})
			c.change(l, e)
			kept, err := l.keeps(e)
			if err != nil {
				t.Fatal(err)
			}
			defer kept.Close()
			if got := members(kept, len(l.Sizes)); !slices.Equal(got, c.want) {
				t.Errorf("%v are kept, want %v", got, c.want)
			}
		})
	}
}

// TestUnused: samples that memory will hold are not read in order. The unused segments are in the order of expected
// uses. A segment stays in place only if the log keeps all of it.
func TestUnused(t *testing.T) {
	layout := &chunker.EpochLayout{Order: []sample.Index{0, 2, 4, 6, 3, 1, 5, 7}, Used: 2, Starts: []uint64{0, 2, 4, 6, 8}}
	by := []sample.Index{0, 6, 4, 2, 7, 5, 3, 1}
	all := func(sample.Index) bool { return true }
	for _, c := range []struct {
		name   string
		change func(*Log, *Epoch)
		carry  []int
		kept   []sample.Index
		empty  bool // the layout only follows its order
	}{
		{"the log keeps all samples", func(l *Log, _ *Epoch) { l.Admits, l.Has = all, all }, []int{1, 2, 3}, nil, false},
		{"the log keeps the even samples", func(*Log, *Epoch) {}, []int{1}, []sample.Index{0, 2, 4, 6}, false},
		{"the layout before is not known", func(_ *Log, e *Epoch) { e.Unused = nil }, nil, []sample.Index{0, 2, 4, 6}, false},
		{"nothing is known", func(l *Log, e *Epoch) { l.Admits, e.Unused = all, nil }, nil, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, e := dataset(), predicted(t, by, 100, []sample.Index{0, 2})
			e.Unused = CopyUnused(layout)
			c.change(l, e)
			r, kept := l.Unused(e)
			defer kept.Close()
			if c.empty {
				if r.Order != nil || kept != nil {
					t.Errorf("%+v", r)
				}
				return
			}
			if !slices.Equal(r.Order, by) || !r.Apart(0) || r.Apart(6) {
				t.Errorf("order %v; 0 is apart: %v", r.Order, r.Apart(0))
			}
			if got := members(kept, len(l.Sizes)); !slices.Equal(r.Carry, c.carry) || !slices.Equal(got, c.kept) {
				t.Errorf("%v stay, %v are kept; want %v and %v", r.Carry, got, c.carry, c.kept)
			}
			if len(r.Carry) > 0 && (r.Before != layout || !slices.Equal(r.Members(1), []sample.Index{4, 6})) {
				t.Errorf("segment 1 has %v", r.Members(1))
			}
		})
	}
}

// TestCountReads: a repeated sample counts once for its segment. Samples that memory will hold do not count.
func TestCountReads(t *testing.T) {
	layout := &chunker.EpochLayout{Order: []sample.Index{0, 2, 4, 6, 3, 1, 5, 7}, Used: 2, Starts: []uint64{0, 2, 4, 6, 8}}
	e := predicted(t, []sample.Index{6, 0, 1, 2, 3, 4, 5, 7}, 100, []sample.Index{4, 6, 0, 4, sample.None, 1, 3, 1, 4})
	e.Unused = CopyUnused(layout)
	var r epochReads
	if err := dataset().countReads(e, &r); err != nil {
		t.Fatal(err)
	}
	if want := []unusedSegment{{1, 208, 1}, {2, 208, 2}, {3, 208, 0}}; !slices.Equal(r.unused, want) || r.outside != 4 || r.again != 3 {
		t.Errorf("%+v, %d samples and %d repetitions; want %+v, 4 and 3", r.unused, r.outside, r.again, want)
	}
}

// TestPredict: memory will hold the most-used samples. With the policy lru, that is unknown.
func TestPredict(t *testing.T) {
	for policy, want := range map[string][]sample.Index{"next-use": {2, 3}, "lru": nil} {
		by, err := offheap.MakeDense[sample.Index](4)
		if err != nil {
			t.Fatal(err)
		}
		copy(by, []sample.Index{3, 2, 1, 0})
		p, err := Predict(by, state.Config{Cache: 299, Policy: policy}, func(sample.Index) int64 { return 100 })
		if err != nil {
			t.Fatal(err)
		}
		if got := members(p.High, 4); !slices.Equal(got, want) {
			t.Errorf("%s: memory will hold %v, want %v", policy, got, want)
		}
		p.Free()
	}
}
