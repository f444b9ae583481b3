package logfile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lcache/internal/testenv"
	"lcache/sample"
)

// entry is a sample that the model expects.
type entry struct {
	index sample.Index
	off   uint64
}

// model is the expected content of a Logfile: the samples of each segment, and the number of freed blocks.
type model struct {
	samples [][]entry
	freed   []int
	next    sample.Index
}

// want lists what Arrivals should give.
func (m *model) want(b *bed, seg int) (out []entry) {
	for _, e := range m.samples[seg] {
		if e.off >= uint64(m.freed[seg]*b.format.Block) {
			out = append(out, e)
		}
	}
	return out
}

// Random operations on two Logfiles, clean restarts among them, against the model.
func TestModel(t *testing.T) {
	testenv.Long(t)
	for seed := range testenv.Pick[uint64](6, 3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runModel(t, seed) })
	}
}

func runModel(t *testing.T, seed uint64) {
	const n, segments, steps = 400, 3, 250
	r := rand.New(rand.NewPCG(seed, 99))
	b := newBed(t, 1+int(seed%3), 8192, 900, randomSizes(n, 8192, 20000, seed))
	b.open()
	var models [2]*model
	begin := func(num int) {
		b.begin(num, r.Uint32(), segments, 1000, n)
		models[num] = &model{samples: make([][]entry, segments), freed: make([]int, segments)}
	}
	begin(0)
	begin(1)
	for range steps {
		num, seg := r.IntN(2), r.IntN(segments)
		l, m := b.s.Logfiles()[num], models[num]
		switch r.IntN(20) {
		case 0:
			upto := r.IntN(l.Blocks(seg) + 2)
			if err := l.FreeBlocks(seg, upto); err != nil {
				t.Fatal(err)
			}
			m.freed[seg] = max(m.freed[seg], min(upto, l.Blocks(seg)))
		case 1:
			if err := l.WriteTails(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 2:
			if err := l.Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 3:
			b.compareModels(&models)
			b.close()
			b.open()
			b.compareModels(&models)
		case 4:
			if r.IntN(4) == 0 {
				if err := b.s.Drop(num); err != nil {
					t.Fatal(err)
				}
				begin(num)
			}
		case 5:
			carryInModel(t, b, &models, num, seg, r.IntN(segments))
		default:
			for range 1 + r.IntN(6) {
				if int(m.next) < n {
					m.samples[seg] = append(m.samples[seg], entry{m.next, b.append(l, seg, m.next)})
					m.next++
				}
			}
		}
	}
	b.compareModels(&models)
	b.close()
}

// carryInModel carries a segment to the other Logfile, which must be refused exactly if the model says so.
func carryInModel(t *testing.T, b *bed, models *[2]*model, num, seg, toSeg int) {
	from, to := b.s.Logfiles()[num], b.s.Logfiles()[1-num]
	if err := from.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, other := models[num], models[1-num]
	may := from.Blocks(seg) > 0 && m.freed[seg] == 0 && to.Blocks(toSeg) == 0
	told := false
	err := from.Carry(t.Context(), seg, to, toSeg, func() {
		told = true
		var lie []entry
		to.Arrivals(toSeg, func(_ int, i sample.Index, off uint64) bool { lie = append(lie, entry{i, off}); return true })
		if !slices.Equal(lie, m.samples[seg]) {
			t.Errorf("carried %v, want %v", lie, m.samples[seg])
		}
	})
	switch {
	case !may && !isErr(err, ErrBusy) || may && err != nil || told != may:
		t.Fatalf("carry: %v, told %v, may %v", err, told, may)
	case may:
		other.samples[toSeg], other.freed[toSeg] = m.samples[seg], 0
		m.samples[seg], m.freed[seg] = nil, from.Blocks(seg)
	}
}

func (b *bed) compareModels(models *[2]*model) {
	b.t.Helper()
	for num, m := range models {
		l := b.s.Logfiles()[num]
		if l == nil {
			b.t.Fatalf("Logfile %d is gone", num)
		}
		b.check(l)
		for seg := range m.samples {
			var got []entry
			l.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool { got = append(got, entry{i, off}); return true })
			if want := m.want(b, seg); !slices.Equal(got, want) {
				b.t.Fatalf("Logfile %d segment %d: got %v, want %v", num, seg, got, want)
			}
		}
	}
	b.books()
}

// After a power cut any page that was not made durable may be zero. A recovered sample is either right, or on such a page with a wrong checksum.
func TestPowerCut(t *testing.T) {
	testenv.Long(t)
	const n = 3000
	b := newBed(t, 2, 4096, 400, randomSizes(n, 700, 700, 21))
	b.open()
	defer b.close()
	l := b.begin(0, 0, 4, 200, n)
	for i := range uint32(n) {
		b.append(l, int(i)%4, i)
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 4))
		c := b.crashed()
		zeroed := map[string]map[int64]bool{}
		for _, dir := range c.dirs {
			zeroed[dir] = zeroPages(t, filepath.Join(dir, "arena"), 0, r)
		}
		lostPages := zeroPages(t, filepath.Join(c.dirs[0], "journal-0"), 1, r)
		s := c.open()
		k := s.Logfiles()[0]
		if k == nil {
			t.Fatal("the logfile is gone")
		}
		right, found := 0, 0
		buf := aligned(t, 8192)
		for seg := range k.segs {
			k.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
				found++
				want := c.content(i)
				data, err := k.Read(t.Context(), seg, off, len(want), buf)
				damaged := false
				for j := off / 4096; j <= (off+uint64(len(want))-1)/4096; j++ {
					p := k.segs[seg].blocks[j].place // blocks are pages here
					damaged = damaged || zeroed[c.dirs[p%2]][int64(p/2)]
				}
				if err != nil || !damaged && !bytes.Equal(data, want) {
					t.Errorf("seed %d: sample %d: %v, on a damaged page: %v", seed, i, err, damaged)
				}
				if bytes.Equal(data, want) {
					right++
				}
				return true
			})
		}
		if len(lostPages) == 0 && found < n*9/10 || right < found/3 || found > n {
			t.Errorf("seed %d: %d found, %d right of %d; %d pages of the journal lost", seed, found, right, n, len(lostPages))
		}
		c.books()
		c.close()
	}
}

// zeroPages makes about a tenth of a file's pages zero, none before page first.
func zeroPages(t *testing.T, path string, first int64, r *rand.Rand) map[int64]bool {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	zeroed := map[int64]bool{}
	for p := first; p < st.Size()/4096; p++ {
		if r.IntN(10) == 0 {
			zeroed[p] = true
			if _, err := f.WriteAt(make([]byte, 4096), p*4096); err != nil {
				t.Fatal(err)
			}
		}
	}
	return zeroed
}
