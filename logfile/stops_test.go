package logfile

import (
	"math/rand/v2"
	"testing"

	"lcache/internal/testenv"
	"lcache/sample"
)

// Logfiles are sorted again and again with clean stops in between, in an arena with exactly the slack of the memory formula. No append waits forever
// for a place, and nothing is lost.
func TestManyStopsWhileReordering(t *testing.T) {
	const w = 32768
	for _, c := range testenv.Some([]struct{ segments, samples, most, ahead int }{
		{20, 1200, 20 << 10, 8},
		{60, 60, 60 * w / 2, 1}, // one in each segment
		{40, 4800, 20 << 10, 8},
	}, 2) {
		r := rand.New(rand.NewPCG(uint64(c.segments), 8))
		sizes := make([]uint32, c.samples)
		total := 0
		for i := range sizes {
			sizes[i] = uint32(c.most/2+r.IntN(c.most/2)) &^ 63
			total += int(sizes[i])
		}
		blocks := (total + w - 1) / w
		b := newBed(t, 1, w, blocks+max(32+2*(c.most/w), blocks/99), sizes)
		b.opts.Spare = 16
		m := &stopMover{bed: b, r: r, segments: c.segments, ahead: c.ahead, order: make([]sample.Index, c.samples), seg: make([]int, c.samples)}
		for i := range m.order {
			m.order[i] = sample.Index(i)
		}
		b.open()
		m.begin(0)
		for _, i := range m.order {
			b.append(b.s.Logfiles()[0], m.seg[i], i)
		}
		b.close()
		for epoch := 1; epoch <= 3 && !t.Failed(); epoch++ {
			m.epoch(epoch)
		}
		if have := b.stored(); len(have) != c.samples || len(b.losses()) > 0 {
			t.Errorf("%d segments: %d of %d samples were found, lost %d", c.segments, len(have), c.samples, len(b.losses()))
		}
	}
}

// stopMover moves samples as the scan does: the old blocks of a few tasks, one for the samples that end in each block, are not yet free.
type stopMover struct {
	*bed
	r        *rand.Rand
	segments int
	ahead    int
	order    []sample.Index
	seg      []int // of the next line, by index
}

// begin begins the Logfile of the order.
func (m *stopMover) begin(epoch int) {
	for k, i := range m.order {
		m.seg[i] = k * m.segments / len(m.order)
	}
	m.bed.begin(epoch%2, uint32(epoch), m.segments, m.format.Places, len(m.order)/m.segments+1)
}

// epoch sorts the log into a new order, with stops.
func (m *stopMover) epoch(epoch int) {
	m.t.Helper()
	m.r.Shuffle(len(m.order), func(i, j int) { m.order[i], m.order[j] = m.order[j], m.order[i] })
	m.open()
	m.begin(epoch)
	stops := 1 + m.r.IntN(8)
	for range stops {
		m.move(epoch%2, m.r.IntN(len(m.order)/(stops+1)))
		m.close()
		m.open()
		m.s.Logfiles()[epoch%2].ReadTailsBack()
	}
	m.move(epoch%2, len(m.order)+1)
	if l := m.s.Logfiles()[1-epoch%2]; !l.Empty() {
		m.t.Errorf("%d segments, epoch %d: the old Logfile holds %d", m.segments, epoch, l.Held())
	}
	if err := m.s.Drop(1 - epoch%2); err != nil {
		m.t.Error(err)
	}
	m.close()
}

// move appends n samples of the older Logfile to Logfile num.
func (m *stopMover) move(num, n int) {
	m.t.Helper()
	target, source := m.s.Logfiles()[num], m.s.Logfiles()[1-num]
	placed := map[sample.Index]bool{}
	for seg := range target.segs {
		target.Arrivals(seg, func(_ int, i sample.Index, _ uint64) bool { placed[i] = true; return true })
	}
	type free struct{ seg, upto int }
	var frees []free
	give := func(keep int) {
		for ; len(frees) > keep; frees = frees[1:] {
			if err := source.FreeBlocks(frees[0].seg, frees[0].upto); err != nil {
				m.t.Error(err)
			}
		}
	}
	for seg := range source.segs {
		list := arrivalsOf(source, seg)
		for k, a := range list {
			if n--; n < 0 {
				return
			}
			if !placed[a.index] {
				m.append(target, m.seg[a.index], a.index)
			}
			if k+1 == len(list) {
				frees = append(frees, free{seg, source.Blocks(seg)})
			} else if j := int(list[k+1].off) / m.format.Block; j > int(a.off)/m.format.Block {
				frees = append(frees, free{seg, j})
			}
			give(m.ahead - 1)
		}
	}
	give(0)
}

type arrivalAt struct {
	index sample.Index
	off   uint64
}

func arrivalsOf(l *Logfile, seg int) (list []arrivalAt) {
	l.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
		list = append(list, arrivalAt{i, off})
		return true
	})
	return list
}
